"""`umbilical proxy https`: the HTTP proxy with our own flags and safe defaults."""

from typing import Any, Final

import click
from click.core import ParameterSource

from umbilical.cli.engines import run_until_done
from umbilical.cli.options import FILE, check_readable, start_logging, tls_files
from umbilical.cli.proxy.options import listener_settings, outbound_settings, proxy_options
from umbilical.fault import StartupError
from umbilical.proxies.settings import HttpsSettings
from umbilical.tunnel.settings import TlsFiles

PORT: Final = 3128
"""Squid's, which everybody knows for a proxy's."""
NAME: Final = "proxy https"


@click.command()
@proxy_options(PORT)
@click.option("--http-proxy", default="", metavar="URL", help="The user's proxy for http:// URLs, behind the tunnel.")
@click.option("--https-proxy", default="", metavar="URL", help="The same for CONNECT, which https:// URLs need.")
@click.option("--no-proxy", default="", metavar="LIST", help="What goes past the user's proxy, as in NO_PROXY.")
@click.option(
    "--proxy-credentials-file",
    type=FILE,
    help="USER:PASSWORD for the user's proxy; or give its URL with both in UMBILICAL_PROXY_HTTPS_HTTPS_PROXY.",
)
@click.option("--proxy-ca", type=FILE, help="CAs beside the system's for a proxy by https://.")
@click.option("--listen-cert", type=FILE, help="Speak TLS with clients, by this certificate.")
@click.option("--listen-key", type=FILE, help="Its key.")
@click.option("--listen-ca", type=FILE, help="Serve only clients that show a certificate of this CA.")
@click.pass_context
def https(context: click.Context, /, **options: Any) -> int:
    """Serve as an HTTP proxy through the tunnel, until SIGTERM."""
    for name in ("http_proxy", "https_proxy"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            check_no_secret(name, options[name])
    settings = https_settings(options)
    start_logging(options["log_format"], options["log_level"])
    from umbilical.proxies.https_process import run_https

    return run_until_done(run_https(settings))


def https_settings(options: dict[str, Any]) -> HttpsSettings:
    check_readable(options["proxy_ca"])
    return HttpsSettings(
        listener_settings(options, PORT),
        outbound_settings(options, NAME),
        http_proxy=options["http_proxy"],
        https_proxy=options["https_proxy"],
        no_proxy=options["no_proxy"],
        proxy_authority=options["proxy_ca"],
        proxy_credentials=options["proxy_credentials_file"],
        listen_tls=_listen_tls(options),
    )


def check_no_secret(name: str, url: str) -> None:
    """Whoever can list processes reads their arguments; the message does not show them again."""
    if "@" not in url:
        return
    flag = f"--{name.replace('_', '-')}"
    raise StartupError(
        "UMB547",
        f"{flag} holds a user or a password",
        "every process of this machine can read it there",
        f"--proxy-credentials-file FILE; or give the URL as UMBILICAL_PROXY_HTTPS_{name.upper()}",
    )


def _listen_tls(options: dict[str, Any]) -> TlsFiles:
    files = tls_files("listen-", options["listen_cert"], options["listen_key"], options["listen_ca"])
    if files.authority is not None and files.certificate is None:
        why = "clients show certificates only to a listener that speaks TLS"
        raise StartupError("UMB003", "--listen-ca without --listen-cert", why, "add --listen-cert FILE")
    return files
