"""What `konnectivity-socks5-proxy` and `konnectivity-https-proxy` share: HyperShift's flags, and ours beside them.

Ours differ on purpose where HyperShift's listen on every interface without asking anybody who they are.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from umbilical.cli.drop_ins import go_values
from umbilical.cli.drop_ins.drop_in import OptionRefused
from umbilical.cli.drop_ins.go_values import ValueSyntaxError, quote
from umbilical.cli.drop_ins.pflag import BOOL, STRING, STRING_SLICE, Flag, FlagSet, Kind
from umbilical.dialer.settings import DialerSettings, TcpServer
from umbilical.proxies.settings import LOOPBACK, ListenerSettings, OutboundSettings, Resolution
from umbilical.tunnel.settings import ListenAddress, TlsFiles

NO_KUBECONFIG: Final = (
    "names are to be resolved in the hosted cluster, and KUBECONFIG does not say where it is: "
    "set it, or give --disable-resolver"
)
_LAST_PORT: Final = 65535


def _parse_uint32(text: str) -> int:
    value = go_values.parse_uint(text)
    if value >= 1 << 32:
        raise ValueSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return value


UINT32: Final = Kind("uint32", _parse_uint32, str)

SHARED_FLAGS: Final = (
    Flag("konnectivity-hostname", STRING, "konnectivity-server-local", "the server's host, as its certificate has it"),
    Flag("konnectivity-port", UINT32, 8090, "the server's port for clients"),
    Flag("serving-port", UINT32, 8090, "port to listen on"),
    Flag(
        "connect-directly-to-cloud-apis",
        BOOL,
        False,
        "reach the APIs of clouds by this machine's own network and HTTPS_PROXY",
    ),
    Flag("prefer-ipv4", BOOL, False, "use IPv6 addresses of a name only if it has no others"),
    Flag("ca-cert-path", STRING, "/etc/konnectivity/proxy-ca/ca.crt", "CA of the server's certificate"),
    Flag("tls-cert-path", STRING, "/etc/konnectivity/proxy-client/tls.crt", "the certificate to show to the server"),
    Flag("tls-key-path", STRING, "/etc/konnectivity/proxy-client/tls.key", "its key"),
    Flag("bind-address", STRING_SLICE, LOOPBACK, "addresses to listen on; :: is every interface"),
    Flag("health-port", UINT32, 0, "port for liveness, readiness and metrics on every interface; 0 is none"),
)


def check_shared_flags(flags: FlagSet) -> None:
    for name in ("konnectivity-hostname", "ca-cert-path", "tls-cert-path", "tls-key-path"):
        if not flags.text(name):
            raise OptionRefused(f"--{name} must not be empty")
    for name in ("konnectivity-port", "serving-port", "health-port"):
        lowest = 0 if name == "health-port" else 1
        if not lowest <= flags.number(name) <= _LAST_PORT:
            raise OptionRefused(f"--{name} {flags.number(name)} is no port")
    if not flags.items("bind-address"):
        raise OptionRefused("--bind-address must not be empty")


def listener_settings(flags: FlagSet) -> ListenerSettings:
    port, health = flags.number("serving-port"), flags.number("health-port")
    return ListenerSettings(
        listen=tuple(ListenAddress(host.strip("[]"), port) for host in flags.items("bind-address")),
        ipv6_if_there=not flags.changed("bind-address"),
        health=ListenAddress("", health) if health else None,
    )


def dialer_settings(flags: FlagSet) -> DialerSettings:
    files = (Path(flags.text(name)) for name in ("tls-cert-path", "tls-key-path", "ca-cert-path"))
    server = TcpServer(flags.text("konnectivity-hostname"), flags.number("konnectivity-port"))
    return DialerSettings(servers=(server,), tls=TlsFiles(*files))


def direct_suffixes(flags: FlagSet) -> tuple[str, ...]:
    if not flags.switch("connect-directly-to-cloud-apis"):
        return ()
    from umbilical.proxies.direct import CLOUD_SUFFIXES

    return CLOUD_SUFFIXES


def hosted_kubeconfig(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The first file of KUBECONFIG. Never a pod's own account, as HyperShift would: that is another cluster's."""
    first = environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else None


def outbound_settings(flags: FlagSet, resolution: Resolution, environment: Mapping[str, str]) -> OutboundSettings:
    """Raises `OptionRefused` where names cannot be resolved that way."""
    kubeconfig = None if resolution is Resolution.AGENT else hosted_kubeconfig(environment)
    if kubeconfig is None and resolution is not Resolution.AGENT:
        raise OptionRefused(NO_KUBECONFIG)
    return OutboundSettings(
        dialer=dialer_settings(flags),
        resolution=resolution,
        kubeconfig=kubeconfig,
        prefer_ipv4=flags.switch("prefer-ipv4"),
        direct_suffixes=direct_suffixes(flags),
    )
