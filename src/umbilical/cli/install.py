"""What `server install` and `agent install` share: options, the daemon's options as text again, and writing files."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from umbilical.cli.drop_ins.go_values import NANOSECONDS_PER_SECOND, format_duration
from umbilical.cli.options import SocketPath
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.tunnel.setting_rows import REPEATABLE, Setting, Table, Value
from umbilical.tunnel.settings import ListenAddress, ServerAddress, UnixFrontend

if TYPE_CHECKING:
    from umbilical.manifests.systemd_units import ServiceUnit, UnitOption

STDOUT: Final = "-"
_GIVEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_FIRST_FREE_PORT: Final = 1024
"""Ports below need a capability."""


def unit_options(command: Any) -> Any:
    """Add the options of the command itself."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option("--systemd", "systemd", is_flag=True, help="Render units of systemd."),
    click.option("--static-pod", "static_pod", is_flag=True, help="Render the manifest of a static pod."),
    click.option(
        "--out", metavar="DIR|-", default=STDOUT, show_default=True, help="Output directory; - prints the files."
    ),
    click.option("--overwrite", is_flag=True, help="Replace existing files."),
    click.option(
        "--program",
        type=click.Path(path_type=Path, dir_okay=False),
        help="With --systemd: path of umbilical on its machine; default: the program that runs now.",
    ),
    click.option(
        "--image",
        metavar="REFERENCE",
        help="With --static-pod: image with umbilical; default: localhost/umbilical with this version.",
    ),
)


def service_unit(
    context: click.Context,
    table: Table,
    daemon: str,
    *,
    stop_seconds: float,
    socket_path: str = "",
    ports: Iterable[ListenAddress | UnixFrontend],
) -> "ServiceUnit":
    """Return `umbilical DAEMON run` with the options that were given. Raises UsageError: the form is unclear."""
    from umbilical.manifests.systemd_units import ServiceUnit

    return ServiceUnit(
        name=f"umbilical-{daemon}",
        description=f"Konnectivity {daemon} (Umbilical)",
        command=(_program(context.params), daemon, "run"),
        options=given(context, table),
        stop_seconds=stop_seconds,
        socket_path=socket_path,
        has_low_port=any(isinstance(place, ListenAddress) and 0 < place.port < _FIRST_FREE_PORT for place in ports),
    )


def _program(options: dict[str, Any]) -> str:
    if options["systemd"] == options["static_pod"]:
        raise click.UsageError("give one of --systemd and --static-pod")
    other, form = ("program", "--systemd") if options["static_pod"] else ("image", "--static-pod")
    if options[other] is not None:
        raise click.UsageError(f"--{other} needs {form}")
    # In a pod the image's PATH finds it.
    return "umbilical" if options["static_pod"] else os.path.abspath(options["program"] or _running_program())


def _running_program() -> str:
    """`python -m umbilical` is no program that a unit could name: the one beside Python is."""
    started = sys.argv[0]
    is_program = os.path.isfile(started) and os.access(started, os.X_OK)
    return started if is_program else os.path.join(os.path.dirname(sys.executable), "umbilical")


def given(context: click.Context, table: Table) -> tuple["UnitOption", ...]:
    """Return the options of the table that differ from their defaults, in the table's order, as text."""
    rows = {row.native: row for row in table if row.native}.values()
    chosen = [row for row in rows if context.get_parameter_source(row.parameter) in _GIVEN]
    return tuple(option for row in chosen for option in _written(row, context.params[row.parameter]))


def _written(row: Setting, value: Any) -> "list[UnitOption]":
    from umbilical.manifests.systemd_units import UnitOption

    if row.kind is Value.SWITCH:
        return [UnitOption(row.native)]
    values = value if row.kind in REPEATABLE else [value]
    return [
        UnitOption(row.native, _text(row, each), row.kind is Value.FILE, row.kind is Value.OUTPUT) for each in values
    ]


def _text(row: Setting, value: Any) -> str:
    """Return the value as the option takes it."""
    match row.kind:
        case Value.SECONDS:
            return format_duration(round(value * NANOSECONDS_PER_SECOND))
        case Value.SIZE:
            return str(value) if value else "auto"
        case Value.FILE | Value.OUTPUT:
            return os.path.abspath(str(value))
    if isinstance(value, SocketPath):
        return f"unix:{value.path.absolute()}"
    if isinstance(value, ListenAddress | ServerAddress):
        return join_host_port(value.host, value.port)
    return str(value)


def write(unit: "ServiceUnit", options: dict[str, Any], health: ListenAddress, *, tier: str) -> None:
    """Print the files, or write them and print the next commands.

    Raises Fault: as `write_tree`, UMB110, UMB209 or UMB214.
    """
    from umbilical.cli.tree_files import print_files, write_tree
    from umbilical.manifests.daemon_pod import PodPlace, daemon_pod
    from umbilical.manifests.objects import DEFAULT_IMAGE
    from umbilical.manifests.systemd_units import units

    out, is_pod = options["out"], options["static_pod"]
    if is_pod:
        tree = daemon_pod(unit, PodPlace(options["image"] or DEFAULT_IMAGE, health.host, health.port, tier))
    else:
        tree = units(unit, f"umbilical {unit.command[1]} install --systemd")
    if out == STDOUT:
        click.echo("\n".join(f"# {asset.path}\n{asset.content.decode()}" for asset in tree), nl=False)
    else:
        write_tree(tree, Path(out), overwrite=options["overwrite"])
        print_files(tree)
        (_print_next_for_pod if is_pod else _print_next)(out, [asset.path for asset in tree])
    if not is_pod:
        _note_hidden(unit.command[0])


def _print_next_for_pod(out: str, names: Sequence[str]) -> None:
    from umbilical.manifests.daemon_pod import MANIFESTS

    if os.path.abspath(out) == MANIFESTS:
        click.echo("next: the kubelet of this machine starts it as soon as the image and its files are there", err=True)
        return
    click.echo("next, as root on the machine that runs the pod:", err=True)
    click.echo(f"  cp {' '.join(os.path.join(out, name) for name in names)} {MANIFESTS}/", err=True)


def _print_next(out: str, names: Sequence[str]) -> None:
    files = " ".join(os.path.join(out, name) for name in names)
    click.echo("next, as root on the machine that runs the service:", err=True)
    click.echo(f"  cp {files} /etc/systemd/system/", err=True)
    click.echo(f"  systemctl daemon-reload && systemctl enable --now {' '.join(reversed(names))}", err=True)
    click.echo(f"  systemctl status {names[0]}", err=True)


def _note_hidden(program: str) -> None:
    from umbilical.manifests.systemd_units import HIDDEN

    for path in {program, os.path.realpath(program)}:
        for folder in HIDDEN:
            if path.startswith(f"{folder}/"):
                remedy = "install Umbilical elsewhere, e.g. in /opt/umbilical, and give --program"
                click.echo(f"note: {path} is below {folder}, which the unit does not see: {remedy}", err=True)
