"""Health routes, readiness, and the tunnel's health."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.proxies.name_testbed import ScriptedTunnel, TurnedClock, pipe, until
from tests.support.daemons import get
from tests.support.proxy_testbed import LOOPBACK, LoopbackOpener, PendingOpener

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.konnectivity.dial_failure import PROBE_HOST
from umbilical.proxies import health
from umbilical.proxies.health import FAULTS_OF_THE_TUNNEL, HealthRoutes, TunnelHealth, TunnelWatch, WatchedTunnel
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.tunnel.http_server import HttpListener
from umbilical.tunnel.settings import ListenAddress


async def test_probes_get_their_answers() -> None:
    why = ["no server yet"]

    listener = HttpListener(LOOPBACK, HealthRoutes(lambda: why[0], lambda: b"a_metric 1\n"))
    await listener.start()
    where = ListenAddress("127.0.0.1", listener.port)
    for path in ("/livez", "/healthz"):
        assert await get(where, path) == (200, "ok")
    for path in ("/readyz", "/ready"):
        assert await get(where, path) == (503, "not ready: no server yet\n")
    why[0] = ""
    assert await get(where, "/readyz") == (200, "ok")
    assert await get(where, "/metrics") == (200, "a_metric 1\n")
    assert (await get(where, "/other"))[0] == 404
    await listener.stop()


def _failing(reason: DialReason) -> LoopbackOpener:
    opener = LoopbackOpener()
    opener.failures[PROBE_HOST] = DialFailed(reason, "10.0.0.1:8090", "as somebody said")
    return opener


@pytest.mark.parametrize(
    ("reason", "server", "agent"),
    [
        (DialReason.SERVER, False, False),
        (DialReason.TLS, False, False),
        (DialReason.PROTOCOL, False, False),
        (DialReason.NO_AGENT, True, False),
        (DialReason.AGENT_LOST, True, False),
        (DialReason.TIMEOUT, True, False),
        (DialReason.REFUSED, True, True),
        (DialReason.UNREACHABLE, True, True),
        (DialReason.FORBIDDEN, True, True),
    ],
)
def test_a_failed_probe_tells_how_far_it_came(reason: DialReason, server: bool, agent: bool) -> None:
    watch = TunnelWatch()
    assert asyncio.run(watch.probe(_failing(reason))) is agent
    assert (watch.server_reached, watch.agent_reached) == (server, agent)
    assert (watch.reason == "") is agent


def test_looks_are_backed_off_until_an_agent_has_answered_and_then_end(caplog: pytest.LogCaptureFixture) -> None:
    opener, pauses = _failing(DialReason.SERVER), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            opener.failures[PROBE_HOST] = DialFailed(DialReason.REFUSED, "127.0.0.1:1", "connection refused")

    watch = TunnelWatch()
    asyncio.run(watch.run(opener, sleep))
    assert pauses == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert watch.agent_reached
    assert caplog.text.count("waiting for the tunnel") == 1
    assert "UMB507" in caplog.text


def test_a_server_that_was_reached_once_is_enough() -> None:
    """The server may return at any moment; an unready proxy would not help its clients."""
    opener, watch = _failing(DialReason.NO_AGENT), TunnelWatch()
    asyncio.run(watch.probe(opener))
    opener.failures[PROBE_HOST] = DialFailed(DialReason.SERVER, "10.0.0.1:8090", "connection refused")
    asyncio.run(watch.probe(opener))
    assert watch.server_reached
    assert not watch.agent_reached


async def test_a_look_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WATCH_PROBE_SECONDS", 0.01)

    watch = TunnelWatch()
    assert not await watch.probe(PendingOpener())
    assert "no answer within" in watch.reason


def _families(metrics: ProxyMetrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        found[family.name] = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
    return found  # type: ignore[return-value]


def test_a_proxy_that_did_nothing_yet_shows_what_is_always_there() -> None:
    families = _families(ProxyMetrics())
    ours = {name for name in families if name.startswith("umbilical_proxy_")}
    assert ours == {"umbilical_proxy_connections", "umbilical_proxy_tunnel_healthy", "umbilical_proxy_bytes"}
    assert "process_resident_memory_bytes" in families
    assert set(families["umbilical_proxy_bytes"].values()) == {0.0}


def test_every_count_has_its_name_and_labels() -> None:
    metrics = ProxyMetrics()
    metrics.refused("limit")
    metrics.requested("socks5", "ok")
    metrics.requested("connect", "no-agent")
    metrics.dialled("tunnel", "ok", 0.003)
    metrics.dialled("direct", "refused", 0.2)
    metrics.looked_up("guest", "cached")
    metrics.traffic.to_client.total += 7
    text = metrics.render().decode()
    for line in (
        'umbilical_proxy_refused_connections_total{reason="limit"} 1',
        'umbilical_proxy_requests_total{protocol="socks5",result="ok"} 1',
        'umbilical_proxy_requests_total{protocol="connect",result="no-agent"} 1',
        'umbilical_proxy_dials_total{way="tunnel",result="ok"} 1',
        'umbilical_proxy_dials_total{way="direct",result="refused"} 1',
        'umbilical_proxy_dial_duration_seconds_bucket{way="tunnel",le="0.005"} 1',
        'umbilical_proxy_dial_duration_seconds_count{way="direct"} 1',
        'umbilical_proxy_lookups_total{way="guest",result="cached"} 1',
        'umbilical_proxy_bytes_total{direction="to_client"} 7',
        'umbilical_proxy_bytes_total{direction="to_endpoint"} 0',
    ):
        assert line in text.splitlines()


def test_gauges_are_asked_at_each_scrape() -> None:
    metrics = ProxyMetrics()
    open_now = [1]
    metrics.connections = lambda: open_now[0]
    metrics.tunnel_healthy = lambda: 1
    assert "umbilical_proxy_connections 1\n" in metrics.render().decode()
    open_now[0] = 5
    assert "umbilical_proxy_connections 5\n" in metrics.render().decode()
    assert "umbilical_proxy_tunnel_healthy 1\n" in metrics.render().decode()


def test_certificates_are_shown_with_the_rest() -> None:
    metrics = ProxyMetrics()
    metrics.certificates.expiry["dialer", "certificate"] = 1.0
    metrics.certificates.reloaded("dialer", "success")
    text = metrics.render().decode()
    assert 'umbilical_certificate_expiry_timestamp_seconds{role="dialer",file="certificate"} 1' in text
    assert 'umbilical_certificate_reloads_total{role="dialer",result="success"} 1' in text


HOST = "10.0.0.7"


class HealthTestbed:
    def __init__(self) -> None:
        self.clock = TurnedClock()
        # A reachable agent finds its own port 1 closed.
        self.dialer = ScriptedTunnel({PROBE_HOST: DialReason.REFUSED})
        self.health = TunnelHealth(self.dialer, self.clock.sleep)
        self.tunnel = WatchedTunnel(self.dialer, self.health)

    @property
    def probes(self) -> int:
        return self.dialer.hosts.count(PROBE_HOST)

    async def dial(self, reason: DialReason | None = None) -> None:
        if reason is None:
            _, writer = await self.tunnel.open(HOST, 443)
            writer.close()
            return
        self.dialer.outcomes[HOST] = reason
        with pytest.raises(DialFailed):
            await self.tunnel.open(HOST, 443)
        del self.dialer.outcomes[HOST]

    async def break_it(self) -> None:
        self.dialer.everything = DialReason.SERVER
        assert not await self.health.check(self.health.proofs)
        await until(lambda: bool(self.clock.sleepers))

    async def probed(self, times: int) -> None:
        await until(lambda: self.probes == times)

    def hold_probe(self) -> "asyncio.Future[Streams]":
        """The probe hangs until the test ends it."""
        held: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

        async def outcome() -> Streams:
            return await asyncio.shield(held)

        self.dialer.outcomes[PROBE_HOST] = outcome
        return held

    def mend(self) -> None:
        self.dialer.everything = None


@asynccontextmanager
async def open_testbed() -> AsyncIterator[HealthTestbed]:
    stage = HealthTestbed()
    yield stage
    await stage.health.close()
    await stage.dialer.close()


@pytest.mark.parametrize("reason", [reason for reason in DialReason if reason in FAULTS_OF_THE_TUNNEL])
async def test_a_fault_of_the_tunnel_is_looked_into_by_a_probe(reason: DialReason) -> None:
    async with open_testbed() as stage:
        await stage.dial(reason)
        await until(lambda: stage.health.proofs == 1)
        assert stage.probes == 1
        assert stage.health.is_healthy, "one dial failed, and the tunnel works"


@pytest.mark.parametrize("reason", [DialReason.REFUSED, DialReason.UNREACHABLE, DialReason.NAME, DialReason.FORBIDDEN])
async def test_a_word_on_the_endpoint_proves_that_words_come_through(reason: DialReason) -> None:
    async with open_testbed() as stage:
        await stage.break_it()
        stage.mend()
        await stage.dial(reason)
        assert stage.health.is_healthy
        assert stage.health.broken_by is None


@pytest.mark.parametrize("reason", [DialReason.TIMEOUT, DialReason.PROTOCOL])
async def test_what_may_be_anybodys_fault_neither_proves_nor_doubts(reason: DialReason) -> None:
    async with open_testbed() as stage:
        await stage.dial(reason)
        assert stage.health.proofs == 0
        await asyncio.sleep(0)
        assert stage.probes == 0


async def test_it_is_broken_when_the_probe_fails_too_and_says_why() -> None:
    async with open_testbed() as stage:
        stage.dialer.everything = DialReason.NO_AGENT
        assert not await stage.health.check(stage.health.proofs)
        assert not stage.health.is_healthy
        assert stage.health.broken_by is not None
        assert stage.health.broken_by.reason is DialReason.NO_AGENT


async def test_while_it_is_broken_one_probe_at_a_time_follows_another_ever_more_slowly() -> None:
    async with open_testbed() as stage:
        await stage.break_it()
        pauses = []
        for probe in range(1, 9):
            await until(lambda: bool(stage.clock.sleepers))
            assert stage.probes == probe
            assert not await stage.health.check(stage.health.proofs)
            assert stage.probes == probe, "a check while it is broken asks nobody"
            ((due, _),) = stage.clock.sleepers
            pauses.append(due - stage.clock.seconds)
            stage.clock.turn(pauses[-1])
            await stage.probed(probe + 1)
        assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


async def test_after_a_recovery_the_next_failure_is_looked_into_at_once() -> None:
    """An old probe must not block for ever: in HyperShift two failed lookups did."""

    async with open_testbed() as stage:
        await stage.break_it()
        stage.mend()
        await stage.dial()
        probes = stage.probes
        await stage.break_it()
        assert stage.probes == probes + 1
        assert not stage.health.is_healthy


async def test_many_who_ask_at_once_wait_for_one_probe() -> None:
    async with open_testbed() as stage:
        held = stage.hold_probe()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(stage.health.check(0)) for _ in range(50)]
            await until(lambda: stage.probes == 1)
            assert not any(task.done() for task in asked)
            held.set_exception(DialFailed(DialReason.SERVER, "s", "gone"))
        assert not any(task.result() for task in asked)
        assert stage.probes == 1


async def test_a_failure_from_before_the_last_success_says_nothing() -> None:
    async with open_testbed() as stage:
        before = stage.health.proofs
        await stage.dial()
        stage.dialer.everything = DialReason.SERVER
        assert await stage.health.check(before)
        assert stage.probes == 0


async def test_a_probe_that_fails_after_a_success_says_nothing_either() -> None:
    async with open_testbed() as stage:
        held = stage.hold_probe()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(stage.health.check(0))
            await until(lambda: stage.probes == 1)
            await stage.dial()
            held.set_exception(DialFailed(DialReason.SERVER, "s", "gone"))
        held.exception()
        assert asked.result()


async def test_a_probe_without_an_answer_is_a_failure_and_one_that_connects_is_closed() -> None:
    async with open_testbed() as stage:

        async def never() -> Streams:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

        stage.dialer.outcomes[PROBE_HOST] = never
        health = TunnelHealth(stage.dialer, stage.clock.sleep, probe_seconds=0.01)
        assert not await health.check(0)
        assert health.broken_by is not None
        assert "no answer within" in health.broken_by.text
        await health.close()

        ours, theirs = await pipe()

        async def opened() -> Streams:
            return ours

        stage.dialer.outcomes[PROBE_HOST] = opened
        assert await stage.health.check(0)
        assert await theirs[0].read() == b""
        theirs[1].close()


async def test_a_dial_that_works_before_the_probe_has_begun_answers_whoever_waits_for_it() -> None:
    async with open_testbed() as stage:
        waiting = asyncio.get_running_loop().create_task(stage.health.check(stage.health.proofs))
        # Both run in one turn of the loop, before the probe's first turn.
        asyncio.get_running_loop().call_soon(stage.health.works)
        assert await asyncio.wait_for(waiting, 60)
        assert stage.probes == 0
