"""NO_PROXY as Go reads it. The table was checked line by line against golang.org/x/net/http/httpproxy v0.55.0."""

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.dialer.settings import DialerSettings
from umbilical.fault import StartupError
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.proxies.proxy_rules import (
    LOOK_SECONDS,
    NoProxy,
    ProxyRules,
    UserProxyRules,
    read_rules,
    rules_of_environment,
)
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings

MATCHES = [
    # A name: itself and its subdomains.
    ("foo.com", "foo.com", 443),
    ("foo.com", "www.foo.com", 443),
    ("FOO.com", "www.Foo.COM", 443),
    (" foo.com , bar.org", "bar.org", 443),
    ("com", "foo.com", 443),
    # Only its subdomains.
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
    # IPv4-mapped IPv6.
    ("10.0.0.0/8", "::ffff:10.1.2.3", 443),
    ("::ffff:10.0.0.0/104", "10.1.2.3", 443),
    ("::ffff:10.1.2.3", "10.1.2.3", 443),
    # Everything.
    ("*", "foo.com", 443),
    ("bar.org,*", "10.1.2.3", 443),
    # This machine, in spite of the list.
    ("", "localhost", 443),
    ("", "127.0.0.1", 443),
    ("", "127.9.9.9", 443),
    ("", "::1", 443),
    ("", "::ffff:127.0.0.1", 443),
    # Names with non-ASCII characters, on either side.
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
    # An address does not match a name, and a name is never resolved.
    ("3", "10.1.2.3", 443),
    ("10.0.0.0/8", "ten.example", 443),
    # Only this spelling is accepted, as in Go.
    ("", "LOCALHOST", 443),
    ("", "localhost.", 443),
    # An entry without a host is ignored.
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


def chosen(environment: dict[str, str], host: str = "ec2.amazonaws.com", port: int = 443) -> str:
    return str(rules_of_environment(environment).proxy_for("https", host, port) or "")


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://up.example:3128"}, "http://up.example:3128"),
        ({"https_proxy": "http://low.example:3128"}, "http://low.example:3128"),
        ({"HTTPS_PROXY": "http://up.example:1", "https_proxy": "http://low.example:2"}, "http://up.example:1"),
        ({"HTTPS_PROXY": "", "https_proxy": "http://low.example:2"}, "http://low.example:2"),
        ({"HTTP_PROXY": "http://plain.example:3128"}, ""),
        ({"HTTPS_PROXY": "proxy.example:3128"}, "http://proxy.example:3128"),
        ({"HTTPS_PROXY": "https://proxy.example"}, "https://proxy.example:443"),
    ],
)
def test_upper_case_goes_before_lower_case_and_a_scheme_may_be_missing(environment: dict[str, str], proxy: str) -> None:
    assert chosen(environment) == proxy


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy_is_honoured_in_both_spellings(name: str) -> None:
    environment = {"HTTPS_PROXY": "http://up.example:3128", name: ".amazonaws.com"}
    assert chosen(environment) == ""
    assert chosen(environment, "login.microsoftonline.com") == "http://up.example:3128"


def test_a_value_that_is_no_url_means_no_proxy_and_is_told_without_being_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert chosen({"HTTPS_PROXY": "http://me:s3cret@proxy.example:port"}) == ""
    assert "HTTPS_PROXY is invalid" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_proxy_of_another_kind_is_refused_at_the_start() -> None:
    with pytest.raises(StartupError) as caught:
        chosen({"https_proxy": "socks5://me:s3cret@proxy.example:1080"})
    assert caught.value.code == "UMB532"
    assert "s3cret" not in f"{caught.value} {caught.value.remedy}"


def test_each_scheme_has_its_own_proxy_and_both_have_the_same_exceptions() -> None:
    rules = ProxyRules(ProxyUrl("http", "a", 80), ProxyUrl("http", "b", 80), "foo.com:443")
    assert [str(rules.proxy_for(scheme, "bar.com", 443)) for scheme in ("http", "https")] == [
        "http://a:80",
        "http://b:80",
    ]
    assert rules.proxy_for("https", "foo.com", 443) is None
    assert rules.proxy_for("http", "foo.com", 80) is not None
    assert rules.proxy_for("ftp", "foo.com", 21) is None
    assert [proxy.host for proxy in rules.proxies] == ["a", "b"]


def settings(**values: Any) -> HttpsSettings:
    return HttpsSettings(ListenerSettings(()), OutboundSettings(DialerSettings(())), **values)


def test_each_scheme_has_its_own_proxy() -> None:
    rules = read_rules(settings(http_proxy="http://p1:3128", https_proxy="https://u:p%40ss%3Aw@p2"))
    assert rules.proxy_for("http", "a", 80) == ProxyUrl("http", "p1", 3128)
    assert rules.proxy_for("https", "a", 443) == ProxyUrl("https", "p2", 443, "u", "p@ss:w")


def test_credentials_of_a_file_are_for_urls_that_have_none(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text("user:p@ss:word%41\n")
    rules = read_rules(settings(http_proxy="http://p1", https_proxy="http://me:mine@p2", proxy_credentials=login))
    assert rules.proxy_for("http", "a", 80) == ProxyUrl("http", "p1", 80, "user", "p@ss:word%41")
    assert rules.proxy_for("https", "a", 443) == ProxyUrl("http", "p2", 80, "me", "mine")


@pytest.mark.parametrize("content", [b"only-a-password", b"", b":x", b"a:b\nc:d\n", b"\xff:x"])
def test_a_file_that_cannot_be_used_keeps_it_from_starting_and_is_not_shown(tmp_path: Path, content: bytes) -> None:
    login = tmp_path / "login"
    login.write_bytes(content)
    with pytest.raises(StartupError) as fault:
        UserProxyRules(settings(http_proxy="http://p", proxy_credentials=login))
    assert fault.value.code == "UMB548"
    assert "only-a-password" not in str(fault.value)


def test_an_empty_file_is_no_proxy(tmp_path: Path) -> None:
    url = tmp_path / "HTTP_PROXY"
    url.write_text("\n")
    assert read_rules(settings(http_proxy_file=url)).proxy_for("http", "a", 80) is None


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, now = tmp_path / "HTTPS_PROXY", 100.0
    url.write_text("http://u:old@p1:1\n")
    watched = UserProxyRules(settings(https_proxy_file=url), lambda: now)

    def host() -> str:
        proxy = watched.rules().proxy_for("https", "a", 443)
        assert proxy is not None
        return proxy.host

    assert host() == "p1"
    url.write_text("http://u:secret@p2.example:1\n")
    assert host() == "p1"  # the file was not checked yet
    now += LOOK_SECONDS
    with caplog.at_level("INFO"):
        assert host() == "p2.example"
        url.write_text("socks5://u:secret@p3-is-longer\n")
        now += LOOK_SECONDS
        assert host() == "p2.example"
    assert "http://p2.example:1" in caplog.text
    assert "UMB532" in caplog.text
    assert "secret" not in caplog.text
