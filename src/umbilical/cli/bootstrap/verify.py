"""`umbilical bootstrap verify`: runs the checks of a bootstrap.ign, or of the running tunnel with --live."""

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.checks.check import Check, Finding
from umbilical.cli.bootstrap.file import kibibytes, platform_option, print_warnings, read_source, source_options
from umbilical.cli.bootstrap.options import node_access
from umbilical.cli.findings import (
    apply_options,
    chosen,
    listed,
    refuse_emptiness,
    report,
    report_options,
    status,
    which_options,
)
from umbilical.cli.options import FILE
from umbilical.cli.terminal import has_colour
from umbilical.fault import BootstrapError
from umbilical.host.commands import syntax_complaint

if TYPE_CHECKING:
    from umbilical.bootstrap.bootstrap_file import BootstrapFile
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.bootstrap.live import LiveOptions
    from umbilical.bootstrap.verify.facts import BootstrapFacts

TUNNEL_STATES: Final = ("native-on", "native-off", "patched", "inline", "none")
SHAPES: Final = ("openshift", "seed")
MODES: Final = ("grpc", "http-connect")
LIVE_HEADING: Final = "The running tunnel"


_WHAT: Final = (
    click.option("--expect", type=click.Choice(TUNNEL_STATES), help="Fail if the file has another tunnel state."),
    click.option("--shape", type=click.Choice(SHAPES), help="Expected form of the tunnel; default: from the file."),
    click.option("--mode", type=click.Choice(MODES), help="Expected kube-apiserver protocol; default: from the file."),
    platform_option,
)
_WHICH: Final = (
    *which_options("S1,C3"),
    click.option(
        "--list", "lists", is_flag=True, help="List the checks, and jq commands that print their files; exit."
    ),
    click.option("--explain", metavar="ID", help="Explain one check and exit."),
)
_LIVE: Final = (
    click.option("--live", is_flag=True, help="Check the running tunnel, over SSH and the Kubernetes API."),
    click.option(
        "--ssh-host", "--host", metavar="ADDRESS", help="Address of the bootstrap machine; default: in --dir."
    ),
    click.option("--ssh-user", metavar="NAME", default="core", show_default=True, help="SSH user name."),
    click.option("--ssh-key", type=FILE, help="SSH key; default: the installer's key in --dir, else ssh's own."),
    click.option("--ssh-port", type=click.IntRange(1, 65535), default=22, show_default=True, help="SSH port."),
    click.option("--kubeconfig", type=FILE, help="Kubeconfig to check the agents; default: that of --dir."),
    click.option("--namespace", metavar="NAME", help="Namespace of the agents; default: from FILE, else --shape."),
)


@click.command()
@source_options
@apply_options((*_WHAT, *_WHICH, *_LIVE, *report_options()))
def verify(
    file: Path | None,
    directory: Path | None,
    only: tuple[re.Pattern[str], ...],
    skip: tuple[re.Pattern[str], ...],
    output: str,
    fail_on: str,
    **options: Any,
) -> int:
    """Check the tunnel in a bootstrap.ign, or a running one.

    Reads FILE or the bootstrap.ign of --dir. With --live checks the running tunnel over SSH and the Kubernetes API.
    """
    if options["lists"]:
        source = read_source(file, directory) if file or directory else None
        click.echo(_listed(chosen(_all_checks(), only, skip), output, _plan_commands(source)), nl=False)
        return 0
    if options["explain"]:
        click.echo(_explained(options["explain"]), nl=False)
        return 0
    if options["live"]:
        findings = _live_findings(file, directory, options)
        heading, kind, details = "", "LiveReport", {}
    else:
        source = read_source(file, directory)
        facts = _facts(source, options)
        findings = _file_findings(facts, only, skip)
        heading, kind, details = _heading(source, facts), "BootstrapReport", _details(source, facts)
        print_warnings(source)
        _hint(facts)
    findings = chosen(findings, only, skip)
    refuse_emptiness(findings)
    # click removes colours from a pipe even with FORCE_COLOR.
    text = report(findings, output, kind=kind, suite="bootstrap.verify", details=details, groups=_headings())
    click.echo((heading if output == "table" else "") + text, nl=False, color=has_colour())
    return status(findings, fail_on)


def _facts(source: "BootstrapFile", options: dict[str, Any]) -> "BootstrapFacts":
    from umbilical.bootstrap.patch.config_facts import TunnelState
    from umbilical.bootstrap.spec import Mode, Shape
    from umbilical.bootstrap.verify.facts import BootstrapFacts

    return BootstrapFacts(
        source.content,
        platform=options["platform"] or source.platform(),
        shape=Shape(options["shape"]) if options["shape"] else None,
        mode=Mode(options["mode"]) if options["mode"] else None,
        expected_state=TunnelState(options["expect"]) if options["expect"] else None,
        bash_syntax=syntax_complaint if shutil.which("bash") else None,
        now=time.time(),
    )


def _file_findings(
    facts: "BootstrapFacts", only: Sequence[re.Pattern[str]], skip: Sequence[re.Pattern[str]]
) -> list[Finding]:
    from umbilical.bootstrap.verify.catalogue import CATALOGUE
    from umbilical.bootstrap.verify.catalogue import verify as run_checks

    return run_checks(facts, tuple(chosen(CATALOGUE, only, skip)))


def _live_findings(file: Path | None, directory: Path | None, options: dict[str, Any]) -> list[Finding]:
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.bootstrap.live import live_findings
    from umbilical.bootstrap.node_access import node_runner

    install_dir = InstallDir(directory) if directory is not None else None
    if install_dir is None and options["ssh_host"] is None and options["kubeconfig"] is None:
        raise click.UsageError("--live needs at least one of --dir DIR, --ssh-host ADDRESS and --kubeconfig FILE")
    expected = _expected(file, install_dir, options)
    with node_runner(node_access(options), install_dir) as runner:
        return live_findings(replace(expected, runner=runner))


def _expected(file: Path | None, install_dir: "InstallDir | None", options: dict[str, Any]) -> "LiveOptions":
    """Collect the expected properties of the running tunnel: from FILE if given, else the defaults."""
    from umbilical.bootstrap.live import LiveOptions
    from umbilical.bootstrap.live_facts import NodePaths, NodePorts
    from umbilical.bootstrap.spec import Shape, for_shape

    facts = _facts(read_source(file, None), {**options, "expect": None}) if file is not None else None
    shape = Shape(options["shape"]) if options["shape"] else facts.found_shape if facts else Shape.OPENSHIFT
    flags = facts.server.flags if facts else None
    usual = for_shape(shape)
    return LiveOptions(
        kubeconfig=options["kubeconfig"] or _kubeconfig_of(install_dir),
        namespace=options["namespace"] or (facts.agent_namespace if facts else None) or usual.namespace,
        node_ips=_node_ips(install_dir, options),
        ports=NodePorts(*((flags.integer(name) if flags else None) or port for name, port in _PORTS.items())),
        agent_health_port=(facts.agent.flags.integer("--health-server-port") if facts else None) or usual.health_port,
        paths=NodePaths(socket=(flags.values.get("--uds-name") if flags else None) or usual.socket_on_host),
    )


_PORTS: Final = {"--agent-port": 8091, "--health-port": 2041, "--admin-port": 8095}


def _kubeconfig_of(install_dir: "InstallDir | None") -> Path | None:
    path = install_dir.kubeconfig if install_dir is not None else None
    return path if path is not None and path.is_file() else None


def _node_ips(install_dir: "InstallDir | None", options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the machine's internal addresses; only Cluster API installers record them in the directory."""
    if install_dir is None:
        return ()
    try:
        return install_dir.bootstrap_addresses().internal
    except BootstrapError:
        if options["ssh_host"] is None:
            raise
        return ()


def _all_checks() -> list[Check[Any]]:
    from umbilical.bootstrap.live import CHECKS
    from umbilical.bootstrap.verify.catalogue import CATALOGUE

    return [*CATALOGUE, *CHECKS]


def _headings() -> dict[str, str]:
    from umbilical.bootstrap.verify.catalogue import GROUPS

    return {**GROUPS, "L": LIVE_HEADING}


def _heading(source: "BootstrapFile", facts: "BootstrapFacts") -> str:
    """Summarise the checked file in a line, with the lifetime left of its certificates."""
    from umbilical.bootstrap.verify.structure import time_left
    from umbilical.checks.report import printable

    if facts.config is None:
        return f"{printable(str(source.path))}\n\n"
    parts = [f"tunnel state {facts.found_state.value}"]
    if facts.has_tunnel:
        parts += [f"shape {facts.found_shape.value}", f"mode {facts.found_mode.value}"]
    parts += [f"platform {facts.found_platform or 'unknown'}", kibibytes(len(source.content))]
    left = time_left(facts)
    parts += [f"certificates: {left}"] if left else []
    return printable(f"{source.path}: {', '.join(parts)}") + "\n\n"


def _hint(facts: "BootstrapFacts") -> None:
    """Print a note on an egress file without effect, or without a tunnel: no failure would look like a working one."""
    from umbilical.bootstrap.verify.documents import dig
    from umbilical.bootstrap.verify.egress_rules import IGNORED_KEY

    if dig(facts.override.value, IGNORED_KEY) is not None:
        text = f"kube-apiserver ignores {IGNORED_KEY} in {facts.names.override}, so it dials pods itself"
        click.echo(f"note: {text}: explained by umbilical bootstrap verify --explain C2", err=True)
    if facts.config is not None and not facts.has_tunnel and facts.expected_state is None:
        text = f"the file has no tunnel to check (tunnel state {facts.found_state.value})"
        click.echo(f"note: {text}; add --expect patched or --expect native-on to make this a failure", err=True)


def _details(source: "BootstrapFile", facts: "BootstrapFacts") -> dict[str, Any]:
    is_there = facts.has_tunnel
    return {
        "file": str(source.path),
        "profile": facts.found_state.value if facts.config is not None else None,
        "shape": facts.found_shape.value if is_there else None,
        "mode": facts.found_mode.value if is_there else None,
        "platform": facts.found_platform,
        "bytes": len(source.content),
    }


def _plan_commands(source: "BootstrapFile | None") -> dict[int, str]:
    """The jq commands of the first plan's checklist, for a patched file or for the given one."""
    from umbilical.bootstrap.names import OWN
    from umbilical.bootstrap.verify.catalogue import FIRST_PLAN
    from umbilical.bootstrap.verify.facts import BootstrapFacts

    facts = BootstrapFacts(source.content) if source is not None else None
    names = facts.names if facts is not None and facts.has_tunnel else OWN
    file = str(source.path) if source is not None else "bootstrap.ign"
    return {item: planned.command(names, file) for item, planned in FIRST_PLAN.items()}


def _listed(checks: list[Check[Any]], output: str, commands: dict[int, str]) -> str:
    from umbilical.bootstrap.verify.catalogue import FIRST_PLAN
    from umbilical.checks.report import API_VERSION

    if output == "json":
        import json

        plan = [
            {"item": item, "title": planned.title, "checks": list(planned.checks), "command": commands[item]}
            for item, planned in FIRST_PLAN.items()
        ]
        shown = [{"id": check.id, "title": check.title, "why": check.why, "fix": check.fix} for check in checks]
        value = {"apiVersion": API_VERSION, "kind": "CheckList", "checks": shown, "firstPlan": plan}
        return json.dumps(value, indent=2) + "\n"
    heading = "Checklist of the first plan (task 2.6): the checks that cover it, and the commands that print it"
    lines = [listed(checks, _headings(), 4), heading]
    for item, planned in FIRST_PLAN.items():
        lines += [f"{item:<4} {planned.title}: {', '.join(planned.checks)}", f"     {commands[item]}"]
    return "\n".join(lines) + "\n"


def _explained(identifier: str) -> str:
    from umbilical.bootstrap.verify.catalogue import FIRST_PLAN

    found = [check for check in _all_checks() if check.id.lower() == identifier.lower()]
    if not found:
        raise click.UsageError(f"there is no check {identifier!r}; --list shows the ids")
    check = found[0]
    lines = [f"{check.id} {check.title}", f"  why: {check.why}", f"  fix: {check.fix}"]
    plan = [f"{item} ({planned.title})" for item, planned in FIRST_PLAN.items() if check.id in planned.checks]
    lines += [f"  first plan's checklist (task 2.6): {', '.join(plan)}"] if plan else []
    return "\n".join(lines) + "\n"
