"""`umbilical proxy socks5`: the SOCKS5 proxy with our own flags and safe defaults."""

from pathlib import Path
from typing import Any, Final

import click

from umbilical.cli.engines import run_until_done
from umbilical.cli.options import FILE, start_logging
from umbilical.cli.proxy.options import listener_settings, outbound_settings, proxy_options
from umbilical.proxies.settings import Socks5Settings

PORT: Final = 1080
"""IANA's for SOCKS."""
NAME: Final = "proxy socks5"


@click.command()
@proxy_options(PORT)
@click.option("--credentials-file", type=FILE, help="Ask for a password: lines of USER:PASSWORD, read when it changes.")
def socks5(credentials_file: Path | None, **options: Any) -> int:
    """Serve SOCKS5 through the tunnel, until SIGTERM."""
    settings = socks5_settings(options, credentials_file)
    start_logging(options["log_format"], options["log_level"])
    from umbilical.proxies.socks5_process import run_socks5

    return run_until_done(run_socks5(settings))


def socks5_settings(options: dict[str, Any], credentials: Path | None) -> Socks5Settings:
    return Socks5Settings(listener_settings(options, PORT), outbound_settings(options, NAME), credentials)
