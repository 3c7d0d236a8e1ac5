"""HyperShift's flags that both of its proxies have, and ours beside them."""

from pathlib import Path

import pytest

from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagError, FlagSet
from umbilical.cli.proxy_flags import (
    SHARED_FLAGS,
    check_shared_flags,
    dialer_settings,
    direct_suffixes,
    hosted_kubeconfig,
    listener_settings,
)
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer
from umbilical.proxies.direct import CLOUD_SUFFIXES
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.settings import ListenAddress, TlsFiles


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("test", SHARED_FLAGS)
    parsed.parse(arguments)
    return parsed


def test_names_and_defaults_are_hypershifts() -> None:
    given = {flag.name: flag.default for flag in SHARED_FLAGS}
    assert given == {
        "konnectivity-hostname": "konnectivity-server-local",
        "konnectivity-port": 8090,
        "serving-port": 8090,
        "connect-directly-to-cloud-apis": False,
        "prefer-ipv4": False,
        "ca-cert-path": "/etc/konnectivity/proxy-ca/ca.crt",
        "tls-cert-path": "/etc/konnectivity/proxy-client/tls.crt",
        "tls-key-path": "/etc/konnectivity/proxy-client/tls.key",
        # Ours.
        "bind-address": ("127.0.0.1", "::1"),
        "health-port": 0,
    }


def test_loopback_is_the_default() -> None:
    both = (ListenAddress("127.0.0.1", 8090), ListenAddress("::1", 8090))
    assert listener_settings(flags()) == ListenerSettings(both, ipv6_if_there=True)


def test_every_interface_is_for_whoever_asks() -> None:
    found = listener_settings(flags("--bind-address=::", "--serving-port=8092", "--health-port=9000"))
    assert found.listen == (ListenAddress("::", 8092),)
    assert not found.ipv6_if_there
    assert found.health == ListenAddress("", 9000)


def test_the_server_is_known_by_its_host_and_shown_our_certificate() -> None:
    found = dialer_settings(
        flags("--konnectivity-hostname=k", "--konnectivity-port=9", "--ca-cert-path=/c", "--tls-key-path=/k")
    )
    files = TlsFiles(Path("/etc/konnectivity/proxy-client/tls.crt"), Path("/k"), Path("/c"))
    assert found == DialerSettings((TcpServer("k", 9),), files, Protocol.HTTP_CONNECT)


def test_clouds_are_reached_directly_only_if_asked_for() -> None:
    assert direct_suffixes(flags()) == ()
    assert direct_suffixes(flags("--connect-directly-to-cloud-apis")) == CLOUD_SUFFIXES


@pytest.mark.parametrize(
    "argument",
    [
        "--konnectivity-port=0",
        "--serving-port=65536",
        "--health-port=70000",
        "--konnectivity-hostname=",
        "--ca-cert-path=",
        "--bind-address=",
    ],
)
def test_what_cannot_work_is_refused(argument: str) -> None:
    with pytest.raises(OptionRefused):
        check_shared_flags(flags(argument))


@pytest.mark.parametrize("value", ["-1", "4294967296", "x"])
def test_a_port_is_an_unsigned_number_of_32_bits(value: str) -> None:
    with pytest.raises(FlagError, match="invalid argument"):
        flags(f"--serving-port={value}")


def test_the_hosted_clusters_kubeconfig_comes_from_the_environment_alone() -> None:
    assert hosted_kubeconfig({}) is None
    assert hosted_kubeconfig({"KUBECONFIG": ""}) is None
    assert hosted_kubeconfig({"KUBECONFIG": "/a:/b"}) == Path("/a")
