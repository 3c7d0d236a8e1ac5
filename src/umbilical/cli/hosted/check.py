"""`umbilical hosted check`: does the tunnel of a hosted control plane do what it is for, server by server."""

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
    click.option("--kubeconfig", type=FILE, help="Of the hosted cluster."),
    click.option("--management-kubeconfig", type=FILE, help="Of the management cluster; with --namespace."),
    click.option("-n", "--namespace", metavar="NAME", help="The control plane's namespace there."),
)
_FILES: Final = (
    click.option(
        "--server",
        type=server_place,
        multiple=True,
        metavar="HOST:PORT|unix:PATH",
        help="A server's port for clients, one by one; else ports of the pods are forwarded.",
    ),
    click.option("--server-name", default="", metavar="NAME", help="Whom their certificates must be for."),
    click.option("--ca", type=FILE, help="CA of the servers' certificates; else from the namespace."),
    click.option("--cert", type=FILE, help="A client's certificate."),
    click.option("--key", type=FILE, help="Its key."),
    click.option("--agent-cert", type=FILE, help="An agent's certificate, which servers must turn away."),
    click.option("--agent-key", type=FILE, help="Its key."),
    click.option("--kubelet-ca", type=FILE, help="CA of the kubelets' certificates."),
    click.option("--kubelet-cert", type=FILE, help="A certificate to show to kubelets."),
    click.option("--kubelet-key", type=FILE, help="Its key."),
)
_PLACES: Final = (
    click.option(
        "--health", type=server_address, multiple=True, metavar="HOST:PORT", help="A server's health port, one by one."
    ),
    click.option("--node", "nodes", multiple=True, metavar="ADDRESS", help="A node; else those of the cluster."),
    click.option(
        "--kubelet-port", type=click.IntRange(1, 65535), default=10250, show_default=True, help="With --node."
    ),
    click.option(
        "--proxy-health", type=server_address, multiple=True, metavar="HOST:PORT", help="A proxy's health port."
    ),
    click.option("--timeout", type=duration, default="10s", show_default=True, help="For every hop of a dial."),
)


@click.command()
@apply_options((*_CLUSTERS, *_FILES, *_PLACES))
@click.option("--list", "lists", is_flag=True, help="List the checks and stop.")
@output_option("table", "json", "junit")
def check(output: str, lists: bool, **options: Any) -> int:
    """Check the tunnel: servers, agents, kubelets through it, logs, certificates, Services and policies.

    What cannot be looked at is skipped and says why. The status is 1 when a check fails, 4 when none could be made.
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
        raise click.UsageError("--management-kubeconfig and --namespace go together")
    sources = ("kubeconfig", "namespace", "server", "health", "proxy_health")
    if not any(options[name] for name in sources):
        raise click.UsageError("say what to look at: --kubeconfig, --management-kubeconfig with --namespace, or files")
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
"""The checks that somebody answers at all."""


def _status(findings: list[Finding]) -> int:
    """A report in which nothing was looked at is no good news."""
    failing = {finding.id for finding in findings if finding.outcome is Outcome.FAILED}
    is_seen = any(finding.outcome in (Outcome.PASSED, Outcome.WARNED) for finding in findings)
    if not is_seen and failing <= _REACHED:
        return INFRASTRUCTURE
    return FINDINGS if failing else 0
