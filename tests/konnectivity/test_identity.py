"""Rules of identity: what an agent may announce, who may ask for tunnels, and how the rules are written."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity import metadata
from umbilical.konnectivity.identity import AgentRules, client_refusal, parse_agent_rules, parse_identities
from umbilical.konnectivity.metadata import AgentIdentifiers, MetadataRefused, parse_agent_identifiers
from umbilical.konnectivity.networks import NetworkTable, covers, parse_network

NODES = "CN=konnectivity-agent default-route=true"
CONTROL_PLANE = "CN=konnectivity-agent-control-plane ipv4=172.30.1.5 ipv4=fd02::5 cidr=10.0.0.0/8"
RULES = f"# who may be what\n\n{NODES}  # all nodes\n{CONTROL_PLANE}\nSA=kube-system/agent host=node-1\nO=trusted *\n"


def allows(announced: str, *proved: str, rules: str = RULES) -> bool:
    return parse_agent_rules(rules).refusal(proved, parse_agent_identifiers(announced)) == ""


CONTROL_PLANE_MAY = ["ipv4=172.30.1.5", "ipv4=172.30.1.5&ipv4=fd02::5", "ipv6=fd02::5", "ipv4=10.1.2.3", "ipv4="]
CONTROL_PLANE_MAY_NOT = ["default-route=true", "ipv4=172.30.1.6", "cidr=0.0.0.0/0", "cidr=10.0.0.0/7", "cidr=fd00::/8"]


@pytest.mark.parametrize(
    ("proved", "allowed", "refused"),
    [
        (
            "CN=konnectivity-agent",
            ["", "default-route=true"],
            ["ipv4=172.30.1.5", "default-route=true&ipv4=172.30.1.5"],
        ),
        (
            "CN=konnectivity-agent-control-plane",
            [*CONTROL_PLANE_MAY, "cidr=10.64.0.0/10"],
            [*CONTROL_PLANE_MAY_NOT, "cidr=nonsense"],
        ),
        ("SA=kube-system/agent", ["host=node-1"], ["host=node-2"]),
        ("O=trusted", ["default-route=true&ipv4=1.2.3.4&cidr=0.0.0.0/0"], []),
        ("CN=somebody", [], [""]),
        ("DNS=konnectivity-agent", [], [""]),
    ],
)
def test_an_agent_may_announce_what_its_identity_allows_and_no_more(
    proved: str, allowed: list[str], refused: list[str]
) -> None:
    assert [announced for announced in allowed + refused if allows(announced, proved)] == allowed


def test_the_refusal_names_the_identifier_and_an_unknown_agent_its_identity() -> None:
    rules = parse_agent_rules(NODES)
    told = rules.refusal(("CN=konnectivity-agent",), AgentIdentifiers(ipv4=("172.30.1.5",)))
    assert told == "the identity of this agent does not allow the identifier ipv4=172.30.1.5"
    assert "CN=x, O=y" in rules.refusal(("CN=x", "O=y"), AgentIdentifiers())
    assert "none" in rules.refusal((), AgentIdentifiers())


def test_one_of_several_identities_is_enough_and_no_rules_let_nobody_in() -> None:
    assert allows("ipv4=172.30.1.5", "CN=konnectivity-agent", "CN=konnectivity-agent-control-plane")
    assert not allows("", "CN=konnectivity-agent", rules="")


def test_a_comment_begins_with_a_word_of_its_own() -> None:
    assert allows("host=b", "CN=a#1", rules="CN=a#1 host=b #host=c")
    assert not allows("host=b", "CN=a", rules="CN=a#1 host=b")
    assert not allows("host=c", "CN=a#1", rules="CN=a#1 host=b #host=c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("konnectivity-agent default-route=true", "line 1: 'konnectivity-agent' is not an identity"),
        ("\nCN= *", "line 2: 'CN=' is not an identity"),
        ("CN=a default-route=yes", "'default-route=yes' is not an identifier"),
        ("CN=a ipv4=", "'ipv4=' is not an identifier"),
        ("CN=a cidr=10.0.0.0", "'10.0.0.0' is not a network"),
        ("CN=a everything", "'everything' is not an identifier"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="line") as refused:
        parse_agent_rules(text)
    assert words in str(refused.value)


@given(st.text())
def test_any_text_is_rules_or_is_refused(text: str) -> None:
    try:
        rules: AgentRules | str = parse_agent_rules(text)
    except ValueError as error:
        rules = str(error)
    assert isinstance(rules, AgentRules) or rules.startswith("line ")


@given(st.text(max_size=200))
def test_whatever_an_agent_announces_is_judged(text: str) -> None:
    try:
        identifiers = parse_agent_identifiers(text)
    except MetadataRefused:
        return
    rules = parse_agent_rules("CN=a default-route=true")
    allowed = rules.refusal(("CN=a",), identifiers) == ""
    named = [value for value in (*identifiers.ipv4, *identifiers.ipv6, *identifiers.host) if value]
    assert allowed == (not named and not identifiers.cidr)


@pytest.mark.parametrize("name", ["konnectivity-agent", "konnectivity-agent-control-plane"])
def test_an_agents_certificate_asks_for_no_tunnels(name: str) -> None:
    assert "agent's certificate" in client_refusal((f"CN={name}",), ())
    assert client_refusal((f"CN={name}",), (f"CN={name}",)) == ""


def test_every_other_client_may_ask_unless_names_are_given() -> None:
    assert client_refusal(("CN=kube-apiserver", "O=konnectivity-agent"), ()) == ""
    assert client_refusal((), ()) == ""
    assert client_refusal(("O=system:masters", "URI=spiffe://a"), ("URI=spiffe://a",)) == ""
    assert "CN=kube-apiserver may not" in client_refusal(("CN=kube-apiserver",), ("CN=konnectivity-client",))
    assert "none may not" in client_refusal((), ("CN=konnectivity-client",))


def test_identities_are_written_with_commas() -> None:
    assert parse_identities(" CN=a, URI=spiffe://b ,") == ("CN=a", "URI=spiffe://b")
    assert parse_identities("") == ()
    with pytest.raises(ValueError, match="is not an identity"):
        parse_identities("CN=a,b")


def refusal_of(function: object, *arguments: object) -> str:
    assert callable(function)
    with pytest.raises(MetadataRefused) as caught:
        function(*arguments)
    return caught.value.text


EVERYTHING = "host=a&host=b&ipv4=1.2.3.4&ipv6=%3A%3A1&ipv6=fe80::1&cidr=10.0.0.0/8&default-route=true"


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        (EVERYTHING, AgentIdentifiers(("1.2.3.4",), ("::1", "fe80::1"), ("a", "b"), ("10.0.0.0/8",), True)),
        ("", AgentIdentifiers()),
        ("&&", AgentIdentifiers()),
        ("host=a+b&host", AgentIdentifiers(host=("a b", ""))),
        ("uid=1&host=a", AgentIdentifiers(host=("a",))),
    ],
    ids=["repeats in order", "none", "empty ones", "plus is a space, no equals is empty", "unknown to a server"],
)
def test_identifiers_are_read_as_go_reads_a_query(text: str, identifiers: AgentIdentifiers) -> None:
    assert metadata.parse_agent_identifiers(text) == identifiers


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_spellings_of_true_make_a_default_route(text: str) -> None:
    assert metadata.parse_agent_identifiers(f"default-route={text}").default_route


@pytest.mark.parametrize("text", ["", "0", "f", "tRUE", "yes", "2", "false&default-route=true"])
def test_anything_else_is_no_default_route_and_only_the_first_counts(text: str) -> None:
    assert not metadata.parse_agent_identifiers(f"default-route={text}").default_route


def test_the_agent_refuses_unknown_types() -> None:
    assert refusal_of(metadata.check_agent_identifiers, "uid=1&host=a") == "unknown address type: uid"
    metadata.check_agent_identifiers("host=a&ipv4=x&ipv6=y&cidr=z&default-route=w")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("host=a;host=b", "invalid semicolon separator in query"),
        ("host=%zz", 'invalid URL escape "%zz"'),
        ("host=%4", 'invalid URL escape "%4"'),
        ("%=a", 'invalid URL escape "%"'),
        ("host=%zz&a;b", "invalid semicolon separator in query"),
        ("a;b&host=%zz", "invalid semicolon separator in query"),
        ("host=%zz&host=%yy", 'invalid URL escape "%zz"'),
        ("&" * 10_000, "number of URL query parameters exceeded limit"),
    ],
)
def test_bad_encoding_is_refused_with_the_words_of_go(text: str, fault: str) -> None:
    assert refusal_of(metadata.parse_agent_identifiers, text) == f"fail to parse url encoded string: {fault}"
    assert refusal_of(metadata.check_agent_identifiers, text) == fault


def test_agent_hello_reads_what_our_agent_sends() -> None:
    hello = metadata.agent_hello(metadata.agent_hello_headers("a1", "host=x", "secret\n"))
    assert hello == metadata.AgentHello("a1", AgentIdentifiers(host=("x",)), ("Bearer secret\n",), True, True)


def test_agent_hello_without_a_token_has_no_authorization() -> None:
    headers = metadata.agent_hello_headers("a1", "", None)
    assert metadata.AUTHORIZATION not in dict(headers)
    assert (metadata.AGENT_IDENTIFIERS, b"") in headers


def test_an_upstream_agent_does_not_understand_pause() -> None:
    hello = metadata.agent_hello([(b"agentid", b"a1"), (b"user-agent", b"grpc-go/1.83.0")])
    assert hello == metadata.AgentHello("a1", AgentIdentifiers(), (), False, program="grpc-go/1.83.0")


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([], "expected one agent ID in the context, got []"),
        ([(b"agentid", b"a"), (b"agentid", b"b")], "expected one agent ID in the context, got [a b]"),
        (
            [(b"agentid", b"a"), (b"agentidentifiers", b"host=x"), (b"agentidentifiers", b"")],
            "expected at most one set of agent identifiers in the context, got [host=x ]",
        ),
        (
            [(b"agentid", b"a"), (b"agentidentifiers", b";")],
            "fail to parse url encoded string: invalid semicolon separator in query",
        ),
    ],
)
def test_agent_hello_refuses_with_the_words_of_upstream(headers: metadata.Headers, text: str) -> None:
    assert refusal_of(metadata.agent_hello, headers) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "Authentication context was not found in metadata"),
        (["Bearer a", "Bearer b"], "too many (2) tokens are received"),
        (["bearer a"], 'received token does not have "Bearer " prefix'),
    ],
)
def test_a_bearer_token_is_exactly_one_value_with_the_prefix(values: list[str], text: str) -> None:
    assert refusal_of(metadata.bearer_token, values) == text
    assert metadata.bearer_token(["Bearer  x\n"]) == " x\n"


def counted(*counts: bytes) -> metadata.Headers:
    return [(b"serverid", b"s"), *((b"servercount", count) for count in counts)]


@pytest.mark.parametrize(
    ("headers", "hello"),
    [
        (metadata.server_hello_headers("s1", 3), metadata.ServerHello("s1", 3, True, True)),
        (counted(b"+2"), metadata.ServerHello("s", 2, False)),
        (counted(b"-4"), metadata.ServerHello("s", -4, False)),
    ],
    ids=["ours", "upstream's, which knows no pause", "negative as go reads it"],
)
def test_server_hello_reads_what_servers_send(headers: metadata.Headers, hello: metadata.ServerHello) -> None:
    assert metadata.server_hello(headers) == hello


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([], "expected one server ID in the context, got []"),
        ([(b"serverid", b"a"), (b"serverid", b"b")], "expected one server ID in the context, got [a b]"),
        (counted(), "expected one server count, got 0"),
        (counted(b"1", b"1"), "expected one server count, got 2"),
        (counted(b"x"), 'strconv.Atoi: parsing "x": invalid syntax'),
        (counted(b""), 'strconv.Atoi: parsing "": invalid syntax'),
        (counted(b" 1"), 'strconv.Atoi: parsing " 1": invalid syntax'),
        (counted(b"9223372036854775808"), 'strconv.Atoi: parsing "9223372036854775808": value out of range'),
    ],
)
def test_server_hello_refuses_with_the_words_of_upstream(headers: metadata.Headers, text: str) -> None:
    assert refusal_of(metadata.server_hello, headers) == text


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", (4, 8, 10)),
        ("10.1.2.3/8", (4, 8, 10)),
        ("0.0.0.0/0", (4, 0, 0)),
        ("10.0.0.1/32", (4, 32, 0x0A000001)),
        ("fd00::/8", (6, 8, 0xFD)),
        ("::/0", (6, 0, 0)),
        ("::1/128", (6, 128, 1)),
        ("::ffff:10.0.0.0/104", (4, 8, 10)),
        ("::ffff:0.0.0.0/96", (4, 0, 0)),
        ("::ffff:10.0.0.0/95", (6, 95, 0xFFFF >> 1)),
    ],
)
def test_a_network_is_its_version_and_prefix(text: str, network: tuple[int, int, int]) -> None:
    assert parse_network(text) == network


NO_NETWORKS = [
    "", "/", "/8", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8/8",
    "10.0.0.0/255.0.0.0", "10.0.0.0/\u0668", "10.0.0/8", "010.0.0.0/8", "fd00::/129", "fd00::/9999999999",
    "fe80::%eth0/64", "example.com/8", "\u0661.0.0.0/8",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NETWORKS)
def test_anything_else_is_no_network(text: str) -> None:
    assert parse_network(text) is None


@given(st.text())
def test_no_text_breaks_the_reader_or_the_search(text: str) -> None:
    table = NetworkTable()
    table.group((4, 8, 10))
    parse_network(text)
    parse_network(f"{text}/8")
    table.find(text)


V4 = st.builds(lambda bits, length: (4, length, bits >> (32 - length)), st.integers(0, 2**32 - 1), st.integers(0, 32))
V6 = st.builds(
    lambda bits, length: (6, length, bits >> (128 - length)), st.integers(0, 2**128 - 1), st.integers(0, 128)
)


def as_network(network: tuple[int, int, int]) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    version, length, prefix = network
    if version == 4:
        return ipaddress.IPv4Network((prefix << (32 - length), length))
    return ipaddress.IPv6Network((prefix << (128 - length), length))


@given(st.lists(V4 | V6, max_size=30), st.ip_addresses(), st.data())
def test_the_longest_prefix_that_holds_the_address_is_found(
    networks: list[tuple[int, int, int]], address: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject
) -> None:
    is_inside = data.draw(st.booleans())
    if networks and is_inside:  # else hardly any network would ever hold the address
        address = data.draw(st.sampled_from([as_network(network)[0] for network in networks]))
    table = NetworkTable()
    groups = {network: table.group(network) for network in networks}
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    holding = [network for network in groups if address in as_network(network)]
    found = table.find(str(address))
    if holding:
        assert found is groups[max(holding, key=lambda network: network[1])]
    else:
        assert found is None


@given(st.lists(V4 | V6, max_size=20))
def test_networks_without_agents_are_forgotten(networks: list[tuple[int, int, int]]) -> None:
    table = NetworkTable()
    for network in networks:
        table.group(network)
    assert table.count == len(set(networks))
    for network in networks * 2:
        table.forget_if_empty(network)
    assert table.count == 0
    assert table.find("10.0.0.1") is None


def test_ipv4_in_the_clothes_of_ipv6_is_ipv4_and_no_other_ipv6_network_holds_it() -> None:
    table = NetworkTable()
    all_of_six = table.group((6, 0, 0))
    assert table.find("10.0.0.1") is None
    assert table.find("::ffff:10.0.0.1") is None
    ten = table.group((4, 8, 10))
    assert table.find("::ffff:10.0.0.1") is ten
    assert table.find("::ffff:a00:1") is ten
    assert table.find("fe80::1%eth0") is all_of_six


@pytest.mark.parametrize(
    ("outer", "inner", "holds"),
    [
        ("10.0.0.0/8", "10.1.0.0/16", True),
        ("10.0.0.0/8", "10.0.0.0/8", True),
        ("10.0.0.0/8", "10.0.0.0/7", False),
        ("10.0.0.0/8", "11.0.0.0/16", False),
        ("0.0.0.0/0", "1.2.3.4/32", True),
        ("::/0", "1.2.3.4/32", False),
        ("fd00::/8", "fd12::/16", True),
    ],
)
def test_a_network_covers_those_within_it(outer: str, inner: str, holds: bool) -> None:
    first, second = parse_network(outer), parse_network(inner)
    assert first is not None
    assert second is not None
    assert covers(first, second) is holds
