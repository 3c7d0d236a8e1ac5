"""Targets of requests to a proxy, as tables."""

import pytest

from umbilical.proxies.http_head import BadRequest
from umbilical.proxies.http_target import absolute_target, check_host_field, connect_target

CONNECT = {
    "a:443": ("a", 443),
    "a.b.example:1": ("a.b.example", 1),
    "a.example.:8443": ("a.example.", 8443),
    "10.0.0.1:65535": ("10.0.0.1", 65535),
    "[::1]:443": ("::1", 443),
    "[fd00::10:1]:6443": ("fd00::10:1", 6443),
    "under_score.svc:80": ("under_score.svc", 80),
}
NO_TARGETS = [
    *("", ":443", "a:", "a:0", "a:65536", "a:x", "a:+1", "a:-1", "a: 1", "a:1:2", "::1:443", "::1", "[::1]"),
    *("[::1", "[::1]443", "[a]:443", "[fe80::1%eth0]:1", "[fe80::1%25eth0]:1", "user@a:1", "a/b:1", "a..b:1", ".a:1"),
    *("http://a:1", "a%2e:1", "ä:1", "a?b:1", "a:1/", "x" * 255 + ":1", "a:00000443", "a:4\u0663"),
]


@pytest.mark.parametrize(("text", "place"), CONNECT.items())
def test_connect_names_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    target = connect_target(text)
    assert (target.host, target.port, target.address) == (*place, text)


@pytest.mark.parametrize("text", NO_TARGETS)
def test_anything_else_is_refused_for_connect(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        connect_target(text)
    assert refusal.value.status == 400


def test_a_missing_port_is_refused_with_words_unless_there_is_a_default() -> None:
    with pytest.raises(BadRequest, match="no port"):
        connect_target("a.example")
    assert connect_target("a.example", 80).port == 80
    assert connect_target("[::1]", 80).address == "[::1]:80"
    assert connect_target("a:443", 80).port == 443


URLS = {
    "http://a": ("a", 80, "a", "/"),
    "http://a/": ("a", 80, "a", "/"),
    "HTTP://A.Example/x": ("A.Example", 80, "A.Example", "/x"),
    "http://a:8080/x?y=/z": ("a", 8080, "a:8080", "/x?y=/z"),
    "http://a?q": ("a", 80, "a", "/?q"),
    "http://a:/x": ("a", 80, "a:", "/x"),
    "http://[::1]:81/x": ("::1", 81, "[::1]:81", "/x"),
    "http://a//b/../c;d@e:f": ("a", 80, "a", "//b/../c;d@e:f"),
}


@pytest.mark.parametrize(("text", "parts"), URLS.items())
def test_a_url_names_whom_to_dial_and_what_to_ask(text: str, parts: tuple[str, int, str, str]) -> None:
    target = absolute_target("GET", text)
    assert (target.host, target.port, target.authority, target.path) == parts


NO_URLS = [
    *(
        "/",
        "/x",
        "*",
        "a:443",
        "",
        "http:/a",
        "http://",
        "http:///x",
        "http://user:pw@a/",
        "http://a/#f",
        "http://[::1/",
    ),
    *("ftp://a/", "https://a/", "http://a:b/", "http://a b/", "http://a\\b/", "//a/b", "http://a%00/"),
]


@pytest.mark.parametrize("text", NO_URLS)
def test_what_is_no_url_for_this_proxy_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        absolute_target("GET", text)
    assert refusal.value.status == 400


def test_a_path_alone_is_told_that_this_is_a_proxy_and_https_that_it_needs_connect() -> None:
    with pytest.raises(BadRequest, match="this is a proxy"):
        absolute_target("GET", "/healthz")
    with pytest.raises(BadRequest, match="needs CONNECT"):
        absolute_target("GET", "https://a/")


def test_options_for_a_whole_server_is_asked_as_a_star() -> None:
    assert absolute_target("OPTIONS", "http://a").path == "*"
    assert absolute_target("OPTIONS", "http://a/").path == "/"


def test_a_host_field_is_a_host_or_empty() -> None:
    for good in ("", "a", "a:1", "[::1]:1", "a:"):
        check_host_field(good)
    for bad in ("a b", "a@b", "a/b", "a, b", "[a]"):
        with pytest.raises(BadRequest):
            check_host_field(bad)
