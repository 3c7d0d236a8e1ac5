"""`umbilical proxy https`: the HTTP proxy with native flags and defaults."""

from typing import Any

import click
from click.core import ParameterSource

from umbilical.cli.engines import run_until_done
from umbilical.cli.options import check_readable, settings_options, start_logging, tls_files
from umbilical.cli.proxy.options import proxy_values
from umbilical.fault import StartupError
from umbilical.proxies.settings import HTTPS, HTTPS_PORT, HttpsSettings
from umbilical.tunnel.setting_rows import assemble
from umbilical.tunnel.settings import TlsFiles


@click.command()
@settings_options(HTTPS)
@click.pass_context
def https(context: click.Context, /, **options: Any) -> int:
    """Run an HTTP proxy for the tunnel until SIGTERM."""
    for name in ("http_proxy", "https_proxy"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            check_no_secret(name, options[name])
    settings = https_settings(options)
    start_logging(options["log_format"], options["log_level"])
    from umbilical.proxies.https_process import run_https

    return run_until_done(run_https(settings))


def https_settings(options: dict[str, Any]) -> HttpsSettings:
    check_readable(options["proxy_ca"])
    values = proxy_values(HTTPS, options, "proxy https", HTTPS_PORT) | {"listen_tls": _listen_tls(options)}
    return assemble(HttpsSettings, values)


def check_no_secret(name: str, url: str) -> None:
    """Every process of the machine can read our arguments; the message does not repeat them."""
    if "@" not in url:
        return
    flag = f"--{name.replace('_', '-')}"
    raise StartupError(
        "UMB547",
        f"{flag} contains a user name or a password",
        "every process of this machine can read command lines",
        f"use --proxy-credentials-file FILE, or set the URL as UMBILICAL_PROXY_HTTPS_{name.upper()}",
    )


def _listen_tls(options: dict[str, Any]) -> TlsFiles:
    files = tls_files("listen-", options["listen_cert"], options["listen_key"], options["listen_ca"])
    if files.authority is not None and files.certificate is None:
        why = "clients send certificates only over TLS, which needs a server certificate"
        raise StartupError("UMB003", "--listen-ca was given without --listen-cert", why, "add --listen-cert FILE")
    return files
