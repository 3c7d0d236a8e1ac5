"""The SOCKS5 proxy as a process: credentials from a file, and a tunnel of the test's own."""

import asyncio
from pathlib import Path

import pytest
from tests.support.proxy_process import TunnelMaker, running
from tests.support.proxy_scene import connect_request, drop, echo, endpoint, play, rest_of
from tests.support.tunnel_pair import free_port

from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.proxies.settings import ListenerSettings, OutboundSettings, Socks5Settings
from umbilical.proxies.socks5_process import run_socks5
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import ListenAddress


def _settings(port: int, credentials: Path | None = None) -> Socks5Settings:
    listener = ListenerSettings((ListenAddress("127.0.0.1", port),))
    outbound = OutboundSettings(DialerSettings((UnixServer(Path("/nowhere")),)))
    return Socks5Settings(listener, outbound, credentials)


def test_with_a_file_of_credentials_a_password_is_asked_for(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:s3cret\n")

    async def script() -> None:
        where, maker = free_port(), TunnelMaker()
        async with endpoint(echo) as port, running(run_socks5(_settings(where, users), maker), where):
            reader, writer = await asyncio.open_connection("127.0.0.1", where)
            writer.write(b"\x05\x01\x00")
            assert await rest_of(reader) == b"\x05\xff"
            await drop((reader, writer))
            reader, writer = await asyncio.open_connection("127.0.0.1", where)
            writer.write(b"\x05\x01\x02\x01\x03ann\x06s3cret" + connect_request("127.0.0.1", port) + b"hello")
            assert (await reader.readexactly(4 + 10 + 5))[-5:] == b"hello"
            await drop((reader, writer))

    play(script())


def test_a_file_that_cannot_be_used_keeps_it_from_starting(tmp_path: Path) -> None:
    async def script() -> None:
        with pytest.raises(StartupError, match="credentials"):
            await run_socks5(_settings(free_port(), tmp_path / "users"), TunnelMaker())

    play(script())
