"""`umbilical firewall check`: a TCP and a TLS probe of the server's port for agents, from this machine."""

import re
from pathlib import Path
from typing import Final

import click

from umbilical.cli.findings import output_option
from umbilical.cli.options import FILE, duration, tls_files
from umbilical.cli.terminal import has_colour, has_unicode
from umbilical.codes import FINDINGS
from umbilical.firewall.platforms.request import DEFAULT_PORT
from umbilical.tunnel.settings import ListenAddress

_LAST_PORT: Final = 65535
_BRACKETED: Final = re.compile(r"\[([^\[\]]*)\](?::(\d{1,5}))?")


def target(text: str) -> ListenAddress:
    """Parse `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT` or a bare IPv6 address."""
    bracketed = _BRACKETED.fullmatch(text)
    host, port = (bracketed[1], bracketed[2]) if bracketed else _split(text)
    if not host or any(char.isspace() or char in "[]/" for char in host):
        raise click.BadParameter(f"{text!r} is not a HOST or HOST:PORT")
    number = DEFAULT_PORT if port is None else int(port)
    if not 1 <= number <= _LAST_PORT:
        raise click.BadParameter(f"port {number} is not between 1 and {_LAST_PORT}")
    return ListenAddress(host, number)


@click.command()
@click.argument("place", type=target, metavar="HOST[:PORT]")
@click.option("--ca", type=FILE, help="CA certificate that agents trust.")
@click.option("--cert", type=FILE, help="Certificate of an agent.")
@click.option("--key", type=FILE, help="Private key of --cert.")
@click.option(
    "--timeout", type=duration, default="5s", show_default=True, help="Timeout of each connection and TLS handshake."
)
@output_option("table", "json")
def check(
    place: ListenAddress, ca: Path | None, cert: Path | None, key: Path | None, timeout: float, output: str
) -> int:
    """Test whether agents can reach the port from here.

    Tests TCP, then TLS: the certificate's names and expiry, and that the server requires a client certificate.
    """
    from datetime import UTC, datetime

    from umbilical.checks.check import has_failed, run_checks
    from umbilical.checks.report import as_json, as_table
    from umbilical.firewall.probe import ProbeTlsFiles, probe
    from umbilical.firewall.probe_checks import CHECKS

    tls_files("", cert, key, ca)
    result = probe(place.host, place.port, ProbeTlsFiles(ca, cert, key), max(timeout, 0.001), datetime.now(UTC))
    findings = run_checks(CHECKS, result)
    if output == "json":
        details = {"host": place.host, "port": place.port, "tcp": result.tcp.state.value}
        click.echo(as_json(findings, "FirewallCheck", details), nl=False)
    else:
        click.echo(as_table(findings, colour=has_colour(), unicode=has_unicode()), nl=False, color=True)
    return FINDINGS if has_failed(findings) else 0


def _split(text: str) -> tuple[str, str | None]:
    host, colon, port = text.rpartition(":")
    if not colon or ":" in host:
        return text, None
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(_LAST_PORT))):
        raise click.BadParameter(f"{text!r} has no port number after the colon")
    return host, port
