"""Routes of plain requests."""

from umbilical.proxies.http_ways import Route


def test_connections_are_kept_for_the_same_host_and_port_and_kind() -> None:
    assert Route("A.example", 80).key == Route("a.EXAMPLE", 80).key
    assert len({Route("a", 80).key, Route("a", 81).key, Route("b", 80).key, Route("a", 80, is_proxy=True).key}) == 4


def test_credentials_are_not_part_of_a_key() -> None:
    assert Route("p", 1, True, ((b"Proxy-Authorization", b"secret"),)).key == ("p", 1, True)
