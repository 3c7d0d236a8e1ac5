"""Routes of plain requests."""

from umbilical.proxies.http_ways import Route
from umbilical.proxies.proxy_connect import ProxyUrl


def test_connections_are_kept_for_the_same_host_and_port_and_kind() -> None:
    proxy = ProxyUrl("http", "a", 80)
    assert Route("A.example", 80).key == Route("a.EXAMPLE", 80).key
    assert len({Route("a", 80).key, Route("a", 81).key, Route("b", 80).key, Route("a", 80, proxy).key}) == 4
    assert Route("a", 80, proxy).key != Route("a", 80, ProxyUrl("https", "a", 80)).key


def test_a_proxy_is_shown_the_credentials_of_its_url_and_nobody_else() -> None:
    proxy = ProxyUrl("http", "p", 3128, "user", "p@ss")
    assert Route("p", 3128, proxy).fields == [(b"Proxy-Authorization", b"Basic dXNlcjpwQHNz")]
    assert Route("p", 3128, ProxyUrl("http", "p", 3128)).fields == []
    assert Route("p", 3128).fields == []


def test_a_routes_text_shows_no_credentials() -> None:
    assert "p@ss" not in repr(Route("p", 3128, ProxyUrl("http", "p", 3128, "user", "p@ss")))
