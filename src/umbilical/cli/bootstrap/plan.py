"""`umbilical bootstrap plan`: shows what a patch would change and why. Writes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.bootstrap.file import kibibytes, platform_option, print_warnings, read_source, source_options
from umbilical.cli.bootstrap.options import authority_options, refuse_authority, spec_from, spec_options

if TYPE_CHECKING:
    from umbilical.bootstrap.bootstrap_file import BootstrapFile
    from umbilical.bootstrap.patch.plan import Plan

ORDER: Final = (
    "Order: create manifests, edit them, create ignition-configs, patch, create cluster. Any other change in between",
    "makes the installer discard the patched file. Its certificates expire 24 hours after create ignition-configs.",
)


@click.command()
@source_options
@platform_option
@click.option("--show-anchors", is_flag=True, help="Show the anchor lines in bootkube.sh, even if patch would fail.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format.")
@authority_options
@spec_options
def plan(
    file: Path | None, directory: Path | None, platform: str | None, show_anchors: bool, output: str, **options: Any
) -> None:
    """Show what `patch` would change, and why.

    Reads FILE or the bootstrap.ign of --dir. Writes nothing.
    """
    from umbilical.bootstrap.patch.patch import patch

    spec = spec_from(refuse_authority(options))
    source = read_source(file, directory)
    if show_anchors:
        # Before the patch, which may fail: users need the anchors then. With JSON they go to standard error.
        for line in _anchor_lines(source):
            click.echo(line, err=output == "json")
    planned = patch(source.document(), spec, platform or source.platform()).plan
    if output == "json":
        from umbilical.bootstrap.patch.plan import plan_value

        click.echo(json.dumps(plan_value(planned), indent=2))
    else:
        for line in _plan_lines(planned, source):
            click.echo(line)
    print_warnings(source)


def needed_port(planned: "Plan", source: "BootstrapFile") -> list[str]:
    """Name the port that must be open, and the command that writes the rule."""
    where = f" on {planned.platform}" if planned.platform else ""
    return [
        f"Needs TCP {planned.spec.agent_port} from every node to the bootstrap node{where}",
        f"  next: umbilical firewall render {' '.join(_firewall_options(planned, source))}",
    ]


def _firewall_options(planned: "Plan", source: "BootstrapFile") -> Iterator[str]:
    from umbilical.bootstrap.spec import TunnelSpec

    if source.install_dir is not None:
        yield f"--dir {quote(str(source.install_dir.path))}"
        if _is_in_manifests(planned.platform):
            # The default form edits manifests, which the installer no longer reads once bootstrap.ign exists.
            yield "-o cli"
    else:
        yield f"--platform {planned.platform or 'NAME'}"
        # A given address replaces the spec's networks, and the rule still needs them.
        networks = planned.spec.machine_networks or planned.cluster.machine_networks
        yield from (f"--machine-network {network}" for network in networks)
        if planned.cluster.infra_id is not None:
            yield f"--infra-id {planned.cluster.infra_id}"
    if planned.cluster.release is not None:
        yield f"--release {planned.cluster.release}"
    if planned.spec.agent_port != TunnelSpec.agent_port:
        yield f"--port {planned.spec.agent_port}"


def _is_in_manifests(name: str | None) -> bool:
    from umbilical.firewall.platforms.catalogue import PLATFORMS

    platform = PLATFORMS.get(name or "")
    return platform is not None and platform.edit is not None


def _plan_lines(planned: "Plan", source: "BootstrapFile") -> Iterator[str]:
    width = max((len(change.path) for change in planned.changes), default=0)
    for change in planned.changes:
        count = f"({change.lines})"
        yield f"{change.sign} {change.path:{width}}  {count:17} {change.why}"
    yield from _insertion_lines(planned)
    if planned.changes:
        yield ""
    counts = f"{planned.count('+')} to add, {planned.count('~')} to change, {planned.count('-')} to remove"
    yield (
        f"Plan: {counts};"
        f" {kibibytes(planned.size_before)} -> {kibibytes(planned.size_after)}; bootkube.sh as in {planned.release}"
    )
    yield from (f"Note: {note}" for note in planned.notes())
    yield f"Agents dial {planned.address}"
    yield from needed_port(planned, source)
    yield from ORDER


def _insertion_lines(planned: "Plan") -> Iterator[str]:
    from umbilical.bootstrap.patch.edits import REASONS

    for insertion in planned.insertions:
        yield f"    {insertion.anchor.value} at line {insertion.index + 1}: {REASONS[insertion.anchor]}"
        yield f"      + {insertion.text.strip()}"


def _anchor_lines(source: "BootstrapFile") -> Iterator[str]:
    from umbilical.bootstrap.names import BOOTKUBE
    from umbilical.bootstrap.patch.anchors import search
    from umbilical.bootstrap.patch.receipt import sha256

    for script in source.document().config.files_at(BOOTKUBE):
        text = script.text()
        lines = text.split("\n")
        yield f"{BOOTKUBE}: {len(lines)} lines, sha256 {sha256(text.encode())}"
        for seen in search(lines):
            places = ", ".join(f"line {index + 1}" for index in seen.matches) or "not found"
            alike = "".join(f", same text with other indentation: line {index + 1}" for index in seen.lookalikes)
            yield f"  {seen.anchor.value}  {places}{alike}: {seen.pattern.text}"
