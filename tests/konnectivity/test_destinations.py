import socket

import pytest

from umbilical.konnectivity.destinations import (
    LINK_LOCAL,
    LOOPBACK,
    OTHERS,
    OWN_PORT,
    Destinations,
    parse_destinations,
    parse_rule,
)


def packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def judged(rules: Destinations, address: str, port: int = 443, host: str = "", *, own: bool = False) -> str:
    refusal = rules.refusal(host or address, packed(address), port, is_own_port=own)
    return "" if refusal is None else refusal.kind


def rules(*words: str) -> Destinations:
    """`+RULE` allows, `-RULE` denies."""
    allowed = tuple(word[1:] for word in words if word[0] == "+")
    denied = tuple(word[1:] for word in words if word[0] == "-")
    return parse_destinations(allowed, denied, "")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.0.0.1", ""),
        ("169.254.169.254", LINK_LOCAL),
        ("169.253.255.255", ""),
        ("fe80::1", LINK_LOCAL),
        ("febf::1", LINK_LOCAL),
        ("fec0::1", ""),
        ("127.0.0.1", LOOPBACK),
        ("127.255.0.9", LOOPBACK),
        ("::1", LOOPBACK),
        ("0.0.0.0", LOOPBACK),
        ("::", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("::ffff:0.0.0.0", LOOPBACK),
        ("::ffff:169.254.169.254", LINK_LOCAL),
        ("::ffff:10.0.0.1", ""),
        ("::7f00:1", ""),
    ],
)
def test_our_agent_denies_what_only_its_machine_should_reach(address: str, kind: str) -> None:
    assert judged(rules("-local"), address) == kind
    assert judged(rules(), address) == ""


def test_the_agents_own_ports_are_denied_by_default() -> None:
    assert judged(rules("-local"), "10.0.0.7", 8093, own=True) == OWN_PORT
    assert judged(rules("+10.0.0.7:8093", "-local"), "10.0.0.7", 8093, own=True) == ""


def test_the_address_by_which_clients_test_the_tunnel_is_denied_by_a_rule_only() -> None:
    assert judged(rules("-others", "-local"), "127.0.0.1", 1) == ""
    assert judged(rules("-local"), "127.0.0.1", 2) == LOOPBACK
    assert judged(rules("-local"), "127.0.0.2", 1) == LOOPBACK
    assert judged(rules("-127.0.0.0/8", "-local"), "127.0.0.1", 1) == "rule"


@pytest.mark.parametrize(
    ("words", "address", "port", "host", "kind"),
    [
        (("-10.0.0.0/8",), "10.1.2.3", 443, "", "rule"),
        (("-10.0.0.0/8",), "11.1.2.3", 443, "", ""),
        (("-10.0.0.0/8",), "::ffff:10.1.2.3", 443, "", "rule"),
        (("-127.0.0.0/8",), "0.0.0.0", 443, "", "rule"),
        (("-::1",), "::", 443, "", "rule"),
        (("-::ffff:10.0.0.0/104",), "10.1.2.3", 443, "", "rule"),
        (("-0.0.0.0/0",), "2001:db8::1", 443, "", ""),
        (("-fd00::/8",), "fd00::1", 443, "", "rule"),
        (("-[fd00::/8]:443",), "fd00::1", 443, "", "rule"),
        (("-[fd00::/8]:443",), "fd00::1", 444, "", ""),
        (("-[fd00::1]:443",), "fd00::1", 443, "", "rule"),
        (("-10.0.0.0/8:8000-8999",), "10.0.0.1", 8000, "", "rule"),
        (("-10.0.0.0/8:8000-8999",), "10.0.0.1", 8999, "", "rule"),
        (("-10.0.0.0/8:8000-8999",), "10.0.0.1", 9000, "", ""),
        (("-*:22",), "fd00::1", 22, "", "rule"),
        (("-:22",), "10.0.0.1", 22, "", "rule"),
        (("-*:22",), "10.0.0.1", 23, "", ""),
        (("-others", "+10.0.0.0/8:10250"), "10.0.0.1", 10250, "", ""),
        (("-others", "+10.0.0.0/8:10250"), "10.0.0.1", 10251, "", OTHERS),
        (("-others", "+.svc"), "10.0.0.1", 443, "hook.default.svc", ""),
        (("-others", "+.svc"), "10.0.0.1", 443, "10.0.0.1", OTHERS),
        (("-10.0.0.1", "+10.0.0.0/8"), "10.0.0.1", 443, "", "rule"),
    ],
)
def test_denials_by_rule_come_first_then_permissions_then_the_rest(
    words: tuple[str, ...], address: str, port: int, host: str, kind: str
) -> None:
    assert judged(rules(*words), address, port, host) == kind


def test_a_permission_by_network_opens_what_is_denied_by_default_and_one_by_name_does_not() -> None:
    """A name is what the client says, and its owner chooses the addresses."""
    assert judged(rules("+127.0.0.0/8", "-local"), "127.0.0.1") == ""
    assert judged(rules("+*", "-local"), "169.254.169.254") == ""
    assert judged(rules("+evil.example.com", "-others", "-local"), "127.0.0.1", host="evil.example.com") == LOOPBACK


@pytest.mark.parametrize(
    ("rule", "host", "denied"),
    [
        ("db.example.com", "db.example.com", True),
        ("db.example.com", "DB.Example.com.", True),
        ("db.example.com", "xdb.example.com", False),
        (".example.com", "db.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        (".example.com", "example.com", False),
        (".example.com", "badexample.com", False),
        ("db.example.com:443", "db.example.com", True),
        ("db.example.com:5432", "db.example.com", False),
    ],
)
def test_a_rule_by_name_judges_what_the_client_asks_for(rule: str, host: str, denied: bool) -> None:
    refusal = rules(f"-{rule}").refusal_of_name(host, 443)
    assert (refusal is not None) == denied
    assert refusal is None or refusal.words == f"rule: deny {rule}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (":", "no port behind the colon"),
        ("10.0.0.0/33", "'10.0.0.0/33' is neither an address nor a network"),
        ("10.0.0.256", "'10.0.0.256' is neither an address nor a network"),
        ("127.1", "'127.1' is neither an address nor a network"),
        ("[fd00::/8", r"write IPv6 with ports as \[ADDRESS/LENGTH\]:PORT"),
        ("[fd00::1]443", r"write IPv6 with ports as \[ADDRESS/LENGTH\]:PORT"),
        ("10.0.0.1:", "no port behind the colon"),
        ("10.0.0.1:0", "'0' is neither a port nor a range"),
        ("10.0.0.1:65536", "'65536' is neither a port nor a range"),
        ("10.0.0.1:9-8", "'9-8' is neither a port nor a range"),
        ("10.0.0.1:8-", "'8-' is neither a port nor a range"),
        ("a..b", "'a..b' is not a host name"),
        ("*example.com", "'[*]example.com' is not a host name"),
        ("a b", "'a b' is not a host name"),
    ],
)
def test_a_rule_that_says_nothing_clear_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_rule(text)


def test_a_file_adds_its_lines_to_the_rules_of_the_options() -> None:
    lines = "# ours\n\nallow 10.0.0.0/8:443   # webhooks\ndeny others\n"
    found = parse_destinations((), ("10.9.0.0/16",), lines)
    assert judged(found, "10.1.0.1", 443) == ""
    assert judged(found, "10.9.0.1", 443) == "rule"
    assert judged(found, "10.1.0.1", 444) == OTHERS


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("permit 10.0.0.0/8", "line 2: 'permit 10.0.0.0/8' is neither `allow RULE` nor `deny RULE`"),
        ("allow", "line 2: 'allow' is neither"),
        ("deny 10.0.0.0/99", "line 2: '10.0.0.0/99' is neither an address nor a network"),
        ("allow others", "line 2: 'others' can only be denied"),
    ],
)
def test_a_line_that_is_no_rule_is_named_by_its_number(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_destinations((), (), f"deny 10.0.0.1\n{line}\n")
