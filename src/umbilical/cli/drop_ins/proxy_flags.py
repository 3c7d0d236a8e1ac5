"""Flags shared by `konnectivity-socks5-proxy` and `konnectivity-https-proxy`: checks, and conversion to settings.

The defaults differ on purpose: HyperShift's proxies listen on every interface without authentication.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from umbilical.cli.drop_ins.drop_in import OptionRefused, optional_path, values_of
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.dialer.settings import TcpServer
from umbilical.proxies.settings import Resolution
from umbilical.tunnel.setting_rows import Table
from umbilical.tunnel.settings import ListenAddress

NO_KUBECONFIG: Final = (
    "KUBECONFIG is not set, and names are resolved in the hosted cluster: set KUBECONFIG, or add --disable-resolver"
)
_LAST_PORT: Final = 65535


def check_shared_flags(flags: FlagSet) -> None:
    for name in ("konnectivity-hostname", "ca-cert-path", "tls-cert-path", "tls-key-path"):
        if not flags.text(name):
            raise OptionRefused(f"--{name} must not be empty")
    for name in ("konnectivity-port", "serving-port", "health-port"):
        lowest = 0 if name == "health-port" else 1
        if not lowest <= flags.number(name) <= _LAST_PORT:
            raise OptionRefused(f"--{name} {flags.number(name)} is not a port number")
    if not flags.items("bind-address"):
        raise OptionRefused("--bind-address must not be empty")


def hosted_kubeconfig(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The first file of KUBECONFIG. Unlike HyperShift's, never the pod's service account: it is for another cluster."""
    return optional_path(environment.get("KUBECONFIG", "").split(os.pathsep)[0])


def proxy_values(
    table: Table, flags: FlagSet, resolution: Resolution, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return values by path. Raises `OptionRefused` without a kubeconfig to resolve names with."""
    kubeconfig = None if resolution is Resolution.AGENT else hosted_kubeconfig(environment)
    if kubeconfig is None and resolution is not Resolution.AGENT:
        raise OptionRefused(NO_KUBECONFIG)
    port, health = flags.number("serving-port"), flags.number("health-port")
    server = TcpServer(flags.text("konnectivity-hostname"), flags.number("konnectivity-port"))
    return values_of(table, flags) | {
        "listener.listen": tuple(ListenAddress(host.strip("[]"), port) for host in flags.items("bind-address")),
        "listener.ipv6_if_there": not flags.changed("bind-address"),
        "listener.health": ListenAddress("", health) if health else None,
        "outbound.dialer.servers": (server,),
        "outbound.resolution": resolution,
        "outbound.kubeconfig": kubeconfig,
        "outbound.direct_suffixes": _direct_suffixes(flags),
    }


def _direct_suffixes(flags: FlagSet) -> tuple[str, ...]:
    if not flags.switch("connect-directly-to-cloud-apis"):
        return ()
    from umbilical.proxies.direct import CLOUD_SUFFIXES

    return CLOUD_SUFFIXES
