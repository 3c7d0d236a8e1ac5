"""`konnectivity-https-proxy`: our HTTP proxy under HyperShift's name and flags."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.drop_in import OptionRefused
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_flags import check_shared_flags, proxy_values
from umbilical.proxies.settings import HTTPS, HttpsSettings, Resolution
from umbilical.tunnel.setting_rows import assemble

CONNECT_PORT: Final = 80
"""HyperShift's default port for a CONNECT without one."""
FLAGS: Final = drop_in.flags_of(HTTPS)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    return drop_in.run(HTTPS_PROXY, arguments)


def start(flags: FlagSet) -> int:
    settings = https_settings(flags)
    from umbilical.proxies.https_process import run_https

    return engines.run_until_done(run_https(settings))


def https_settings(flags: FlagSet, environment: Mapping[str, str] = os.environ) -> HttpsSettings:
    values = proxy_values(HTTPS, flags, _resolution(flags), environment)
    from_environment = {row.field: environment.get(row.environment, "") for row in HTTPS if row.flags}
    values |= {path: values[path] or text for path, text in from_environment.items() if text}
    return assemble(HttpsSettings, values | {"default_connect_port": CONNECT_PORT})


def check_flags(flags: FlagSet) -> None:
    check_shared_flags(flags)
    for name in ("http-proxy", "https-proxy"):
        if flags.text(name) and flags.text(f"{name}-file"):
            raise OptionRefused(f"--{name} and --{name}-file cannot be combined")


def _resolution(flags: FlagSet) -> Resolution:
    """Like HyperShift's proxy: Services first, then the hosted cluster's DNS; there is no flag for the order."""
    return Resolution.AGENT if flags.switch("disable-resolver") else Resolution.SERVICE


HTTPS_PROXY: Final = drop_in.DropIn(
    program="konnectivity-https-proxy",
    command="konnectivity-https-proxy",
    about="An HTTP proxy that connects through the agents of a hosted cluster.",
    refusal_prefix="",
    flags=lambda: FLAGS,
    check=check_flags,
    start=start,
)
