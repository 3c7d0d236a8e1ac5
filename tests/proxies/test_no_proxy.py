"""NO_PROXY as Go reads it. The table was checked line by line against golang.org/x/net/http/httpproxy v0.55.0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.proxies.no_proxy import NoProxy

MATCHES = [
    # A name, itself and what is under it.
    ("foo.com", "foo.com", 443),
    ("foo.com", "www.foo.com", 443),
    ("FOO.com", "www.Foo.COM", 443),
    (" foo.com , bar.org", "bar.org", 443),
    ("com", "foo.com", 443),
    # Only what is under it.
    (".foo.com", "www.foo.com", 443),
    ("*.foo.com", "a.b.foo.com", 443),
    # Ports.
    ("foo.com:443", "foo.com", 443),
    ("foo.com:", "foo.com", 8443),
    ("*.foo.com:80", "www.foo.com", 80),
    ("10.1.2.3:443", "10.1.2.3", 443),
    ("[fd00::1]:443", "fd00::1", 443),
    # Networks and addresses.
    ("10.0.0.0/8", "10.200.0.1", 443),
    ("10.1.2.3/8", "10.200.0.1", 443),
    ("fd00::/8", "fd00::1", 443),
    ("10.1.2.3", "10.1.2.3", 443),
    ("fd00::1", "fd00::1", 443),
    ("fd00::1", "fd00::1%eth0", 443),
    # IPv4 in IPv6's clothes.
    ("10.0.0.0/8", "::ffff:10.1.2.3", 443),
    ("::ffff:10.0.0.0/104", "10.1.2.3", 443),
    ("::ffff:10.1.2.3", "10.1.2.3", 443),
    # Everything.
    ("*", "foo.com", 443),
    ("bar.org,*", "10.1.2.3", 443),
    # This machine, whatever the list says.
    ("", "localhost", 443),
    ("", "127.0.0.1", 443),
    ("", "127.9.9.9", 443),
    ("", "::1", 443),
    ("", "::ffff:127.0.0.1", 443),
    # Names beyond ASCII, on either side.
    ("bücher.example", "www.xn--bcher-kva.example", 443),
    ("xn--bcher-kva.example", "bücher.example", 443),
]
PASSES = [
    ("", "foo.com", 443),
    ("foo.com", "notfoo.com", 443),
    (".foo.com", "foo.com", 443),
    ("*.foo.com", "foo.com", 443),
    ("foo.com", "foo.com.", 443),
    ("foo.com:443", "foo.com", 80),
    ("foo.com:https", "foo.com", 443),
    ("10.1.2.3:443", "10.1.2.3", 80),
    ("[fd00::1]", "fd00::1", 443),
    ("[fd00::1]x:443", "fd00::1", 443),
    ("fd00::1%eth0", "fd00::1", 443),
    ("10.0.0.0/8", "11.0.0.1", 443),
    ("10.0.0.0/33", "10.0.0.1", 443),
    ("10.0.0.0/255.0.0.0", "10.0.0.1", 443),
    ("010.1.2.3", "10.1.2.3", 443),
    ("::/0", "10.1.2.3", 443),
    ("0.0.0.0/0", "fd00::1", 443),
    # An address is no name, and a name is never resolved.
    ("3", "10.1.2.3", 443),
    ("10.0.0.0/8", "ten.example", 443),
    # Only this spelling is known, as in Go.
    ("", "LOCALHOST", 443),
    ("", "localhost.", 443),
    # Without a host the entry says nothing.
    (":443", "foo.com", 443),
    ("[]:443", "foo.com", 443),
    ("*:443", "foo.com", 443),
    ("a:b:c", "a", 443),
]


@pytest.mark.parametrize(("listed", "host", "port"), MATCHES)
def test_no_proxy_is_used_for_what_the_list_names(listed: str, host: str, port: int) -> None:
    assert NoProxy(listed).matches(host, port)


@pytest.mark.parametrize(("listed", "host", "port"), PASSES)
def test_a_proxy_is_used_for_what_the_list_does_not_name(listed: str, host: str, port: int) -> None:
    assert not NoProxy(listed).matches(host, port)


LABELS = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
NAMES = st.lists(LABELS, min_size=2, max_size=4).map(".".join)
ENTRIES = st.one_of(NAMES, st.text("abc.*:[]/%0123456789- ", max_size=12), st.ip_addresses().map(str))
PORTS = st.integers(1, 65535)


@given(st.lists(ENTRIES).map(",".join), st.one_of(NAMES, st.text(max_size=20), st.ip_addresses().map(str)), PORTS)
def test_any_list_and_any_host_get_an_answer(listed: str, host: str, port: int) -> None:
    assert NoProxy(listed).matches(host, port) in (True, False)


@given(st.lists(ENTRIES.filter(lambda entry: "," not in entry)), NAMES, LABELS, PORTS)
def test_a_listed_domain_holds_itself_and_what_is_under_it(
    others: list[str], domain: str, label: str, port: int
) -> None:
    whole = NoProxy(",".join([*others, domain]))
    assert whole.matches(domain, port)
    assert whole.matches(f"{label}.{domain}", port)
    assert NoProxy(f".{domain}").matches(f"{label}.{domain}", port)
    assert not NoProxy(f".{domain}").matches(domain, port)


@given(st.ip_addresses(), PORTS, PORTS)
def test_an_address_with_a_port_matches_that_port_alone(address: object, port: int, other: int) -> None:
    text = str(address)
    entry = f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
    always = NoProxy("").matches(text, port)
    assert NoProxy(entry).matches(text, port)
    assert NoProxy(entry).matches(text, other) == (always or port == other)
