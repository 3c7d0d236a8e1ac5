"""`umbilical hosted check`: check the tunnel of a hosted control plane, server by server."""

from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.checks.check import Finding, Outcome
from umbilical.cli.findings import apply_options, listed, output_option, report
from umbilical.cli.options import FILE, duration, server_address, server_place, tls_files
from umbilical.cli.terminal import has_colour
from umbilical.codes import FINDINGS, INFRASTRUCTURE
from umbilical.dialer.settings import TcpServer

if TYPE_CHECKING:
    from umbilical.hosted.clusters import CheckOptions

_CLUSTERS: Final = (
    click.option("--kubeconfig", type=FILE, help="Kubeconfig of the hosted cluster."),
    click.option("--management-kubeconfig", type=FILE, help="Kubeconfig of the management cluster; needs --namespace."),
    click.option("-n", "--namespace", metavar="NAME", help="Namespace of the control plane in the management cluster."),
)
_FILES: Final = (
    click.option(
        "--server",
        type=server_place,
        multiple=True,
        metavar="HOST:PORT|unix:PATH",
        help="Address of a server's port for clients; repeatable. Default: forward ports of the pods.",
    ),
    click.option("--server-name", default="", metavar="NAME", help="Name in the servers' certificates. Default: host."),
    click.option("--ca", type=FILE, help="CA of the servers' certificates. Default: read from the namespace."),
    click.option("--cert", type=FILE, help="Client certificate for the servers."),
    click.option("--key", type=FILE, help="Private key of --cert."),
    click.option("--agent-cert", type=FILE, help="Certificate of an agent, which servers must refuse."),
    click.option("--agent-key", type=FILE, help="Private key of --agent-cert."),
    click.option("--kubelet-ca", type=FILE, help="CA of the kubelets' certificates."),
    click.option("--kubelet-cert", type=FILE, help="Client certificate for the kubelets."),
    click.option("--kubelet-key", type=FILE, help="Private key of --kubelet-cert."),
)
_PLACES: Final = (
    click.option(
        "--health", type=server_address, multiple=True, metavar="HOST:PORT", help="Server health port; repeatable."
    ),
    click.option("--node", "nodes", multiple=True, metavar="ADDRESS", help="Node address; repeatable. Default: all."),
    click.option(
        "--kubelet-port", type=click.IntRange(1, 65535), default=10250, show_default=True, help="Port of the kubelets."
    ),
    click.option(
        "--proxy-health", type=server_address, multiple=True, metavar="HOST:PORT", help="Proxy health port; repeatable."
    ),
    click.option("--timeout", type=duration, default="10s", show_default=True, help="Timeout for each hop of a dial."),
)


@click.command()
@apply_options((*_CLUSTERS, *_FILES, *_PLACES))
@click.option("--list", "lists", is_flag=True, help="List the checks and exit.")
@output_option("table", "json", "junit")
def check(output: str, lists: bool, **options: Any) -> int:
    """Check the tunnel of a hosted control plane.

    Checks servers, agents, kubelets through the tunnel, logs, certificates, Services and NetworkPolicies. A check
    without its input is skipped and shows why. The exit status is 1 if a check fails, 4 if none could run.
    """
    from umbilical.hosted.check import check_findings
    from umbilical.hosted.check_rules import CATALOGUE, GROUPS

    if lists:
        click.echo(listed(CATALOGUE, GROUPS), nl=False)
        return 0
    findings = check_findings(_check_options(options))
    text = report(findings, output, kind="HostedReport", suite="hosted.check", groups=GROUPS)
    click.echo(text, nl=False, color=has_colour())
    return _status(findings)


def _check_options(options: dict[str, Any]) -> "CheckOptions":
    from umbilical.hosted.clusters import CheckOptions

    if (options["management_kubeconfig"] is None) != (options["namespace"] is None):
        raise click.UsageError("--management-kubeconfig and --namespace must be given together")
    sources = ("kubeconfig", "namespace", "server", "health", "proxy_health")
    if not any(options[name] for name in sources):
        raise click.UsageError("give --kubeconfig, --namespace, --server, --health or --proxy-health")
    name = options["server_name"]
    return CheckOptions(
        management_kubeconfig=options["management_kubeconfig"],
        namespace=options["namespace"],
        hosted_kubeconfig=options["kubeconfig"],
        servers=tuple(
            TcpServer(one.host, one.port, name) if isinstance(one, TcpServer) else one for one in options["server"]
        ),
        client=tls_files("", options["cert"], options["key"], options["ca"]),
        agent=tls_files("agent-", options["agent_cert"], options["agent_key"], None),
        kubelet=tls_files("kubelet-", options["kubelet_cert"], options["kubelet_key"], options["kubelet_ca"]),
        health=options["health"],
        nodes=options["nodes"],
        kubelet_port=options["kubelet_port"],
        proxies=options["proxy_health"],
        hop_seconds=max(options["timeout"], 0.001),
    )


_REACHED: Final = frozenset({"M1", "H1", "S1", "P1"})
"""Checks of whether an API, a server or a proxy answers."""


def _status(findings: list[Finding]) -> int:
    """If no check could run, the status is not 0."""
    failing = {finding.id for finding in findings if finding.outcome is Outcome.FAILED}
    is_seen = any(finding.outcome in (Outcome.PASSED, Outcome.WARNED) for finding in findings)
    if not is_seen and failing <= _REACHED:
        return INFRASTRUCTURE
    return FINDINGS if failing else 0
