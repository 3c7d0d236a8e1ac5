"""`umbilical proxy`: its commands, their options and the flags of upstream."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.native import options_of
from tests.support.commands import Run
from tests.support.dns_server import ScriptedDns
from tests.support.fixture_types import Patch
from tests.support.in_process import Stage
from tests.support.proxy_process import running
from tests.support.proxy_testbed import ask, drop, echo, endpoint
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.cli.options import server_place
from umbilical.cli.proxy import serve
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.fault import StartupError
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings, Resolution, Socks5Settings
from umbilical.proxies.socks5 import run_socks5
from umbilical.tunnel.settings import ListenAddress, TlsFiles

SERVER = "--server=unix:/run/k.sock"


def settings(*arguments: str) -> HttpsSettings:
    return serve.https_settings(options_of(serve.https, [SERVER, *arguments]))


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


def test_a_password_in_an_argument_is_refused_and_not_repeated(umbilical: Run) -> None:
    for option in ("--http-proxy", "--https-proxy"):
        told = umbilical("proxy", "https", SERVER, f"{option}=http://user:s3cret@proxy:3128", status=3).err
        assert told.startswith(f"UMB547 {option} contains a user name or a password\n")
        assert "s3cret" not in told


def test_a_password_may_come_by_the_environment(monkeypatch: Patch, tmp_path: Path, umbilical: Run) -> None:
    """The error is the scheme, which is checked later; the value is still not printed."""
    monkeypatch.setenv("UMBILICAL_PROXY_HTTPS_HTTPS_PROXY", "socks5://user:s3cret@proxy")
    told = umbilical("proxy", "https", SERVER, "--listen=127.0.0.1:0", status=3).err
    assert told.startswith("UMB532 ")
    assert "s3cret" not in told


def test_files_that_make_no_sense_are_told(tmp_path: Path, umbilical: Run) -> None:
    for arguments, words in (
        (["--listen-cert={file}"], "UMB003 --listen-cert without --listen-key"),
        (["--listen-ca={file}"], "UMB003 --listen-ca was given without --listen-cert"),
        (["--proxy-ca={file}-no"], "UMB002 cannot read"),
    ):
        file = tmp_path / "file"
        file.touch()
        told = umbilical("proxy", "https", SERVER, *(argument.format(file=file) for argument in arguments), status=3)
        assert told.err.startswith(words)


def test_without_a_server_it_says_what_is_missing(umbilical: Run) -> None:
    for command in ("https", "socks5"):
        assert "--server" in umbilical("proxy", command, status=2).err


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(make_tunnel_pki(tmp_path), tmp_path)
    yield stage
    stage.stop()


def test_defaults_of_socks5_are_safe() -> None:
    options = options_of(serve.socks5, ["--server=unix:/run/k.sock"])
    assert serve.socks5_settings(options) == Socks5Settings(
        ListenerSettings((ListenAddress("127.0.0.1", 1080), ListenAddress("::1", 1080)), ipv6_if_there=True),
        OutboundSettings(DialerSettings((UnixServer(Path("/run/k.sock")),)), Resolution.AGENT),
    )


def test_credentials_that_cannot_be_used_keep_it_from_starting(tmp_path: Path, umbilical: Run) -> None:
    users = tmp_path / "users"
    users.write_text("only-a-password\n")
    arguments = ["proxy", "socks5", "--server=unix:/s", "--listen=127.0.0.1:0", "--credentials-file", str(users)]
    told = umbilical(*arguments, status=3).err
    assert told.startswith("UMB521 ")
    assert "line 1" in told
    assert "only-a-password" not in told


@pytest.mark.parametrize("resolve", ["guest", "guest-then-management"])
async def test_names_are_asked_of_the_guests_dns_through_the_tunnel_and_no_kubeconfig_is_needed(
    stage: Stage, resolve: str
) -> None:
    server, _ = stage.start_pair()
    zone = ScriptedDns({("idp.corp.example", "A"): ["60", "127.0.0.1"]})

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        zone.serve((reader, writer))

    place = free_port()
    dns = await asyncio.start_server(answer, "127.0.0.1", 0)
    dns_port = dns.sockets[0].getsockname()[1]
    arguments = [f"--server=unix:{server.frontend.unix_path}", f"--listen=127.0.0.1:{place}"]
    settings = proxy(*arguments, f"--resolve={resolve}", f"--guest-dns=127.0.0.1:{dns_port}")
    async with dns, endpoint(echo) as port, running(run_socks5(settings), place):
        reader, writer = await asyncio.open_connection("127.0.0.1", place)
        assert await ask((reader, writer), "idp.corp.example", port) == 0
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        await drop((reader, writer))
    await zone.close()
    assert ("idp.corp.example", "A") in zone.asked


def proxy(*arguments: str) -> Socks5Settings:
    return serve.socks5_settings(options_of(serve.socks5, arguments))


def listener(*arguments: str) -> ListenerSettings:
    return proxy(SERVER, *arguments).listener


def outbound(*arguments: str) -> OutboundSettings:
    return proxy(*arguments).outbound


def test_both_loopbacks_are_the_default_and_ipv6_may_be_missing() -> None:
    both = (ListenAddress("127.0.0.1", 1080), ListenAddress("::1", 1080))
    assert listener() == ListenerSettings(both, ipv6_if_there=True)
    found = listener("--listen=[::1]:9", "--listen=:8", "--listen=[::1]:9")
    assert found.listen == (ListenAddress("::1", 9), ListenAddress("", 8))
    assert not found.ipv6_if_there


def test_limits_reach_the_settings() -> None:
    found = listener(
        *("--health=:9001", "--max-connections=5", "--handshake-timeout=1s", "--idle-timeout=0s", "--drain=2m")
    )
    assert found.health == ListenAddress("", 9001)
    times = (found.handshake_seconds, found.idle_seconds, found.drain_seconds)
    assert (found.max_connections, *times) == (5, 1.0, 0.0, 120.0)


def test_options_of_the_dialer_reach_it(tmp_path: Path) -> None:
    """Files are not checked: they may be created later."""
    found = outbound(
        *("--server=a:1", "--server=[::1]:2", "--server=a:1", "--server-name=konnectivity", "--protocol=grpc"),
        *("--ca", str(tmp_path / "ca"), "--cert", str(tmp_path / "crt"), "--key", str(tmp_path / "key")),
        *("--connect-timeout=1s", "--tls-timeout=2s", "--reply-timeout=3s"),
    )
    assert found.dialer == DialerSettings(
        (TcpServer("a", 1, "konnectivity"), TcpServer("::1", 2, "konnectivity")),
        TlsFiles(tmp_path / "crt", tmp_path / "key", tmp_path / "ca"),
        Protocol.GRPC,
        *(1.0, 2.0, 3.0),
    )


def test_options_of_names_reach_the_settings(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    found = outbound(
        *("--server=unix:/s", "--resolve=guest-then-management", "--guest-dns=172.30.0.10", "--guest-dns=fd00::a"),
        *("--guest-dns-service=kube-system/kube-dns", "--cluster-domain=c.example", "--kubeconfig", str(kubeconfig)),
        *("--prefer-ipv4", "--direct-suffix=.corp", "--direct-to-cloud-apis", "--never-direct=proxy.azure.com"),
    )
    assert found == OutboundSettings(
        dialer=DialerSettings((UnixServer(Path("/s")),)),
        resolution=Resolution.HOSTED_THEN_MANAGEMENT,
        guest_dns=("172.30.0.10", "fd00::a"),
        guest_dns_service="kube-system/kube-dns",
        cluster_domain="c.example",
        kubeconfig=kubeconfig,
        prefer_ipv4=True,
        direct_suffixes=(".corp", *CLOUD_SUFFIXES),
        never_direct=("proxy.azure.com",),
    )


def test_whoever_says_where_the_guests_dns_is_gets_it_also_without_its_api() -> None:
    assert outbound("--server=unix:/s", "--guest-dns=172.30.0.10").resolution is Resolution.HOSTED
    assert outbound("--server=unix:/s", "--guest-dns=1.2.3.4", "--resolve=agent").resolution is Resolution.AGENT
    found = outbound("--server=unix:/s", "--resolve=guest-then-management", "--guest-dns=172.30.0.10")
    assert (found.resolution, found.kubeconfig) == (Resolution.HOSTED_THEN_MANAGEMENT, None)


def test_what_cannot_work_is_told_at_once() -> None:
    for arguments, words in (
        (("--server=a:1",), "needs --ca"),
        (("--server=unix:/s", "--cert=/c"), "--cert without --key"),
        (("--server=unix:/s", "--key=/k"), "--key without --cert"),
        (("--server=unix:/s", "--resolve=guest"), "needs --guest-dns or --kubeconfig"),
        (("--server=unix:/s", "--resolve=service", "--guest-dns=1.2.3.4"), "needs --kubeconfig"),
        (("--server=unix:/s", "--resolve=guest-then-management"), "needs --guest-dns or --kubeconfig"),
        (("--server=unix:/s", "--kubeconfig=/no/such/file"), "cannot read /no/such/file"),
    ):
        with pytest.raises(StartupError) as fault:
            outbound(*arguments)
        assert words in fault.value.what


def test_a_server_is_a_path_or_a_host_with_a_port() -> None:
    for text in ("unix:", ":8090", "host", "host:0", "a:b:c", "host:65536"):
        with pytest.raises(click.BadParameter):
            server_place(text)


def test_a_path_or_a_node_is_for_kubelets_and_not_both_forms_at_once(umbilical: Run) -> None:
    for arguments in (["/metrics"], ["https://10.0.3.7:10250/", "--kubelet", "--node=a", "-n=x"], ["/m", "--node=a"]):
        err = umbilical("proxy", "curl", *arguments, status=2).err
        assert "give --kubelet, and /PATH instead of a URL" in err
