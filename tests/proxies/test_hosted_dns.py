"""Name lookups in the hosted cluster's DNS, through the tunnel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.proxies.name_testbed import Counts, DnsTunnel, ScriptedServices, TurnedClock, until
from tests.support.dns_server import Change, ScriptedDns, Zone, cut_short, of_another_name

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.fault import StartupError
from umbilical.proxies import hosted_dns
from umbilical.proxies.hosted_dns import DnsPatience, DnsServers, HostedDns
from umbilical.proxies.lookup import LookupFailed, LookupResult
from umbilical.proxies.services import ServiceName

FIRST, SECOND = "172.30.0.10", "172.30.0.11"
DNS = ServiceName("openshift-dns", "dns-default")
PATIENT = DnsPatience(try_seconds=50.0, lookup_seconds=55.0, grace_seconds=50.0)
HASTY = DnsPatience(try_seconds=0.02, lookup_seconds=55.0, grace_seconds=50.0)
ZONE: Zone = {
    ("idp.corp.example", "A"): ["60", "10.0.0.1", "10.0.0.2"],
    ("idp.corp.example", "AAAA"): ["120", "fd00::1"],
    ("old.corp.example", "A"): ["86400", "10.0.0.3"],
    ("old.corp.example", "minimum"): ["7200"],
    ("alias.corp.example", "CNAME"): ["30", "idp.corp.example."],
    ("half.corp.example", "CNAME"): ["40", "rest.corp.example."],
    ("half.corp.example", "alias-alone"): [],
    ("rest.corp.example", "A"): ["90", "10.0.0.8"],
    ("loop.corp.example", "CNAME"): ["40", "loop2.corp.example."],
    ("loop.corp.example", "alias-alone"): [],
    ("loop2.corp.example", "CNAME"): ["40", "loop.corp.example."],
    ("loop2.corp.example", "alias-alone"): [],
    ("console.monitoring.svc.cluster.local", "A"): ["5", "172.30.9.9"],
    ("example.com", "A"): ["60", "192.0.2.1"],
    ("broken.example", "rcode"): ["SERVFAIL"],
}


class DnsTestbed:
    def __init__(self, patience: DnsPatience = PATIENT, *, servers: int = 1) -> None:
        self.clock = TurnedClock()
        self.counts = Counts()
        self.dns = ScriptedDns(dict(ZONE))
        self.other = ScriptedDns(dict(ZONE))
        self.tunnel = DnsTunnel({FIRST: self.dns, SECOND: self.other})
        given = ((FIRST, 53), (SECOND, 53))[:servers]
        self.answers = 0
        self.hosted = HostedDns(
            self.tunnel,
            DnsServers(given, DNS, None, self.clock.now),
            "cluster.local",
            self.counts,
            self.clock.now,
            patience,
            self._answered,
        )

    def _answered(self) -> None:
        self.answers += 1

    async def resolve(self, host: str) -> set[str]:
        found = await self.hosted.resolve(host)
        assert len(found) == len(set(found))
        return set(found)

    async def failure(self, host: str) -> LookupFailed:
        with pytest.raises(LookupFailed) as caught:
            await self.hosted.resolve(host)
        return caught.value


@asynccontextmanager
async def open_testbed(patience: DnsPatience = PATIENT, servers: int = 1) -> AsyncIterator[DnsTestbed]:
    stage = DnsTestbed(patience, servers=servers)
    yield stage
    await stage.hosted.close()
    await stage.tunnel.close()


async def test_all_addresses_of_both_families_come_over_one_connection_with_edns() -> None:
    async with open_testbed() as stage:
        assert await stage.resolve("IDP.corp.example.") == {"10.0.0.1", "10.0.0.2", "fd00::1"}
        assert await stage.resolve("old.corp.example") == {"10.0.0.3"}
        assert stage.tunnel.dials == [(FIRST, 53)]
        assert sorted(stage.dns.asked[:2]) == [("idp.corp.example", "A"), ("idp.corp.example", "AAAA")]
        assert all(stage.dns.had_edns)
        assert stage.answers == 4
        assert stage.counts.lookups == [("guest", "ok"), ("guest", "ok")]


async def test_an_answer_is_kept_for_its_time_and_no_longer() -> None:
    async with open_testbed() as stage:
        await stage.resolve("idp.corp.example")
        stage.clock.turn(59)
        await stage.resolve("idp.corp.example")
        assert len(stage.dns.asked) == 2
        stage.clock.turn(1)
        stage.dns.zone["idp.corp.example", "A"] = ["60", "10.0.0.99"]
        assert await stage.resolve("idp.corp.example") == {"10.0.0.99", "fd00::1"}
        assert stage.dns.asked[2:] == [("idp.corp.example", "A")], "the other family has a minute left"
        assert stage.counts.lookups == [("guest", "ok"), ("guest", "cached"), ("guest", "ok")]


async def test_no_answer_is_kept_for_long_whatever_its_owner_says() -> None:
    async with open_testbed() as stage:
        await stage.resolve("old.corp.example")
        stage.clock.turn(hosted_dns.LONGEST_ABSENCE_SECONDS)
        await stage.resolve("old.corp.example")
        assert stage.dns.asked[2:] == [("old.corp.example", "AAAA")]
        stage.clock.turn(hosted_dns.LONGEST_KEPT_SECONDS - hosted_dns.LONGEST_ABSENCE_SECONDS)
        await stage.resolve("old.corp.example")
        assert sorted(stage.dns.asked[3:]) == [("old.corp.example", "A"), ("old.corp.example", "AAAA")]


async def test_a_name_that_does_not_exist_is_told_and_remembered_for_the_zones_minimum() -> None:
    async with open_testbed() as stage:
        for turn in (19, 1, 0):
            failure = await stage.failure("nowhere.example")
            assert (failure.reason, failure.result) == (DialReason.NAME, LookupResult.ABSENT)
            stage.clock.turn(turn)
        assert len([name for name, _ in stage.dns.asked if name == "nowhere.example"]) == 4
        assert stage.counts.lookups == [("guest", "nxdomain")] * 3


async def test_aliases_are_followed_within_an_answer_and_beyond_it() -> None:
    async with open_testbed() as stage:
        assert await stage.resolve("alias.corp.example") == {"10.0.0.1", "10.0.0.2", "fd00::1"}
        asked = len(stage.dns.asked)
        assert await stage.resolve("half.corp.example") == {"10.0.0.8"}
        assert ("rest.corp.example", "A") in stage.dns.asked[asked:]
        stage.clock.turn(40)
        stage.dns.zone["half.corp.example", "CNAME"] = ["40", "idp.corp.example."]
        assert "10.0.0.1" in await stage.resolve("half.corp.example"), "the alias has the shorter time"


async def test_aliases_without_an_end_are_given_up() -> None:
    async with open_testbed() as stage:
        failure = await stage.failure("loop.corp.example")
        assert failure.text == "loop.corp.example: more than 8 aliases"
        assert len(stage.dns.asked) == 2 * hosted_dns.LONGEST_ALIAS_CHAIN


async def test_only_short_names_of_services_get_the_cluster_domain() -> None:
    async with open_testbed() as stage:
        assert await stage.resolve("console.monitoring") == {"172.30.9.9"}
        assert await stage.resolve("console.monitoring.svc") == {"172.30.9.9"}
        assert await stage.resolve("example.com") == {"192.0.2.1"}
        names = [name for name, kind in stage.dns.asked if kind == "A"]
        assert names == ["console.monitoring.svc.cluster.local", "example.com.svc.cluster.local", "example.com"]


async def test_many_connections_to_one_name_ask_two_questions() -> None:
    async with open_testbed() as stage:
        stage.dns.hold = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            lookups = [group.create_task(stage.resolve("idp.corp.example")) for _ in range(200)]
            await until(lambda: len(stage.dns.asked) == 2)
            stage.dns.hold.set()
        assert all(task.result() == {"10.0.0.1", "10.0.0.2", "fd00::1"} for task in lookups)
        assert len(stage.dns.asked) == 2
        assert stage.tunnel.dials == [(FIRST, 53)]


async def test_a_connection_that_the_server_has_closed_is_made_anew() -> None:
    async with open_testbed() as stage:
        stage.dns.closes_after = 2
        await stage.resolve("idp.corp.example")
        await stage.resolve("old.corp.example")
        assert stage.dns.connections >= 2
        assert stage.counts.lookups == [("guest", "ok"), ("guest", "ok")]


@pytest.mark.parametrize(
    "first", [DialReason.REFUSED, DialReason.UNREACHABLE, DialReason.NO_AGENT, "SERVFAIL", "closes"]
)
async def test_another_server_is_asked_when_one_fails_and_goes_first_from_then_on(first: DialReason | str) -> None:
    async with open_testbed(servers=2) as stage:
        if isinstance(first, DialReason):
            stage.tunnel.servers[FIRST] = first
        elif first == "closes":
            stage.dns.change = lambda wire: None
            stage.dns.closes_after = 1
        else:
            stage.dns.zone["idp.corp.example", "rcode"] = [first]
        assert "10.0.0.1" in await stage.resolve("idp.corp.example")
        dials = stage.tunnel.dials.count((FIRST, 53))
        asked = len(stage.dns.asked)
        assert await stage.resolve("old.corp.example") == {"10.0.0.3"}
        assert stage.tunnel.dials.count((FIRST, 53)) == dials
        assert len(stage.dns.asked) == asked
        assert stage.counts.lookups == [("guest", "ok"), ("guest", "ok")]


async def test_a_server_that_is_silent_costs_one_try_and_loses_its_connection() -> None:
    async with open_testbed(DnsPatience(try_seconds=1.5, lookup_seconds=55.0, grace_seconds=50.0), servers=2) as stage:
        stage.dns.hold = asyncio.Event()
        assert await stage.resolve("old.corp.example") == {"10.0.0.3"}
        assert len(stage.dns.asked) >= 1
        connections = stage.dns.connections
        stage.dns.hold = None
        stage.tunnel.servers[SECOND] = DialReason.REFUSED
        await stage.other.close()
        assert await stage.resolve("idp.corp.example") != set()
        assert stage.dns.connections == connections + 1, "on a fresh connection"


async def test_when_nobody_answers_the_name_is_not_found_and_the_server_is_named() -> None:
    async with open_testbed(HASTY) as stage:
        stage.dns.change = lambda wire: None
        failure = await stage.failure("idp.corp.example")
        assert failure.result is LookupResult.TIMEOUT
        assert failure.hop == f"DNS server {FIRST}:53"
        assert failure.text == "idp.corp.example: no answer within 0.02 s"
        assert stage.counts.lookups == [("guest", "timeout")]


async def test_a_lookup_as_a_whole_has_its_time_too() -> None:
    async with open_testbed(DnsPatience(try_seconds=50.0, lookup_seconds=0.02)) as stage:
        stage.dns.change = lambda wire: None
        failure = await stage.failure("idp.corp.example")
        assert failure.text == "idp.corp.example: no answer within 0.02 s"


@pytest.mark.parametrize(
    "change", [cut_short, of_another_name, lambda wire: wire[:12]], ids=["truncated", "other-name", "damaged"]
)
async def test_an_answer_that_cannot_be_trusted_is_none(change: Change) -> None:
    async with open_testbed() as stage:
        stage.dns.change = change
        failure = await stage.failure("idp.corp.example")
        assert failure.result is LookupResult.FAILED
        assert stage.answers >= hosted_dns.ROUNDS, "what came through shows that the tunnel works"
        stage.dns.change = lambda wire: wire
        assert "10.0.0.1" in await stage.resolve("idp.corp.example"), "and nothing of it was kept"


async def test_a_server_that_fails_for_a_name_says_so() -> None:
    async with open_testbed() as stage:
        failure = await stage.failure("broken.example")
        assert failure.result is LookupResult.FAILED
        assert "SERVFAIL" in failure.text
        assert stage.counts.lookups == [("guest", "failed")]


@pytest.mark.parametrize("reason", [DialReason.SERVER, DialReason.TLS])
async def test_a_tunnel_that_is_down_is_told_as_it_is_and_asked_once(reason: DialReason) -> None:
    async with open_testbed(servers=2) as stage:
        stage.tunnel.servers[FIRST] = stage.tunnel.servers[SECOND] = reason
        with pytest.raises(DialFailed) as caught:
            await stage.hosted.resolve("idp.corp.example")
        assert caught.value.reason is reason
        assert stage.tunnel.dials == [(FIRST, 53)]
        assert stage.counts.lookups == [("guest", "failed")]


async def test_one_family_is_enough_when_the_other_keeps_us_waiting() -> None:
    async with open_testbed(DnsPatience(try_seconds=50.0, lookup_seconds=55.0, grace_seconds=0.01)) as stage:

        def no_aaaa(wire: bytes) -> bytes | None:
            return None if b"\x00\x1c\x00\x01" in wire else wire

        stage.dns.change = no_aaaa
        assert await stage.resolve("example.com.") == {"192.0.2.1"}


async def test_after_failures_the_service_of_the_dns_is_looked_up_again() -> None:
    clock, counts, api = TurnedClock(), Counts(), ScriptedServices({DNS: (FIRST,)})
    other = ScriptedDns(dict(ZONE))
    tunnel = DnsTunnel({FIRST: DialReason.REFUSED, SECOND: other})
    hosted = HostedDns(tunnel, DnsServers((), DNS, api, clock.now), "cluster.local", counts, clock.now, PATIENT)
    with pytest.raises(LookupFailed):
        await hosted.resolve("idp.corp.example")
    api.services[DNS] = (SECOND,)
    clock.turn(1)
    assert "10.0.0.1" in await hosted.resolve("idp.corp.example")
    await hosted.close()
    await tunnel.close()


async def test_what_is_no_name_is_asked_of_nobody() -> None:
    async with open_testbed() as stage:
        failure = await stage.failure(f"{'a' * 64}.corp.example")
        assert failure.result is LookupResult.ABSENT
        assert not stage.tunnel.dials


def test_without_dnspython_the_start_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StartupError) as caught:
        DnsTestbed()
    assert caught.value.code == "UMB536"
