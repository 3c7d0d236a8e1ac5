"""Rules of identity: what an agent may announce, who may ask for tunnels, and how the rules are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity.identity import AgentRules, client_refusal, parse_agent_rules, parse_identities
from umbilical.konnectivity.metadata import AgentIdentifiers, MetadataRefused, parse_agent_identifiers

NODES = "CN=konnectivity-agent default-route=true"
CONTROL_PLANE = "CN=konnectivity-agent-control-plane ipv4=172.30.1.5 ipv4=fd02::5 cidr=10.0.0.0/8"
RULES = f"# who may be what\n\n{NODES}  # all nodes\n{CONTROL_PLANE}\nSA=kube-system/agent host=node-1\nO=trusted *\n"


def allows(announced: str, *proved: str, rules: str = RULES) -> bool:
    return parse_agent_rules(rules).refusal(proved, parse_agent_identifiers(announced)) == ""


@pytest.mark.parametrize(
    ("announced", "proved"),
    [
        ("", "CN=konnectivity-agent"),
        ("default-route=true", "CN=konnectivity-agent"),
        ("ipv4=172.30.1.5", "CN=konnectivity-agent-control-plane"),
        ("ipv4=172.30.1.5&ipv4=fd02::5", "CN=konnectivity-agent-control-plane"),
        ("ipv6=fd02::5", "CN=konnectivity-agent-control-plane"),
        ("ipv4=10.1.2.3", "CN=konnectivity-agent-control-plane"),
        ("cidr=10.64.0.0/10", "CN=konnectivity-agent-control-plane"),
        ("ipv4=", "CN=konnectivity-agent-control-plane"),
        ("host=node-1", "SA=kube-system/agent"),
        ("default-route=true&ipv4=1.2.3.4&cidr=0.0.0.0/0", "O=trusted"),
    ],
)
def test_an_agent_may_announce_what_its_identity_allows(announced: str, proved: str) -> None:
    assert allows(announced, proved)


@pytest.mark.parametrize(
    ("announced", "proved"),
    [
        ("ipv4=172.30.1.5", "CN=konnectivity-agent"),
        ("default-route=true&ipv4=172.30.1.5", "CN=konnectivity-agent"),
        ("default-route=true", "CN=konnectivity-agent-control-plane"),
        ("ipv4=172.30.1.6", "CN=konnectivity-agent-control-plane"),
        ("cidr=0.0.0.0/0", "CN=konnectivity-agent-control-plane"),
        ("cidr=10.0.0.0/7", "CN=konnectivity-agent-control-plane"),
        ("cidr=fd00::/8", "CN=konnectivity-agent-control-plane"),
        ("cidr=nonsense", "CN=konnectivity-agent-control-plane"),
        ("host=node-2", "SA=kube-system/agent"),
        ("", "CN=somebody"),
        ("", "DNS=konnectivity-agent"),
    ],
)
def test_an_agent_may_not_announce_more(announced: str, proved: str) -> None:
    assert not allows(announced, proved)


def test_the_refusal_names_the_identifier_and_an_unknown_agent_its_identity() -> None:
    rules = parse_agent_rules(NODES)
    told = rules.refusal(("CN=konnectivity-agent",), AgentIdentifiers(ipv4=("172.30.1.5",)))
    assert told == "the identity of this agent does not allow the identifier ipv4=172.30.1.5"
    assert "CN=x, O=y" in rules.refusal(("CN=x", "O=y"), AgentIdentifiers())
    assert "none" in rules.refusal((), AgentIdentifiers())


def test_one_of_several_identities_is_enough() -> None:
    assert allows("ipv4=172.30.1.5", "CN=konnectivity-agent", "CN=konnectivity-agent-control-plane")


def test_a_comment_begins_with_a_word_of_its_own() -> None:
    assert allows("host=b", "CN=a#1", rules="CN=a#1 host=b #host=c")
    assert not allows("host=b", "CN=a", rules="CN=a#1 host=b")
    assert not allows("host=c", "CN=a#1", rules="CN=a#1 host=b #host=c")


def test_no_rules_let_nobody_in() -> None:
    assert not allows("", "CN=konnectivity-agent", rules="")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("konnectivity-agent default-route=true", "line 1: 'konnectivity-agent' is no identity"),
        ("\nCN= *", "line 2: 'CN=' is no identity"),
        ("CN=a default-route=yes", "'default-route=yes' is no identifier"),
        ("CN=a ipv4=", "'ipv4=' is no identifier"),
        ("CN=a cidr=10.0.0.0", "'10.0.0.0' is no network"),
        ("CN=a everything", "'everything' is no identifier"),
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
    with pytest.raises(ValueError, match="is no identity"):
        parse_identities("CN=a,b")
