"""The address in a lease: what is written is read again, and nothing else is taken for one."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.cluster.published_address import format_address, parse_address

_LABEL = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=1, max_size=20)
_HOSTS = st.one_of(st.lists(_LABEL, min_size=1, max_size=5).map(".".join), st.ip_addresses().map(str))


@given(_HOSTS, st.integers(1, 65535))
def test_what_is_written_is_read_again(host: str, port: int) -> None:
    assert parse_address(format_address(host, port)) == (host, port)


@given(st.one_of(st.text(), st.binary(), st.none(), st.integers(), st.from_regex(r"\[?.{0,9}\]?:[0-9]{0,6}")))
def test_anything_else_is_an_address_or_nothing(text: object) -> None:
    found = parse_address(text)
    if found is not None:
        host, port = found
        assert host
        assert 0 < port <= 65535
        assert parse_address(format_address(host, port)) == found


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.9:8091", ("10.0.0.9", 8091)),
        ("server-1.example:1", ("server-1.example", 1)),
        ("[fd00::7]:8091", ("fd00::7", 8091)),
        ("fd00::7:8091", None),
        ("10.0.0.9", None),
        ("10.0.0.9:", None),
        ("10.0.0.9:0", None),
        ("10.0.0.9:65536", None),
        ("10.0.0.9:8091 ", None),
        ("a/b:1", None),
        ("[10.example]:1", None),
        (":8091", None),
        ("a" * 400 + ":1", None),
        ("", None),
        (None, None),
    ],
)
def test_addresses_have_a_host_and_a_port(text: object, address: tuple[str, int] | None) -> None:
    assert parse_address(text) == address


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert format_address(str(ipaddress.ip_address("fd00::7")), 1) == "[fd00::7]:1"
