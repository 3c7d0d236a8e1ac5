"""Who is asked, and in which order."""

import pytest
from tests.proxies.name_scenes import Counts, DnsTunnel, ScriptedServices, TurnedClock, play
from tests.support.dns_server import ScriptedDns

from umbilical.dialer.failure import DialFailed
from umbilical.proxies.dns_servers import DnsServers
from umbilical.proxies.guest_dns import GuestDns
from umbilical.proxies.management_dns import ManagementDns
from umbilical.proxies.resolver import Names
from umbilical.proxies.service_lookup import ServiceLookup
from umbilical.proxies.service_names import ServiceName

CONSOLE = ServiceName("monitoring", "console")


class Scene:
    def __init__(self) -> None:
        clock, counts = TurnedClock(), Counts()
        self.counts = counts
        self.dns = ScriptedDns({("idp.corp.example", "A"): ["60", "10.0.0.1"]})
        self.tunnel = DnsTunnel({"172.30.0.10": self.dns})
        self.api = ScriptedServices({CONSOLE: ("172.30.9.9",)})
        servers = DnsServers((("172.30.0.10", 53),), CONSOLE, None, clock.now)
        self.guest = GuestDns(self.tunnel, servers, "cluster.local", counts, clock.now)
        self.services = ServiceLookup(self.api, "cluster.local", counts, clock.now)
        self.management = ManagementDns(counts, self._ask)

    async def _ask(self, host: str) -> list[str]:
        return ["192.0.2.1"]


def resolved(host: str, *, guest: bool = False, services: bool = False, management: bool = False) -> tuple[str, ...]:
    async def scenario() -> tuple[str, ...]:
        stage = Scene()
        names = Names(
            stage.guest if guest else None,
            stage.services if services else None,
            stage.management if management else None,
        )
        try:
            return await names.resolve(host)
        finally:
            await names.close()
            await stage.tunnel.close()

    return play(scenario())


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7"])
def test_an_address_is_its_own_whoever_could_be_asked(host: str) -> None:
    assert resolved(host, guest=True, services=True, management=True) == (host,)


def test_with_nobody_to_ask_the_name_goes_to_the_agent() -> None:
    assert resolved("idp.corp.example") == ("idp.corp.example",)


def test_a_service_goes_before_dns() -> None:
    assert resolved("console.monitoring.svc", services=True, guest=True) == ("172.30.9.9",)


def test_what_is_no_service_goes_on_to_guest_dns() -> None:
    assert resolved("idp.corp.example", services=True, guest=True) == ("10.0.0.1",)


def test_guest_dns_has_the_last_word_on_a_name_that_it_does_not_know() -> None:
    with pytest.raises(DialFailed, match="no such name"):
        resolved("nowhere.corp.example", guest=True, management=True)


def test_without_guest_dns_this_machine_is_asked_behind_services() -> None:
    assert resolved("idp.corp.example", services=True, management=True) == ("192.0.2.1",)
    assert resolved("console.monitoring", services=True, management=True) == ("172.30.9.9",)


def test_what_was_learnt_can_be_forgotten() -> None:
    async def scenario() -> None:
        stage = Scene()
        names = Names(stage.guest, None, None)
        await names.resolve("idp.corp.example")
        stage.dns.zone["idp.corp.example", "A"] = ["60", "10.0.0.2"]
        assert await names.resolve("idp.corp.example") == ("10.0.0.1",)
        names.forget("idp.corp.example")
        assert await names.resolve("idp.corp.example") == ("10.0.0.2",)
        Names(None, None, None).forget("idp.corp.example")
        await names.close()
        await stage.tunnel.close()

    play(scenario())
