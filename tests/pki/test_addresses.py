"""Addresses as users write them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.pki.addresses import usable_address, usable_addresses
from umbilical.pki.errors import PkiError
from umbilical.pki.profiles import split_names


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.9", "10.0.0.9"),
        (" 10.0.0.9 ", "10.0.0.9"),
        ("2001:DB8:0:0::9", "2001:db8::9"),
        ("[2001:db8::9]", "2001:db8::9"),
        ("::ffff:10.0.0.9", "::ffff:10.0.0.9"),
        ("API.Example.com.", "api.example.com"),
        ("*.example.com", "*.example.com"),
        ("bootstrap-0", "bootstrap-0"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_an_address_is_brought_into_its_plain_form(text: str, plain: str) -> None:
    assert ipaddress_or_text(usable_address(text)) == ipaddress_or_text(plain)


def ipaddress_or_text(text: str) -> object:
    names, addresses = split_names([text])
    return names or addresses


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.0.9:8091", "port"),
        ("[::1]:8091", "port"),
        ("api.example.com:", "port"),
        ("[10.0.0.9]", "no IPv6 address"),
        ("[api.example.com]", "no IPv6 address"),
        ("2001:db8::g", "no IPv6 address"),
        ("fe80::1%eth0", "zone"),
        ("10.0.0", "ends in a number"),
        ("10.0.0.256", "ends in a number"),
        ("0.0.0.0", "nobody can connect"),
        ("::", "nobody can connect"),
        ("224.0.0.1", "nobody can connect"),
        ("null", "jq"),
        ("", "neither an address nor a host name"),
        ("a b", "neither an address nor a host name"),
        ("under_score", "neither an address nor a host name"),
        ("a.*.example", "neither an address nor a host name"),
        ("https://a.example", "neither an address nor a host name|no IPv6"),
        ("bücher.example", "ASCII"),
        ("a." * 127 + "example", "neither an address nor a host name"),
    ],
)
def test_what_can_be_in_no_certificate_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(PkiError, match=why) as refused:
        usable_address(text)
    assert refused.value.code == "UMB150"


def test_doubles_are_dropped_and_the_order_kept() -> None:
    assert usable_addresses(["b", "[::1]", "B.", "::0:1", "a"]) == ("b", "::1", "a")


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_every_address_that_can_be_dialled_survives(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    text = f"[{address}]" if address.version == 6 else str(address)
    if address.is_unspecified or address.is_multicast:
        with pytest.raises(PkiError):
            usable_address(text)
    else:
        assert ipaddress.ip_address(usable_address(text)) == address


@given(st.text(max_size=40))
def test_any_text_is_made_plain_once_or_refused(text: str) -> None:
    try:
        plain = usable_address(text)
    except PkiError:
        return
    assert usable_address(plain) == plain
    assert plain.isascii()
