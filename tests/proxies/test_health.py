"""Probes' paths, and what readiness rests on."""

import asyncio

import pytest
from tests.support.daemons import get
from tests.support.proxy_scene import LOOPBACK, LoopbackOpener, PendingOpener, play

from umbilical.dialer.failure import DialFailed, Reason
from umbilical.konnectivity.dial_failure import PROBE_HOST
from umbilical.proxies import health
from umbilical.proxies.health import HealthRoutes, TunnelWatch
from umbilical.tunnel.admin import HttpListener
from umbilical.tunnel.settings import ListenAddress


def test_probes_get_their_answers() -> None:
    why = ["no server yet"]

    async def script() -> None:
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

    play(script())


def _failing(reason: Reason) -> LoopbackOpener:
    opener = LoopbackOpener()
    opener.failures[PROBE_HOST] = DialFailed(reason, "10.0.0.1:8090", "as somebody said")
    return opener


@pytest.mark.parametrize(
    ("reason", "server", "agent"),
    [
        (Reason.SERVER, False, False),
        (Reason.TLS, False, False),
        (Reason.PROTOCOL, False, False),
        (Reason.NO_AGENT, True, False),
        (Reason.AGENT_LOST, True, False),
        (Reason.TIMEOUT, True, False),
        (Reason.REFUSED, True, True),
        (Reason.UNREACHABLE, True, True),
        (Reason.FORBIDDEN, True, True),
    ],
)
def test_a_failed_probe_tells_how_far_it_came(reason: Reason, server: bool, agent: bool) -> None:
    watch = TunnelWatch()
    assert asyncio.run(watch.look(_failing(reason))) is agent
    assert (watch.server_reached, watch.agent_reached) == (server, agent)
    assert (watch.reason == "") is agent


def test_looks_are_backed_off_until_an_agent_has_answered_and_then_end(caplog: pytest.LogCaptureFixture) -> None:
    opener, pauses = _failing(Reason.SERVER), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            opener.failures[PROBE_HOST] = DialFailed(Reason.REFUSED, "127.0.0.1:1", "connection refused")

    watch = TunnelWatch()
    asyncio.run(watch.run(opener, sleep))
    assert pauses == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert watch.agent_reached
    assert caplog.text.count("waiting for the tunnel") == 1
    assert "UMB507" in caplog.text


def test_a_server_that_was_reached_once_is_enough() -> None:
    """It may come back any moment; a proxy that is taken away from its clients helps nobody."""
    opener, watch = _failing(Reason.NO_AGENT), TunnelWatch()
    asyncio.run(watch.look(opener))
    opener.failures[PROBE_HOST] = DialFailed(Reason.SERVER, "10.0.0.1:8090", "connection refused")
    asyncio.run(watch.look(opener))
    assert watch.server_reached
    assert not watch.agent_reached


def test_a_look_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOK_SECONDS", 0.01)

    async def script() -> None:
        watch = TunnelWatch()
        assert not await watch.look(PendingOpener())
        assert "no answer within" in watch.reason

    play(script())
