"""`umbilical proxy https`: safe defaults, and no secrets in arguments."""

from pathlib import Path

import pytest
from tests.cli.native import options_of

from umbilical.cli import main, proxy_https
from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings, Resolution
from umbilical.tunnel.settings import ListenAddress, TlsFiles

SERVER = "--server=unix:/run/k.sock"


def settings(*arguments: str) -> HttpsSettings:
    return proxy_https.https_settings(options_of(proxy_https.https, [SERVER, *arguments]))


def test_defaults_are_safe() -> None:
    assert settings() == HttpsSettings(
        ListenerSettings((ListenAddress("127.0.0.1", 3128), ListenAddress("::1", 3128)), ipv6_if_there=True),
        OutboundSettings(DialerSettings((UnixServer(Path("/run/k.sock")),)), Resolution.AGENT),
    )


def test_options_reach_the_settings(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "login", "crt", "key", "clients")}
    for path in files.values():
        path.touch()
    found = settings(
        *("--http-proxy=http://p1:1", "--https-proxy=https://p2", "--no-proxy=.svc,10.0.0.0/8"),
        *(f"--proxy-ca={files['ca']}", f"--proxy-credentials-file={files['login']}"),
        *(f"--listen-cert={files['crt']}", f"--listen-key={files['key']}", f"--listen-ca={files['clients']}"),
    )
    assert (found.http_proxy, found.https_proxy) == ("http://p1:1", "https://p2")
    assert (found.no_proxy, found.proxy_authority) == (".svc,10.0.0.0/8", files["ca"])
    assert found.proxy_credentials == files["login"]
    assert found.listen_tls == TlsFiles(files["crt"], files["key"], files["clients"])
    assert found.default_connect_port is None


@pytest.mark.parametrize("option", ["--http-proxy", "--https-proxy"])
def test_a_password_in_an_argument_is_refused_and_not_repeated(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["proxy", "https", SERVER, f"{option}=http://user:s3cret@proxy:3128"]) == 3
    told = capsys.readouterr().err
    assert told.startswith(f"UMB547 {option} holds a user or a password\n")
    assert "s3cret" not in told


def test_a_password_may_come_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is wrong then is the scheme, which is looked at later; the value is still not shown."""
    monkeypatch.setenv("UMBILICAL_PROXY_HTTPS_HTTPS_PROXY", "socks5://user:s3cret@proxy")
    assert main.run(["proxy", "https", SERVER, "--listen=127.0.0.1:0"]) == 3
    told = capsys.readouterr().err
    assert told.startswith("UMB532 ")
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen-cert={file}"], "UMB003 --listen-cert without --listen-key"),
        (["--listen-ca={file}"], "UMB003 --listen-ca without --listen-cert"),
        (["--proxy-ca={file}-no"], "UMB002 cannot read"),
    ],
)
def test_files_that_make_no_sense_are_told(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main.run(["proxy", "https", SERVER, *(argument.format(file=file) for argument in arguments)]) == 3
    assert capsys.readouterr().err.startswith(words)


def test_without_a_server_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["proxy", "https"]) == 2
    assert "--server" in capsys.readouterr().err
