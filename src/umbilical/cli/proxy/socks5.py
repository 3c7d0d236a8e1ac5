"""`umbilical proxy socks5`: the SOCKS5 proxy with native flags and defaults."""

from typing import Any

import click

from umbilical.cli.engines import run_until_done
from umbilical.cli.options import settings_options, start_logging
from umbilical.cli.proxy.options import proxy_values
from umbilical.proxies.settings import SOCKS5, SOCKS5_PORT, Socks5Settings
from umbilical.tunnel.setting_rows import assemble


@click.command()
@settings_options(SOCKS5)
def socks5(**options: Any) -> int:
    """Run a SOCKS5 proxy for the tunnel until SIGTERM."""
    settings = socks5_settings(options)
    start_logging(options["log_format"], options["log_level"])
    from umbilical.proxies.socks5 import run_socks5

    return run_until_done(run_socks5(settings))


def socks5_settings(options: dict[str, Any]) -> Socks5Settings:
    return assemble(Socks5Settings, proxy_values(SOCKS5, options, "proxy socks5", SOCKS5_PORT))
