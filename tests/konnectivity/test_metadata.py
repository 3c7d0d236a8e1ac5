import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity import metadata
from umbilical.konnectivity.metadata import AgentIdentifiers, MetadataRefused


def refusal_of(function: object, *arguments: object) -> str:
    assert callable(function)
    with pytest.raises(MetadataRefused) as caught:
        function(*arguments)
    return caught.value.text


def test_identifiers_accumulate_repeats_in_order() -> None:
    parsed = metadata.parse_agent_identifiers(
        "host=a&host=b&ipv4=1.2.3.4&ipv6=%3A%3A1&ipv6=fe80::1&cidr=10.0.0.0/8&default-route=true"
    )
    assert parsed == AgentIdentifiers(("1.2.3.4",), ("::1", "fe80::1"), ("a", "b"), ("10.0.0.0/8",), True)


def test_empty_identifiers_say_nothing() -> None:
    assert metadata.parse_agent_identifiers("") == AgentIdentifiers()
    assert metadata.parse_agent_identifiers("&&") == AgentIdentifiers()


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_spellings_of_true_make_a_default_route(text: str) -> None:
    assert metadata.parse_agent_identifiers(f"default-route={text}").default_route


@pytest.mark.parametrize("text", ["", "0", "f", "tRUE", "yes", "2"])
def test_anything_else_is_no_default_route(text: str) -> None:
    assert not metadata.parse_agent_identifiers(f"default-route={text}").default_route


def test_only_the_first_default_route_counts() -> None:
    assert not metadata.parse_agent_identifiers("default-route=false&default-route=true").default_route


def test_plus_is_a_space_and_a_key_without_equals_has_an_empty_value() -> None:
    assert metadata.parse_agent_identifiers("host=a+b&host").host == ("a b", "")


def test_the_server_ignores_unknown_types_and_the_agent_refuses_them() -> None:
    assert metadata.parse_agent_identifiers("uid=1&host=a") == AgentIdentifiers(host=("a",))
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


@given(st.text())
def test_any_text_is_parsed_or_lawfully_refused(text: str) -> None:
    try:
        metadata.parse_agent_identifiers(text)
    except MetadataRefused:
        pass


def test_agent_hello_reads_what_our_agent_sends() -> None:
    hello = metadata.agent_hello(metadata.agent_hello_headers("a1", "host=x", "secret\n"))
    assert hello == metadata.AgentHello("a1", AgentIdentifiers(host=("x",)), ("Bearer secret\n",), True, True)


def test_agent_hello_without_a_token_has_no_authorization() -> None:
    headers = metadata.agent_hello_headers("a1", "", None)
    assert metadata.AUTHORIZATION not in dict(headers)
    assert (metadata.AGENT_IDENTIFIERS, b"") in headers


def test_an_upstream_agent_does_not_understand_pause() -> None:
    hello = metadata.agent_hello([(b"agentid", b"a1"), (b"user-agent", b"grpc-go/1.83.0")])
    assert hello == metadata.AgentHello("a1", AgentIdentifiers(), (), False)


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


def test_server_hello_reads_what_our_server_sends() -> None:
    assert metadata.server_hello(metadata.server_hello_headers("s1", 3)) == metadata.ServerHello("s1", 3, True, True)


def test_an_upstream_server_does_not_understand_pause() -> None:
    hello = metadata.server_hello([(b"serverid", b"s"), (b"servercount", b"+2")])
    assert hello == metadata.ServerHello("s", 2, False)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([], "expected one server ID in the context, got []"),
        ([(b"serverid", b"a"), (b"serverid", b"b")], "expected one server ID in the context, got [a b]"),
        ([(b"serverid", b"a")], "expected one server count, got 0"),
        (
            [(b"serverid", b"a"), (b"servercount", b"1"), (b"servercount", b"1")],
            "expected one server count, got 2",
        ),
        ([(b"serverid", b"a"), (b"servercount", b"x")], 'strconv.Atoi: parsing "x": invalid syntax'),
        ([(b"serverid", b"a"), (b"servercount", b"")], 'strconv.Atoi: parsing "": invalid syntax'),
        ([(b"serverid", b"a"), (b"servercount", b" 1")], 'strconv.Atoi: parsing " 1": invalid syntax'),
        (
            [(b"serverid", b"a"), (b"servercount", b"9223372036854775808")],
            'strconv.Atoi: parsing "9223372036854775808": value out of range',
        ),
    ],
)
def test_server_hello_refuses_with_the_words_of_upstream(headers: metadata.Headers, text: str) -> None:
    assert refusal_of(metadata.server_hello, headers) == text


def test_a_negative_server_count_is_read_as_go_reads_it() -> None:
    assert metadata.server_hello([(b"serverid", b"s"), (b"servercount", b"-4")]).server_count == -4
