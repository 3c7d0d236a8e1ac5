"""Service lookups in the hosted cluster's API, which may be slow, down or not configured."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.proxies.name_testbed import Counts, ScriptedServices, TurnedClock, until
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, status_answer

from umbilical.fault import ApiRefused, ApiUnreachable, ClusterError
from umbilical.proxies import services as service_lookup
from umbilical.proxies.services import KubernetesServices, ServiceLookup, ServiceName, addresses_of

CONSOLE = ServiceName("monitoring", "console")
BOTH = ("172.30.9.9", "fd02::9")


class LookupTestbed:
    def __init__(self) -> None:
        self.api, self.counts, self.clock = ScriptedServices({CONSOLE: BOTH}), Counts(), TurnedClock()
        self.lookup = ServiceLookup(self.api, "cluster.local", self.counts, self.clock.now)


@asynccontextmanager
async def open_testbed() -> AsyncIterator[LookupTestbed]:
    stage = LookupTestbed()
    yield stage
    await stage.lookup.close()


@pytest.mark.parametrize("host", ["console.monitoring.corp.example", "console", "10.0.0.7", "fd00::1"])
async def test_a_name_that_is_no_services_costs_no_request(host: str) -> None:
    async with open_testbed() as stage:
        assert await stage.lookup.find(host) == ()
        assert stage.api.asked == []
        assert stage.counts.lookups == []


async def test_hits_and_misses_are_kept_for_a_while() -> None:
    async with open_testbed() as stage:
        for _ in range(3):
            assert await stage.lookup.find("console.monitoring") == BOTH
            assert await stage.lookup.find("example.com") == ()
        assert len(stage.api.asked) == 2
        stage.api.services[ServiceName("com", "example")] = ("172.30.1.1",)
        stage.clock.turn(service_lookup.UNKNOWN_SECONDS)
        assert await stage.lookup.find("example.com") == ("172.30.1.1",)
        assert await stage.lookup.find("console.monitoring") == BOTH
        assert len(stage.api.asked) == 3
        stage.clock.turn(service_lookup.KNOWN_SECONDS - service_lookup.UNKNOWN_SECONDS)
        await stage.lookup.find("console.monitoring")
        assert len(stage.api.asked) == 4
        assert stage.counts.lookups.count(("service", "cached")) == 5
        assert stage.counts.lookups.count(("service", "nxdomain")) == 1


async def test_a_headless_service_goes_on_to_dns() -> None:
    async with open_testbed() as stage:
        stage.api.services[CONSOLE] = ()
        assert await stage.lookup.find("console.monitoring") == ()


async def test_many_connections_to_one_service_make_one_request() -> None:
    async with open_testbed() as stage:
        stage.api.hold = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(stage.lookup.find("console.monitoring")) for _ in range(100)]
            await until(lambda: len(stage.api.asked) == 1)
            stage.api.hold.set()
        assert all(task.result() == BOTH for task in asked)
        assert len(stage.api.asked) == 1


async def test_an_api_that_fails_leaves_names_to_dns_and_is_left_alone_for_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_testbed() as stage:
        stage.api.is_down = True
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert await stage.lookup.find("console.monitoring") == ()
                assert await stage.lookup.find("other.monitoring") == ()
        assert len(stage.api.asked) == 1
        assert caplog.text.count("using DNS") == 1
        stage.api.is_down = False
        stage.clock.turn(service_lookup.AFTER_ERROR_SECONDS)
        assert await stage.lookup.find("console.monitoring") == BOTH
        assert stage.counts.lookups == [("service", "failed"), ("service", "ok")]


async def test_an_api_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_lookup, "API_SECONDS", 0.01)

    async with open_testbed() as stage:
        stage.api.hold = asyncio.Event()
        assert await stage.lookup.find("console.monitoring") == ()
        assert stage.counts.lookups == [("service", "timeout")]


@pytest.mark.parametrize(
    ("spec", "addresses"),
    [
        ({"clusterIP": "172.30.9.9", "clusterIPs": ["172.30.9.9", "fd02::9"]}, BOTH),
        ({"clusterIP": "172.30.9.9"}, ("172.30.9.9",)),
        ({"clusterIP": "None", "clusterIPs": ["None"]}, ()),
        ({"clusterIP": "", "type": "ExternalName"}, ()),
        ({"type": "ExternalName", "externalName": "idp.corp.example"}, ()),
        ({"clusterIP": "not-an-address"}, ()),
        ({"clusterIPs": [7, None]}, ()),
        ({}, ()),
        (None, ()),
    ],
)
def test_what_is_no_address_is_left_out(spec: dict[str, Any] | None, addresses: tuple[str, ...]) -> None:
    assert addresses_of({"spec": spec}) == addresses


async def test_the_api_is_asked_for_one_service_and_nothing_else(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.path.endswith("/console"):
            return json_answer({"spec": {"clusterIPs": list(BOTH)}})
        if request.path.endswith("/forbidden"):
            return status_answer(403, "Forbidden")
        return status_answer(404, "NotFound")

    async with ScriptedApi(answer) as api:
        services = KubernetesServices(api.write_kubeconfig(tmp_path))
        assert await services.cluster_ips("monitoring", "console") == BOTH
        assert await services.cluster_ips("monitoring", "missing") is None
        with pytest.raises(ApiRefused):
            await services.cluster_ips("monitoring", "forbidden")
        await services.close()
        asked = [(request.method, request.path) for request in api.requests]
    stem = "/api/v1/namespaces/monitoring/services"
    assert asked == [("GET", f"{stem}/{name}") for name in ("console", "missing", "forbidden")]


async def test_a_kubeconfig_is_read_when_it_is_needed_and_may_come_late(tmp_path: Path) -> None:
    async with ScriptedApi(lambda request: json_answer({"spec": {"clusterIP": BOTH[0]}})) as api:
        services = KubernetesServices(tmp_path / "scripted.kubeconfig")
        with pytest.raises(ClusterError):
            await services.cluster_ips("monitoring", "console")
        api.write_kubeconfig(tmp_path)
        assert await services.cluster_ips("monitoring", "console") == BOTH[:1]
        await services.close()


async def test_an_api_that_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    async with ScriptedApi(lambda request: Answer()) as api:
        kubeconfig = api.write_kubeconfig(tmp_path)
    services = KubernetesServices(kubeconfig)
    with pytest.raises(ApiUnreachable):
        await services.cluster_ips("monitoring", "console")
    await services.close()


async def test_what_was_never_asked_has_nothing_to_close(tmp_path: Path) -> None:
    await KubernetesServices(tmp_path / "none").close()
