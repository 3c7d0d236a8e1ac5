"""`umbilical proxy socks5`: safe defaults, and the process itself."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.native import options_of
from tests.support.dns_server import ScriptedDns
from tests.support.in_process import Stage
from tests.support.proxy_process import running
from tests.support.proxy_scene import ask, drop, echo, endpoint, play
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.cli import main, proxy_socks5
from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.proxies.settings import ListenerSettings, OutboundSettings, Resolution, Socks5Settings
from umbilical.proxies.socks5_process import run_socks5
from umbilical.tunnel.settings import ListenAddress


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(make_tunnel_pki(tmp_path), tmp_path)
    yield stage
    stage.stop()


def test_defaults_are_safe() -> None:
    options = options_of(proxy_socks5.socks5, ["--server=unix:/run/k.sock"])
    credentials = options.pop("credentials_file")
    assert proxy_socks5.socks5_settings(options, credentials) == Socks5Settings(
        ListenerSettings((ListenAddress("127.0.0.1", 1080), ListenAddress("::1", 1080)), ipv6_if_there=True),
        OutboundSettings(DialerSettings((UnixServer(Path("/run/k.sock")),)), Resolution.AGENT),
    )


def test_without_a_server_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["proxy", "socks5"]) == 2
    assert "--server" in capsys.readouterr().err


def test_credentials_that_cannot_be_used_keep_it_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users"
    users.write_text("only-a-password\n")
    arguments = ["proxy", "socks5", "--server=unix:/s", "--listen=127.0.0.1:0", "--credentials-file", str(users)]
    assert main.run(arguments) == 3
    told = capsys.readouterr().err
    assert told.startswith("UMB521 ")
    assert "line 1" in told
    assert "only-a-password" not in told


@pytest.mark.parametrize("resolve", ["guest", "guest-then-management"])
def test_names_are_asked_of_the_guests_dns_through_the_tunnel_and_no_kubeconfig_is_needed(
    stage: Stage, resolve: str
) -> None:
    server, _ = stage.start_pair()
    zone = ScriptedDns({("idp.corp.example", "A"): ["60", "127.0.0.1"]})

    async def script() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            zone.serve((reader, writer))

        place = free_port()
        dns = await asyncio.start_server(answer, "127.0.0.1", 0)
        dns_port = dns.sockets[0].getsockname()[1]
        arguments = [f"--server=unix:{server.frontend.unix_path}", f"--listen=127.0.0.1:{place}"]
        arguments += [f"--resolve={resolve}", f"--guest-dns=127.0.0.1:{dns_port}"]
        options = options_of(proxy_socks5.socks5, arguments)
        settings = proxy_socks5.socks5_settings(options, options.pop("credentials_file"))
        async with dns, endpoint(echo) as port, running(run_socks5(settings), place):
            reader, writer = await asyncio.open_connection("127.0.0.1", place)
            assert await ask((reader, writer), "idp.corp.example", port) == 0
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            await drop((reader, writer))
        await zone.close()

    play(script())
    assert ("idp.corp.example", "A") in zone.asked
