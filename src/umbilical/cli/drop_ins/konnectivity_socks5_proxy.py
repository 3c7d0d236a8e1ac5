"""`konnectivity-socks5-proxy`: our SOCKS5 proxy under HyperShift's name and flags."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_flags import check_shared_flags, proxy_values
from umbilical.proxies.settings import SOCKS5, Resolution, Socks5Settings
from umbilical.tunnel.setting_rows import assemble

FLAGS: Final = drop_in.flags_of(SOCKS5)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    return drop_in.run(SOCKS5_PROXY, arguments)


def start(flags: FlagSet) -> int:
    settings = socks5_settings(flags)
    from umbilical.proxies.socks5 import run_socks5

    return engines.run_until_done(run_socks5(settings))


def socks5_settings(flags: FlagSet, environment: Mapping[str, str] = os.environ) -> Socks5Settings:
    return assemble(Socks5Settings, proxy_values(SOCKS5, flags, resolution_of(flags), environment))


def resolution_of(flags: FlagSet) -> Resolution:
    """Map HyperShift's boolean flags to one value.

    Without flags HyperShift's proxy asks the management cluster's DNS and dials the result through the tunnel, which is
    wrong for names that both clusters have; ours asks the hosted cluster. As in HyperShift's proxy, the management flag
    alone has no effect.
    """
    if flags.switch("disable-resolver"):
        return Resolution.AGENT
    if flags.switch("resolve-from-guest-cluster-dns") and flags.switch("resolve-from-management-cluster-dns"):
        return Resolution.HOSTED_THEN_MANAGEMENT
    return Resolution.SERVICE


SOCKS5_PROXY: Final = drop_in.DropIn(
    program="konnectivity-socks5-proxy",
    command="konnectivity-socks5-proxy",
    about="A SOCKS5 proxy that connects through the agents of a hosted cluster.",
    refusal_prefix="",
    flags=lambda: FLAGS,
    check=check_shared_flags,
    start=start,
)
