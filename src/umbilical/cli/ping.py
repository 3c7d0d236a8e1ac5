"""`umbilical ping`: dials through the tunnel as a client and shows the time of each hop.

The options for access to the tunnel are here too; `proxy curl` shares them.
"""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli import ping_text
from umbilical.cli.findings import apply_options, output_option
from umbilical.cli.options import FILE, duration, named, server_address, server_place, tls_files
from umbilical.cli.terminal import has_unicode
from umbilical.codes import FINDINGS, INFRASTRUCTURE, INTERRUPTED
from umbilical.dialer.settings import Protocol, UnixServer
from umbilical.tunnel.settings import ServerAddress

if TYPE_CHECKING:
    from umbilical.hosted.access import AccessRequest, TunnelAccess
    from umbilical.hosted.endpoint_tls import EndpointTls
    from umbilical.hosted.route import EndpointRoute, PingPace, PingResult

_OPTIONS: Final = (
    click.option(
        "--server", type=server_place, metavar="HOST:PORT|unix:PATH", help="Address of the server's port for clients."
    ),
    click.option("--ca", type=FILE, help="CA of the server's certificate; required for HOST:PORT."),
    click.option("--cert", type=FILE, help="Client certificate for the server."),
    click.option("--key", type=FILE, help="Private key of --cert."),
    click.option("--server-name", default="", metavar="NAME", help="Name in the server's certificate. Default: host."),
    click.option(
        "--protocol",
        type=click.Choice([protocol.value for protocol in Protocol]),
        default=Protocol.HTTP_CONNECT.value,
        show_default=True,
        help="Protocol that the server speaks with clients.",
    ),
    click.option("-n", "--namespace", metavar="NAME", help="Control-plane namespace, for server and TLS files."),
    click.option("--kubeconfig", type=FILE, help="Kubeconfig of the management cluster. Default: $KUBECONFIG."),
)


access_options: Final = apply_options(_OPTIONS)


def access_request(options: dict[str, Any], *, needs_kubelet: bool = False) -> "AccessRequest":
    """Validate the options, without a connection."""
    from umbilical.hosted.access import AccessRequest

    namespace, kubeconfig = options["namespace"], options["kubeconfig"]
    if kubeconfig is not None and namespace is None:
        raise click.UsageError("--kubeconfig needs --namespace, the namespace of the control plane")
    if namespace is not None and kubeconfig is None:
        kubeconfig = _kubeconfig_of_environment()
    if namespace is not None and kubeconfig is None and options["server"] is None:
        raise click.UsageError("--namespace needs --kubeconfig or $KUBECONFIG; in a pod give --server instead")
    return AccessRequest(
        server=options["server"] and named(options["server"], options["server_name"]),
        tls=tls_files("", options["cert"], options["key"], options["ca"]),
        namespace=namespace,
        kubeconfig=kubeconfig,
        server_name=options["server_name"],
        protocol=Protocol(options["protocol"]),
        needs_kubelet=needs_kubelet,
    )


def _kubeconfig_of_environment() -> Path | None:
    """Return the first of several files: kubectl prefers it too where two differ."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else None


MAX_COUNT: Final = 1_000_000


def seconds(text: str) -> float:
    """Parse a duration, or a bare number of seconds as users of ping type it."""
    return duration(f"{text}s" if text.replace(".", "", 1).isdigit() else text)


_ENDPOINT: Final = (
    click.option("--tls", "asks_tls", is_flag=True, help="Also do a TLS handshake with the endpoint."),
    click.option(
        *("--endpoint-ca", "--target-ca"), type=FILE, help="CA to verify the endpoint's certificate; requires --tls."
    ),
    click.option(
        *("--endpoint-name", "--target-name"),
        default="",
        metavar="NAME",
        help="Name in the endpoint's certificate, if it is not HOST.",
    ),
    click.option("--endpoint-cert", type=FILE, help="Client certificate for the endpoint."),
    click.option("--endpoint-key", type=FILE, help="Private key of --endpoint-cert."),
)


@click.command()
@click.argument("endpoint", type=server_address, metavar="HOST:PORT")
@click.option("-c", "--count", type=click.IntRange(1, MAX_COUNT), default=4, show_default=True, help="Number of dials.")
@click.option("-i", "--interval", type=seconds, default="1s", show_default=True, help="Interval between dials.")
@click.option(*("-W", "--timeout"), type=seconds, default="10s", show_default=True, help="Timeout for each hop.")
@apply_options(_ENDPOINT)
@access_options
@output_option("table", "json")
def ping(endpoint: ServerAddress, output: str, **options: Any) -> int:
    """Dial HOST:PORT through the tunnel and show each hop.

    The hops are server, TLS, agent and endpoint. The agent resolves a host name. The exit status is 0 if all dials
    succeed, 1 if some fail, 4 if all fail.
    """
    from umbilical.hosted.access import open_access
    from umbilical.hosted.route import EndpointRoute, PingPace, RouteEndpoint

    request = access_request(options)
    wanted = RouteEndpoint(endpoint.host, endpoint.port, _endpoint_tls(options))
    with open_access(request) as access:
        route = EndpointRoute(access, wanted, max(options["timeout"], 0.001))
        return _run(route, access, PingPace(options["count"], options["interval"]), output)


def _endpoint_tls(options: dict[str, Any]) -> "EndpointTls | None":
    from umbilical.hosted.endpoint_tls import EndpointTls

    ca, cert, key = options["endpoint_ca"], options["endpoint_cert"], options["endpoint_key"]
    files = tls_files("endpoint-", cert, key, ca)
    if not options["asks_tls"]:
        if ca is not None or cert is not None or options["endpoint_name"]:
            raise click.UsageError("--endpoint-ca, --endpoint-cert and --endpoint-name need --tls")
        return None
    return EndpointTls(files, options["endpoint_name"], is_verified=ca is not None)


def _run(route: "EndpointRoute", access: "TunnelAccess", pace: "PingPace", output: str) -> int:
    from umbilical.hosted.route import ping as run_pings

    is_table = output == "table"
    hops = ping_text.columns(tls=route.endpoint.tls is not None, unix=isinstance(access.server, UnixServer))
    results: list[PingResult] = []

    def show(result: "PingResult") -> None:
        if is_table and not results:
            click.echo(f"ping {route.endpoint} through {access.title}\n\n{ping_text.header(hops)}")
        results.append(result)
        if is_table:
            click.echo(ping_text.row(result, hops, has_unicode()))

    status = None
    try:
        asyncio.run(run_pings(route, pace, show))
    except KeyboardInterrupt:
        status = INTERRUPTED
    if results:
        _finish(route, access.title, results, hops, is_table)
    return _status(results) if status is None else status


def _finish(route: "EndpointRoute", server: str, results: "list[PingResult]", hops: list[str], is_table: bool) -> None:
    from umbilical.hosted.route import distinct_failures, summarize

    now = datetime.now(UTC)
    if is_table:
        parts = (ping_text.details(results, now), ping_text.summary_lines(summarize(results), hops))
        click.echo("".join("\n" + "\n".join(lines) + "\n" for lines in parts if lines), nl=False)
    else:
        click.echo(ping_text.as_json(str(route.endpoint), server, results, now), nl=False)
    for failure in distinct_failures(results):
        click.echo(ping_text.failure_lines(failure), err=True)


def _status(results: "list[PingResult]") -> int:
    passed = sum(result.is_ok for result in results)
    if passed == len(results):
        return 0
    return FINDINGS if passed else INFRASTRUCTURE
