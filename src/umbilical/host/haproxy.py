"""What HAProxy says, read: how its servers are, and whether it takes a configuration without a word."""

import csv
import io
import re
from collections.abc import Mapping
from typing import Final

from umbilical.fault import HostError
from umbilical.host.machine_records import BackendServer

UNCHECKED: Final = "INI"
_FAULT: Final = re.compile(r"\[(ALERT|WARNING)\]")


def faults(exit_code: int, output: str) -> str:
    """Return what `haproxy -c` finds wrong, empty if nothing: warnings do not change its exit code."""
    lines = [line for line in output.splitlines() if line.strip()]
    found = [line for line in lines if _FAULT.match(line)]
    if exit_code == 0 and not found:
        return ""
    return " | ".join(found or lines[-1:]) or f"it exited with {exit_code}"


def parse_stats(text: str) -> list[BackendServer]:
    """Read what `show stat` says: CSV with a sharp before its first heading.

    Raises:
        HostError: UMB736, it is something else.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(text.lstrip("# "), newline="")))
    except csv.Error as error:
        raise HostError("UMB736", "the load balancer's answer cannot be read", str(error), "haproxy -v") from error
    return [_server(row) for row in rows if row.get("svname") not in (None, "", "FRONTEND", "BACKEND")]


def _server(row: Mapping[str, str | None]) -> BackendServer:
    # A star: a check is on its way, and what stands behind it is the last one's outcome.
    check = (row.get("check_status") or "").lstrip("* ")
    # HAProxy takes a server for good until its first check has ended; here nobody is before that.
    is_up = (row.get("status") or "").startswith("UP") and check != UNCHECKED
    return BackendServer(row.get("pxname") or "", row.get("svname") or "", is_up, check)
