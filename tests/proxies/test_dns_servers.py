"""Where the hosted cluster's DNS is found, and found again."""

import pytest
from tests.proxies.name_scenes import ScriptedServices, TurnedClock, play

from umbilical.proxies.dns_lookup import LookupFailed, Result
from umbilical.proxies.dns_servers import DnsServers, Server, parse_servers, parse_service
from umbilical.proxies.service_names import ServiceName
from umbilical.tunnel.errors import StartupError

DNS = ServiceName("openshift-dns", "dns-default")


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("172.30.0.10", ("172.30.0.10", 53)),
        ("172.30.0.10:5353", ("172.30.0.10", 5353)),
        ("fd02::a", ("fd02::a", 53)),
        ("[fd02::a]", ("fd02::a", 53)),
        ("[fd02::a]:5353", ("fd02::a", 5353)),
    ],
)
def test_a_server_is_an_address_with_or_without_a_port(text: str, server: Server) -> None:
    assert parse_servers((text,)) == (server,)


@pytest.mark.parametrize(
    "text",
    ["", "dns.example", "172.30.0.10:", "172.30.0.10:0", "172.30.0.10:65536", "[fd02::a", "[x]:53", "172.30.0.10:dns"],
)
def test_what_is_no_address_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(StartupError) as caught:
        parse_servers((text,))
    assert caught.value.code == "UMB534"
    assert repr(text) in caught.value.what


def test_a_service_is_a_namespace_and_a_name() -> None:
    assert parse_service("openshift-dns/dns-default") == DNS
    for text in ("dns-default", "/dns-default", "openshift-dns/", "a/b/c", ""):
        with pytest.raises(StartupError) as caught:
            parse_service(text)
        assert caught.value.code == "UMB535"


def test_servers_that_are_given_need_no_api() -> None:
    servers = DnsServers((("10.0.0.10", 53),), DNS, None, TurnedClock().now)
    servers.doubt()
    assert play(servers.current()) == (("10.0.0.10", 53),)


def test_the_service_is_asked_for_once_while_its_servers_answer() -> None:
    async def scenario() -> None:
        api, clock = ScriptedServices({DNS: ("172.30.0.10", "fd02::a")}), TurnedClock()
        servers = DnsServers((), DNS, api, clock.now)
        for _ in range(3):
            assert await servers.current() == (("172.30.0.10", 53), ("fd02::a", 53))
            clock.turn(1000)
        assert api.asked == [DNS]

    play(scenario())


def test_after_a_failure_it_is_asked_for_again_but_not_all_the_time() -> None:
    async def scenario() -> None:
        api, clock = ScriptedServices({DNS: ("172.30.0.10",)}), TurnedClock()
        servers = DnsServers((), DNS, api, clock.now)
        await servers.current()
        api.services[DNS] = ("172.30.0.99",)
        servers.doubt()
        assert await servers.current() == (("172.30.0.10", 53),), "it was asked for a moment ago"
        clock.turn(1)
        assert await servers.current() == (("172.30.0.99", 53),)
        assert len(api.asked) == 2

    play(scenario())


def test_an_api_that_goes_leaves_what_was_found_in_use() -> None:
    async def scenario() -> None:
        api, clock = ScriptedServices({DNS: ("172.30.0.10",)}), TurnedClock()
        servers = DnsServers((), DNS, api, clock.now)
        await servers.current()
        api.is_down = True
        servers.doubt()
        clock.turn(1)
        assert await servers.current() == (("172.30.0.10", 53),)

    play(scenario())


def test_an_api_that_is_not_there_yet_is_waited_for_and_named() -> None:
    async def scenario() -> None:
        api, clock = ScriptedServices({DNS: ("172.30.0.10",)}), TurnedClock()
        api.is_down = True
        servers = DnsServers((), DNS, api, clock.now)
        for _ in range(3):
            with pytest.raises(LookupFailed) as caught:
                await servers.current()
            assert caught.value.result is Result.FAILED
            assert caught.value.hop == "Service openshift-dns/dns-default"
            assert "UMB603" in caught.value.text
        assert len(api.asked) == 1
        api.is_down = False
        clock.turn(1)
        assert await servers.current() == (("172.30.0.10", 53),)

    play(scenario())


@pytest.mark.parametrize(("addresses", "words"), [(None, "no such Service"), ((), "no ClusterIP")])
def test_a_service_that_cannot_be_asked_is_told(addresses: tuple[str, ...] | None, words: str) -> None:
    async def scenario() -> None:
        servers = DnsServers(
            (), DNS, ScriptedServices({} if addresses is None else {DNS: addresses}), TurnedClock().now
        )
        with pytest.raises(LookupFailed, match=words):
            await servers.current()

    play(scenario())


def test_without_a_kubeconfig_that_is_the_reason() -> None:
    servers = DnsServers((), DNS, None, TurnedClock().now)
    with pytest.raises(LookupFailed, match="no kubeconfig"):
        play(servers.current())
