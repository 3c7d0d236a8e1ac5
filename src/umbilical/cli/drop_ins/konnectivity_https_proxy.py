"""`konnectivity-https-proxy`: our HTTP proxy under HyperShift's name and flags."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.cli import engines
from umbilical.cli.drop_ins import drop_in
from umbilical.cli.drop_ins.drop_in import OptionRefused, optional_path
from umbilical.cli.drop_ins.pflag import BOOL, STRING, Flag, FlagSet, FlagValue, Kind
from umbilical.cli.drop_ins.proxy_flags import SHARED_FLAGS, check_shared_flags, listener_settings, outbound_settings
from umbilical.proxies.settings import HttpsSettings, Resolution

ENVIRONMENT_PREFIX: Final = "KONNECTIVITY_"
"""HTTPS_PROXY itself is this machine's own proxy, on the way to the APIs of clouds."""
CONNECT_PORT: Final = 80
"""HyperShift's for a CONNECT without a port."""


def _hidden(value: FlagValue) -> str:
    return '"(hidden)"' if value else '""'


SECRET: Final = Kind("string", str, _hidden)
"""A URL that may hold a password: the list of options in the log does not show it."""
FLAGS: Final = (
    *SHARED_FLAGS,
    Flag("http-proxy", SECRET, "", "the user's proxy for http:// URLs, reached through the tunnel"),
    Flag("https-proxy", SECRET, "", "the user's proxy for https:// URLs and CONNECT, reached through the tunnel"),
    Flag("no-proxy", STRING, "", "what goes past the user's proxy, as in NO_PROXY; or KONNECTIVITY_NO_PROXY"),
    Flag("http-proxy-file", STRING, "", "file with the value of --http-proxy; or set KONNECTIVITY_HTTP_PROXY"),
    Flag("https-proxy-file", STRING, "", "file with the value of --https-proxy; or set KONNECTIVITY_HTTPS_PROXY"),
    Flag("proxy-ca-path", STRING, "", "CAs beside the system's for a user's proxy by https://"),
    Flag("disable-resolver", BOOL, False, "send names through the tunnel as they are; needs no KUBECONFIG"),
)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    return drop_in.run(HTTPS_PROXY, arguments)


def start(flags: FlagSet) -> int:
    settings = https_settings(flags)
    from umbilical.proxies.https_process import run_https

    return engines.run_until_done(run_https(settings))


def https_settings(flags: FlagSet, environment: Mapping[str, str] = os.environ) -> HttpsSettings:
    return HttpsSettings(
        listener_settings(flags),
        outbound_settings(flags, _resolution(flags), environment),
        http_proxy=_value(flags, "http-proxy", environment),
        https_proxy=_value(flags, "https-proxy", environment),
        no_proxy=_value(flags, "no-proxy", environment),
        http_proxy_file=optional_path(flags.text("http-proxy-file")),
        https_proxy_file=optional_path(flags.text("https-proxy-file")),
        proxy_authority=optional_path(flags.text("proxy-ca-path")),
        default_connect_port=CONNECT_PORT,
    )


def check_flags(flags: FlagSet) -> None:
    check_shared_flags(flags)
    for name in ("http-proxy", "https-proxy"):
        if flags.text(name) and flags.text(f"{name}-file"):
            raise OptionRefused(f"--{name} and --{name}-file say the same thing twice")


def _resolution(flags: FlagSet) -> Resolution:
    """HyperShift's asks for Services first and for the hosted cluster's DNS then, and has no flag to change that."""
    return Resolution.AGENT if flags.switch("disable-resolver") else Resolution.SERVICE


def _value(flags: FlagSet, name: str, environment: Mapping[str, str]) -> str:
    return flags.text(name) or environment.get(ENVIRONMENT_PREFIX + name.upper().replace("-", "_"), "")


def _flags() -> Sequence[Flag]:
    return FLAGS


HTTPS_PROXY: Final = drop_in.DropIn(
    program="konnectivity-https-proxy",
    command="konnectivity-https-proxy",
    about="An HTTP proxy whose connections leave by the agents of a hosted cluster.",
    refusal_prefix="",
    flags=_flags,
    check=check_flags,
    start=start,
)
