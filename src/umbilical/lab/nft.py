"""Packet filter rules of some scenarios and breakages, as text for the program `nft`.

Each text is the content of one table, named as in `umbilical.lab.packet_filter`, which also removes these tables.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import HostError, LabError
from umbilical.host.processes import run
from umbilical.lab.netlink import MODULES_REMEDY
from umbilical.lab.packet_filter import table_name
from umbilical.lab.topology import IpAddress

NFT_SECONDS: Final = 30.0
# On Debian not in the PATH of ordinary users, who may run it nevertheless.
SYSTEM_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def program() -> Path:
    """Find `nft`. Raises LabError: it is not installed."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *SYSTEM_FOLDERS]
    found = shutil.which("nft", path=os.pathsep.join(folders))
    if found is None:
        why = "no program nft on PATH, in /usr/sbin or in /sbin"
        what = "the program nft, which this part of the lab needs, is missing"
        raise LabError("UMB822", what, why, "install the package nftables")
    return Path(found)


def load(name: str, text: str) -> None:
    """Load or replace a table in the thread's namespace. Raises LabError: nft failed; nothing changed."""
    table = f"inet {table_name(name)}"
    # One transaction. Add before delete: deleting a missing table is an error.
    _run(f"add table {table}\ndelete table {table}\ntable {table} {{\n{text}\n}}\n", f"load the rules {name}")


def lose_at_random(percent: int, interface: str) -> str:
    """Drop packets on an interface, in both directions, with this probability in percent."""
    # nft rejects a comparison that is always true.
    drawn = "drop" if percent >= 100 else f"numgen random mod 100 < {percent} drop"
    coming = _chain("coming", "filter", "prerouting", "raw", [f'iifname "{interface}" {drawn}'])
    going = _chain("going", "filter", "postrouting", "raw", [f'oifname "{interface}" {drawn}'])
    return f"{coming}\n{going}"


def spread(address: IpAddress, port: int, targets: Sequence[IpAddress]) -> str:
    """Redirect this node's new connections to an address to the targets, round robin; open ones are not changed.

    Without targets they are rejected, like those to a Service without endpoints.
    """
    word = _word(address)
    wanted = f"{word} daddr {address} tcp dport {port}"
    if not targets:
        return _chain("front", "filter", "output", "filter", [f"{wanted} reject with tcp reset"])
    turns = ", ".join(f"{number} : {target}" for number, target in enumerate(targets))
    # A number, because older versions of nft have no names for priorities in this hook.
    rule = f"{wanted} dnat {word} to numgen inc mod {len(targets)} map {{ {turns} }}"
    return _chain("front", "nat", "output", "-100", [rule])


def _chain(name: str, kind: str, hook: str, priority: str, rules: Sequence[str]) -> str:
    lines = [f"type {kind} hook {hook} priority {priority}; policy accept;", *rules]
    body = "\n".join(f"    {line}" for line in lines)
    return f"  chain {name} {{\n{body}\n  }}"


def _word(value: IpAddress) -> str:
    return "ip" if value.version == 4 else "ip6"


def _run(text: str, what: str) -> None:
    try:
        run([program(), "--file", "-"], NFT_SECONDS, text.encode())
    except HostError as error:
        first = error.why.splitlines()[0]
        raise LabError("UMB818", f"failed to {what}", first, MODULES_REMEDY) from error
