"""Logs on a node by program: files of units and of containers, or the journal."""

from collections.abc import Mapping
from typing import Final

from umbilical.fault import HardwayError
from umbilical.hardway.machines.interface import Machines
from umbilical.host.processes import run

UNITS: Final = "/var/log/units"
"""Directory of <unit>.log on a machine without systemd's journal."""
PODS: Final = "/var/log/pods"
LIST_SECONDS: Final = 30.0
# Newest first. A pattern without a file is no failure.
_LIST: Final = f"ls -t {UNITS}/*.log {PODS}/*/*/*.log 2>/dev/null; :"


def find_logs(machines: Machines, node_id: str) -> dict[str, str]:
    """Return program -> its newest log file. Raises Fault: the node is not reachable."""
    return parse_list(run(machines.shell(node_id, ["sh", "-c", _LIST]), LIST_SECONDS))


def parse_list(text: str) -> dict[str, str]:
    """Read a list of paths, newest first: a container's directory has its name, a unit's file has the unit's."""
    found: dict[str, str] = {}
    for path in text.splitlines():
        folder, _, name = path.rpartition("/")
        unit = name.removesuffix(".log").removesuffix(".service")
        found.setdefault(unit if folder == UNITS else folder.rpartition("/")[2], path)
    return dict(sorted(found.items()))


def log_command(
    kind: str, found: Mapping[str, str], program: str, lines: int, remedy: str, *, follows: bool
) -> list[str]:
    """Return the command that shows a log on a node of this kind of machines.

    Raises HardwayError: UMB771, there is none; `remedy` is the command that lists all logs.
    """
    if program in found:
        return ["tail", "-n", str(lines), *(["-F"] if follows else []), found[program]]
    if kind == "libvirt":
        return ["journalctl", "-n", str(lines), *(["-f"] if follows else ["--no-pager"]), "-u", program]
    why = f"there are logs of {', '.join(found) or 'no program'}"
    raise HardwayError("UMB771", f"the node has no log of {program}", why, remedy)
