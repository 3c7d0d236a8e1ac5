"""`umbilical proxy socks5`: safe defaults, and the process itself."""

from pathlib import Path

import pytest
from tests.cli.native import options_of

from umbilical.cli import main, proxy_socks5
from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.proxies.settings import ListenerSettings, OutboundSettings, Resolution, Socks5Settings
from umbilical.tunnel.settings import ListenAddress


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
