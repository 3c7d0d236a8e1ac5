"""Which resolver is used, and in which order."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proxies.name_testbed import Counts, DnsTunnel, ScriptedServices, TurnedClock, until
from tests.support.coroutines import play
from tests.support.dns_server import ScriptedDns

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.proxies import lookup
from umbilical.proxies.hosted_dns import DnsServers, HostedDns
from umbilical.proxies.lookup import LookupFailed, LookupResult, ManagementDns, ask_system
from umbilical.proxies.outbound import NameResolver
from umbilical.proxies.services import (
    ServiceLookup,
    ServiceName,
    absolute_names,
    is_cluster_name,
    is_public,
    parse_service_name,
)

CONSOLE = ServiceName("monitoring", "console")


class NamesTestbed:
    def __init__(self) -> None:
        clock, counts = TurnedClock(), Counts()
        self.counts = counts
        self.dns = ScriptedDns({("idp.corp.example", "A"): ["60", "10.0.0.1"]})
        self.tunnel = DnsTunnel({"172.30.0.10": self.dns})
        self.api = ScriptedServices({CONSOLE: ("172.30.9.9",)})
        servers = DnsServers((("172.30.0.10", 53),), CONSOLE, None, clock.now)
        self.hosted = HostedDns(self.tunnel, servers, "cluster.local", counts, clock.now)
        self.services = ServiceLookup(self.api, "cluster.local", counts, clock.now)
        self.management = ManagementDns(counts, self._ask)

    async def _ask(self, host: str) -> list[str]:
        return ["192.0.2.1"]


def resolved(host: str, *, hosted: bool = False, services: bool = False, management: bool = False) -> tuple[str, ...]:
    async def scenario() -> tuple[str, ...]:
        stage = NamesTestbed()
        names = NameResolver(
            stage.hosted if hosted else None,
            stage.services if services else None,
            stage.management if management else None,
        )
        try:
            return await names.resolve(host)
        finally:
            await names.close()
            await stage.tunnel.close()

    return play(scenario())


def test_what_is_no_service_goes_on_to_hosted_dns() -> None:
    assert resolved("idp.corp.example", services=True, hosted=True) == ("10.0.0.1",)


def test_hosted_dns_has_the_last_word_on_a_name_that_it_does_not_know() -> None:
    with pytest.raises(DialFailed, match="the name does not exist"):
        resolved("nowhere.corp.example", hosted=True, management=True)


def test_without_hosted_dns_this_machine_is_asked_behind_services() -> None:
    assert resolved("idp.corp.example", services=True, management=True) == ("192.0.2.1",)
    assert resolved("console.monitoring", services=True, management=True) == ("172.30.9.9",)


async def test_what_was_learnt_can_be_forgotten() -> None:
    stage = NamesTestbed()
    names = NameResolver(stage.hosted, None, None)
    await names.resolve("idp.corp.example")
    stage.dns.zone["idp.corp.example", "A"] = ["60", "10.0.0.2"]
    assert await names.resolve("idp.corp.example") == ("10.0.0.1",)
    names.forget("idp.corp.example")
    assert await names.resolve("idp.corp.example") == ("10.0.0.2",)
    NameResolver(None, None, None).forget("idp.corp.example")
    await names.close()
    await stage.tunnel.close()


def caused(number: int) -> OSError:
    """As `look_up` raises it."""
    error = OSError("lookup name: told so")
    error.__cause__ = socket.gaierror(number, "told so")
    return error


class Machine:
    def __init__(self, answer: list[str] | OSError) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.hold: asyncio.Event | None = None

    async def ask(self, host: str) -> list[str]:
        self.asked.append(host)
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


async def test_all_addresses_come_and_none_twice() -> None:
    machine, counts = Machine(["10.0.0.1", "fd00::1", "10.0.0.1"]), Counts()
    names = ManagementDns(counts, machine.ask)
    assert await names.resolve("idp.corp.example") == ("10.0.0.1", "fd00::1")
    assert counts.lookups == [("management", "ok")]
    await names.close()


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (socket.EAI_NONAME, LookupResult.ABSENT),
        (socket.EAI_NODATA, LookupResult.ABSENT),
        (socket.EAI_AGAIN, LookupResult.FAILED),
        (socket.EAI_FAIL, LookupResult.FAILED),
    ],
)
async def test_absence_is_told_from_failure(number: int, result: LookupResult) -> None:
    counts = Counts()
    with pytest.raises(LookupFailed) as caught:
        await ManagementDns(counts, Machine(caused(number)).ask).resolve("name")
    assert (caught.value.reason, caught.value.result) == (DialReason.NAME, result)
    assert counts.lookups == [("management", result.value)]


async def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LOOKUP_SECONDS", 0.01)

    machine = Machine([])
    machine.hold = asyncio.Event()
    with pytest.raises(LookupFailed) as caught:
        await ManagementDns(Counts(), machine.ask).resolve("name")
    assert caught.value.result is LookupResult.TIMEOUT


async def test_one_name_is_one_question_and_many_names_are_no_more_than_there_are_threads_for() -> None:
    machine = Machine(["10.0.0.1"])
    machine.hold = asyncio.Event()
    names = ManagementDns(Counts(), machine.ask)
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(names.resolve(f"name-{number}"))
            group.create_task(names.resolve(f"name-{number}"))
        await until(lambda: len(machine.asked) == lookup.MOST_AT_ONCE)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(machine.asked) == lookup.MOST_AT_ONCE
        machine.hold.set()
    assert len(machine.asked) == 100


async def test_the_machines_own_resolver_knows_this_machine() -> None:
    assert set(await ask_system("localhost")) & {"127.0.0.1", "::1"}


DOMAIN = "cluster.local"


SERVICES = [
    "console.monitoring", "console.monitoring.svc", "console.monitoring.svc.", "console.monitoring.svc.cluster.local",
    "console.monitoring.svc.cluster.local.", "Console.Monitoring.SVC.Cluster.Local",
]  # fmt: skip
NO_SERVICES = [
    "console.monitoring.corp.example", "console.monitoring.cluster.local", "console.monitoring.svc.other.local",
    "www.console.monitoring.svc", "console", "", ".", "console.", "console.monitoring.", ".monitoring", "console..svc",
    "con_sole.monitoring", "-console.monitoring", "console/../../x.monitoring", "10.0.0.7", "127.1", "fd00::1",
    f"{'a' * 64}.monitoring",
]  # fmt: skip


@pytest.mark.parametrize("host", SERVICES)
def test_a_service_is_known_by_its_short_and_its_full_name(host: str) -> None:
    assert parse_service_name(host, DOMAIN) == CONSOLE


@pytest.mark.parametrize("host", NO_SERVICES)
def test_any_other_name_is_no_service(host: str) -> None:
    """HyperShift's proxies read the first two labels of every name as a Service."""
    assert parse_service_name(host, DOMAIN) is None


def test_the_domain_of_the_cluster_can_be_another() -> None:
    assert parse_service_name("a.b.svc.k8s.corp.example", "k8s.corp.example.") == ServiceName("b", "a")
    assert parse_service_name("a.b.svc.cluster.local", "k8s.corp.example") is None


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("idp.corp.example", ("idp.corp.example",)),
        ("IDP.corp.example.", ("idp.corp.example",)),
        ("localhost", ("localhost",)),
        ("console.monitoring", ("console.monitoring.svc.cluster.local", "console.monitoring")),
        ("example.com.", ("example.com",)),
        ("console.monitoring.svc", ("console.monitoring.svc.cluster.local",)),
        ("db-0.db.store.svc", ("db-0.db.store.svc.cluster.local",)),
        ("console.monitoring.svc.cluster.local", ("console.monitoring.svc.cluster.local",)),
    ],
)
def test_only_short_names_of_services_get_the_cluster_domain(host: str, asked: tuple[str, ...]) -> None:
    assert absolute_names(host, DOMAIN) == asked


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("kubernetes.default.svc", True),
        ("Kubernetes.Default.SVC.cluster.local.", True),
        ("etcd-0.cluster.local", True),
        ("idp.corp.example", False),
        ("example.com", False),
        ("svc", False),
        ("cluster.local.example", False),
    ],
)
def test_names_of_the_cluster_are_told_from_those_of_the_world(host: str, inside: bool) -> None:
    assert is_cluster_name(host, DOMAIN) is inside


@given(st.text(max_size=80))
def test_what_is_found_can_stand_in_a_path_of_the_api(host: str) -> None:
    found = parse_service_name(host, DOMAIN)
    if found is not None:
        assert not set(f"{found.name}{found.namespace}") & set("/.?#% ")
        assert found.name
        assert found.namespace


@pytest.mark.parametrize("host", ["example.com", "Example.COM.", "console.monitoring", "1.example.com", "0x.example"])
def test_a_name_of_the_world_means_the_same_to_everybody(host: str) -> None:
    assert is_public(host, DOMAIN)


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "idp", "idp.", "localhost", "a.localhost.", "a.b.svc", "a.b.svc.cluster.local", "10.1", "1.2.3.4."),
        *("2852039166", "0xa9fea9fe", "a.0X7F", "a..b", ".a.b", "a.b..", "fd00::1", "::ffff:10.0.0.1", "a.b:80"),
    ],
)
def test_short_names_and_addresses_in_disguise_are_none_of_the_world(host: str) -> None:
    assert not is_public(host, DOMAIN)
