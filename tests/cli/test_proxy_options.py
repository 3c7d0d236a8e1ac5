"""Options of both proxies: what they become, and what is refused before anything starts."""

from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.native import options_of

from umbilical.cli.proxy_options import listener_settings, loopback, outbound_settings, proxy_options, server_place
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import ListenerSettings, OutboundSettings, Resolution
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import ListenAddress, TlsFiles


@click.command()
@proxy_options(1080)
def command(**_: Any) -> None:
    """Stands for either."""


def listener(*arguments: str) -> ListenerSettings:
    return listener_settings(options_of(command, ("--server=unix:/s", *arguments)), 1080)


def outbound(*arguments: str) -> OutboundSettings:
    return outbound_settings(options_of(command, arguments), "proxy socks5")


def test_both_loopbacks_are_the_default_and_ipv6_may_be_missing() -> None:
    assert listener() == ListenerSettings(loopback(1080), ipv6_if_there=True)
    assert loopback(1080) == (ListenAddress("127.0.0.1", 1080), ListenAddress("::1", 1080))


def test_what_was_given_must_be_there() -> None:
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


def test_a_unix_socket_needs_no_certificates_and_names_go_to_the_agent() -> None:
    assert outbound("--server=unix:/run/k.sock") == OutboundSettings(
        DialerSettings((UnixServer(Path("/run/k.sock")),)), Resolution.AGENT
    )


def test_options_of_the_dialer_reach_it(tmp_path: Path) -> None:
    """Files are not looked at: they may come later, and are waited for."""
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
        resolution=Resolution.GUEST_THEN_MANAGEMENT,
        guest_dns=("172.30.0.10", "fd00::a"),
        guest_dns_service="kube-system/kube-dns",
        cluster_domain="c.example",
        kubeconfig=kubeconfig,
        prefer_ipv4=True,
        direct_suffixes=(".corp", *CLOUD_SUFFIXES),
        never_direct=("proxy.azure.com",),
    )


def test_whoever_says_where_the_guests_dns_is_gets_it() -> None:
    assert outbound("--server=unix:/s", "--guest-dns=172.30.0.10").resolution is Resolution.GUEST
    assert outbound("--server=unix:/s", "--guest-dns=1.2.3.4", "--resolve=agent").resolution is Resolution.AGENT


def test_without_the_guests_api_its_dns_alone_is_enough_for_all_but_services() -> None:
    found = outbound("--server=unix:/s", "--resolve=guest-then-management", "--guest-dns=172.30.0.10")
    assert (found.resolution, found.kubeconfig) == (Resolution.GUEST_THEN_MANAGEMENT, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--server=a:1",), "needs --ca"),
        (("--server=unix:/s", "--cert=/c"), "--cert without --key"),
        (("--server=unix:/s", "--key=/k"), "--key without --cert"),
        (("--server=unix:/s", "--resolve=guest"), "needs --guest-dns or --kubeconfig"),
        (("--server=unix:/s", "--resolve=service", "--guest-dns=1.2.3.4"), "needs --kubeconfig"),
        (("--server=unix:/s", "--resolve=guest-then-management"), "needs --guest-dns or --kubeconfig"),
        (("--server=unix:/s", "--kubeconfig=/no/such/file"), "cannot read /no/such/file"),
    ],
)
def test_what_cannot_work_is_told_at_once(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(StartupError) as fault:
        outbound(*arguments)
    assert words in fault.value.what


@pytest.mark.parametrize("text", ["unix:", ":8090", "host", "host:0", "a:b:c", "host:65536"])
def test_a_server_is_a_path_or_a_host_with_a_port(text: str) -> None:
    with pytest.raises(click.BadParameter):
        server_place(text)
