"""A proxy as a process: before the tunnel is there, while it works, and how it leaves."""

import asyncio
from typing import Any

import pytest
from tests.support.daemons import answers, get, kill_self
from tests.support.proxy_process import TunnelMaker, running
from tests.support.proxy_scene import ask, drop, echo, endpoint, eventually, play, rest_of
from tests.support.tunnel_pair import free_port

from umbilical.dialer.opener import Opener, Streams
from umbilical.proxies import process
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.process import LateOutlet, run_proxy
from umbilical.proxies.settings import ListenerSettings
from umbilical.proxies.socks5 import Socks5
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import ListenAddress

MISSING = StartupError("UMB022", "cannot load the CA", "open ca.crt: no such file or directory", "give it")
HALF = StartupError("UMB021", "cannot load the CA", "there is no PEM certificate in it", "give it")
WRONG = StartupError("UMB537", "names cannot be resolved", "no kubeconfig", "give it")


def _settings(**settings: Any) -> ListenerSettings:
    values: dict[str, Any] = {
        "listen": (ListenAddress("127.0.0.1", free_port()),),
        "health": ListenAddress("127.0.0.1", free_port()),
    }
    return ListenerSettings(**(values | settings))


def _health(settings: ListenerSettings) -> ListenAddress:
    assert settings.health is not None
    return settings.health


async def _run(settings: ListenerSettings, maker: TunnelMaker) -> int:
    def make_service(opener: Opener, metrics: ProxyMetrics) -> Socks5:
        return Socks5(settings, opener, metrics, None)

    return await run_proxy(settings, maker, make_service, "SOCKS5")


async def _client(settings: ListenerSettings) -> Streams:
    return await asyncio.open_connection("127.0.0.1", settings.listen[0].port)


def test_it_is_ready_when_a_server_was_reached_and_says_so_in_its_metrics() -> None:
    async def script() -> None:
        settings, maker = _settings(), TunnelMaker()
        async with running(_run(settings, maker), settings.listen[0].port) as task:
            await answers(_health(settings), "/readyz", 200)
            await eventually(lambda: ("127.0.0.1", 1) in maker.outlet.asked)
            assert "umbilical_proxy_tunnel_healthy 1" in (await get(_health(settings), "/metrics"))[1]
        assert task.result() == 0
        assert maker.outlet.closed == 2

    play(script())


def test_it_listens_before_its_files_are_there_and_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "FILES_SECONDS", 0.01)
    monkeypatch.setattr(process, "FILES_TRIES", 1_000_000)

    async def script() -> None:
        settings, maker = _settings(), TunnelMaker(*[MISSING] * 3, HALF, *[MISSING] * 1_000_000)
        async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port):
            await eventually(lambda: maker.calls > 6)
            assert (await get(_health(settings), "/livez"))[0] == 200
            status, text = await get(_health(settings), "/readyz")
            assert (status, "no such file" in text) == (503, True)
            client = await _client(settings)
            assert await ask(client, "127.0.0.1", port) == 1
            await drop(client)
            maker.faults = []
            await answers(_health(settings), "/readyz", 200)
            client = await _client(settings)
            assert await ask(client, "127.0.0.1", port) == 0
            await drop(client)

    play(script())
    assert [record.getMessage()[:14] for record in caplog.records if "waiting:" in record.getMessage()] == [
        "UMB022 waiting",
        "UMB021 waiting",
        "UMB022 waiting",
    ]


def test_files_that_never_come_end_the_process_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FILES_SECONDS", 0.0)
    monkeypatch.setattr(process, "FILES_TRIES", 5)

    async def script() -> None:
        maker = TunnelMaker(*[MISSING] * 100)
        with pytest.raises(StartupError, match="no such file"):
            await _run(_settings(), maker)

    play(script())


def test_the_waits_between_looks_for_files_are_bounded() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def script() -> None:
        late = LateOutlet(TunnelMaker(*[MISSING] * 10_000), ProxyMetrics())
        with pytest.raises(StartupError):
            await late.run(sleep)

    play(script())
    assert pauses == [process.FILES_SECONDS] * process.FILES_TRIES


def test_what_will_be_as_wrong_in_an_hour_ends_it_before_it_listens() -> None:
    async def script() -> None:
        settings, maker = _settings(), TunnelMaker(WRONG)
        with pytest.raises(StartupError) as fault:
            await _run(settings, maker)
        assert fault.value.code == "UMB537"
        assert maker.calls == 1

    play(script())


def test_after_a_signal_whoever_is_here_may_finish_and_nobody_comes() -> None:
    async def script() -> None:
        settings, maker = _settings(), TunnelMaker()
        async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
            await answers(_health(settings), "/readyz", 200)
            client = await _client(settings)
            assert await ask(client, "127.0.0.1", port) == 0
            kill_self()
            await answers(_health(settings), "/readyz", 503)
            assert (await get(_health(settings), "/livez"))[0] == 200
            assert (await get(_health(settings), "/readyz"))[1] == "not ready: draining\n"
            with pytest.raises(OSError):
                await _client(settings)
            client[1].write(b"still here")
            assert await client[0].readexactly(10) == b"still here"
            assert not task.done()
            await drop(client)
            assert await asyncio.wait_for(task, 60) == 0

    play(script())


def test_the_patience_of_a_drain_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def script() -> None:
        settings, maker = _settings(drain_seconds=0.05), TunnelMaker()
        async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
            client = await _client(settings)
            assert await ask(client, "127.0.0.1", port) == 0
            kill_self()
            assert await rest_of(client[0]) == b""
            assert await asyncio.wait_for(task, 60) == 0
            await drop(client)

    play(script())
    assert "leaving with 1 connections open" in caplog.text


def test_a_second_signal_ends_the_patience() -> None:
    async def script() -> None:
        settings, maker = _settings(drain_seconds=3600.0), TunnelMaker()
        async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
            client = await _client(settings)
            assert await ask(client, "127.0.0.1", port) == 0
            kill_self()
            await answers(_health(settings), "/readyz", 503)
            kill_self()
            assert await asyncio.wait_for(task, 60) == 1
            assert await rest_of(client[0]) == b""
            await drop(client)

    play(script())


def test_without_patience_it_leaves_at_once() -> None:
    async def script() -> None:
        settings, maker = _settings(drain_seconds=0.0), TunnelMaker()
        async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
            client = await _client(settings)
            assert await ask(client, "127.0.0.1", port) == 0
            kill_self()
            assert await asyncio.wait_for(task, 60) == 0
            assert await rest_of(client[0]) == b""
            await drop(client)

    play(script())
