"""What the lab tells the packet filter, as texts, and the `nft` program that loads them.

Each text is the inside of one table of the family `inet`, named `umbilical_NAME`: it is loaded and removed as a whole,
and no other table (a kubelet's, kube-proxy's) is touched.
"""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import HostError, LabError
from umbilical.host.processes import run
from umbilical.lab.netlink import MODULES_REMEDY
from umbilical.lab.topology import IpAddress, IpNetwork

PREFIX: Final = "umbilical_"
NAME: Final = re.compile(r"[a-z0-9_]{1,40}")
NFT_SECONDS: Final = 30.0
# Not on an ordinary user's PATH under Debian, and anybody may run what is there.
SYSTEM_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def program() -> Path:
    """Find `nft`.

    Raises:
        LabError: it is not installed.
    """
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *SYSTEM_FOLDERS]
    found = shutil.which("nft", path=os.pathsep.join(folders))
    if found is None:
        why = "no program nft on PATH, in /usr/sbin or in /sbin"
        raise LabError("UMB822", "the lab needs nft, the packet filter's program", why, "install the package nftables")
    return Path(found)


def load(name: str, text: str) -> None:
    """Load a table into the namespace of the calling thread, in place of one of the same name.

    Raises:
        LabError: nft or the kernel refuses it; nothing has changed then.
    """
    table = _table(name)
    # One transaction. Adding before deleting, since deleting what is not there is an error.
    _run(f"add table {table}\ndelete table {table}\ntable {table} {{\n{text}\n}}\n", f"load the rules {name}")


def unload(name: str) -> None:
    """Remove a table; one that is not there is fine."""
    table = _table(name)
    _run(f"add table {table}\ndelete table {table}\n", f"remove the rules {name}")


def loaded() -> list[str]:
    """Return the names of our tables in the namespace of the calling thread."""
    answer = json.loads(_run(None, "list the rules"))
    names = [entry["table"]["name"] for entry in answer["nftables"] if "table" in entry]
    return sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))


def masquerade(own: Sequence[IpNetwork], pods: Sequence[IpNetwork], interface: str) -> str:
    """Let what a node's pods send to anybody but pods look like the node's own: nobody else has a way back to them."""
    pairs = [(network, whole) for network in own for whole in pods if whole.version == network.version]
    rules = [
        f'oifname "{interface}" {_word(network)} saddr {network} {_word(whole)} daddr != {whole} masquerade'
        for network, whole in pairs
    ]
    return _chain("pods", "nat", "postrouting", "srcnat", rules)


def refuse_transit(hardware_address: str) -> str:
    """Answer "network is unreachable" to whoever takes us for a router.

    A router without a route says the same, but five times in a row only: later dials would hang for a second. (So do
    some of ours, over IPv6 and from blocking sockets: the answer is there before the kernel has unlocked the socket
    that asked, and counts only when the SYN is sent again.) Told by our hardware address from frames that a bridge
    merely passes on, which some machines also show to this filter.
    """
    return _chain("transit", "filter", "prerouting", "filter", _refusals(hardware_address))


def edge(
    data_address: str,
    management_address: str,
    outside: Sequence[IpNetwork],
    openings: Sequence[tuple[IpAddress, int]],
) -> str:
    """Stand between two networks: one may dial a few ports of the other, which sees us alone, and nothing goes back.

    The addresses are our hardware addresses on either side, `outside` is who dials; all else is refused as by
    `refuse_transit`.
    """
    opened = [f"{_word(address)} daddr {address} tcp dport {port}" for address, port in openings]
    rules = [
        # Answers have the other network's addresses again when this hook sees them.
        "ct direction reply accept",
        *(f"ether daddr {data_address} {one} accept" for one in opened),
        *_refusals(data_address),
        *_refusals(management_address),
    ]
    # By address, since frames that a bridge merely passes on are shown to this hook too on some machines.
    hidden = [
        f"{_word(network)} saddr {network} {one} masquerade"
        for network in outside
        for one in opened
        if one.startswith(f"{_word(network)} ")
    ]
    transit = _chain("transit", "filter", "prerouting", "filter", rules)
    return "\n".join([transit, _chain("hidden", "nat", "postrouting", "srcnat", hidden)])


def block_tcp_port(port: int) -> str:
    """Swallow everything to and from a TCP port of other machines and pods, of open connections too."""
    return _both_ways([f"tcp dport {port} drop", f"tcp sport {port} drop"])


def lose_at_random(percent: int, interface: str) -> str:
    """Drop so many of a hundred packets that come or go by an interface, drawn anew for each."""
    # Nothing to draw for all of them, and nft refuses a comparison that is always true.
    drawn = "drop" if percent >= 100 else f"numgen random mod 100 < {percent} drop"
    coming = _chain("coming", "filter", "prerouting", "raw", [f'iifname "{interface}" {drawn}'])
    going = _chain("going", "filter", "postrouting", "raw", [f'oifname "{interface}" {drawn}'])
    return f"{coming}\n{going}"


def spread(address: IpAddress, port: int, targets: Sequence[IpAddress]) -> str:
    """Lead this node's own connections to an address to one of several others, in turn; open ones stay where they are.

    Without any target they are refused, as by a service without endpoints.
    """
    word = _word(address)
    wanted = f"{word} daddr {address} tcp dport {port}"
    if not targets:
        return _chain("front", "filter", "output", "filter", [f"{wanted} reject with tcp reset"])
    turns = ", ".join(f"{number} : {target}" for number, target in enumerate(targets))
    # By number: not every nft knows the names of priorities in this hook.
    rule = f"{wanted} dnat {word} to numgen inc mod {len(targets)} map {{ {turns} }}"
    return _chain("front", "nat", "output", "-100", [rule])


def drop_address(address: IpAddress) -> str:
    """Swallow everything from and to an address."""
    word = _word(address)
    return _both_ways([f"{word} saddr {address} drop", f"{word} daddr {address} drop"])


def _refusals(hardware_address: str) -> list[str]:
    ours = f"ether daddr {hardware_address} fib daddr type != local"
    return [
        f"{ours} meta nfproto ipv4 reject with icmp net-unreachable",
        f"{ours} meta nfproto ipv6 reject with icmpv6 no-route",
    ]


def _both_ways(rules: Sequence[str]) -> str:
    """Judge what comes in, pods' packets too, and what we send; a node's talk with itself is nobody's business."""
    coming = _chain("coming", "filter", "prerouting", "raw", [f'iifname != "lo" {rule}' for rule in rules])
    going = _chain("going", "filter", "output", "raw", [f'oifname != "lo" {rule}' for rule in rules])
    return f"{coming}\n{going}"


def _chain(name: str, kind: str, hook: str, priority: str, rules: Sequence[str]) -> str:
    lines = [f"type {kind} hook {hook} priority {priority}; policy accept;", *rules]
    body = "\n".join(f"    {line}" for line in lines)
    return f"  chain {name} {{\n{body}\n  }}"


def _word(value: IpAddress | IpNetwork) -> str:
    return "ip" if value.version == 4 else "ip6"


def _table(name: str) -> str:
    if not NAME.fullmatch(name):
        why = f"{name!r} is not made of lower-case letters, digits and underscores"
        raise LabError("UMB818", "the packet filter's rules cannot be changed", why, "give the rules another name")
    return f"inet {PREFIX}{name}"


def _run(text: str | None, what: str) -> str:
    how = ["--json", "list", "tables"] if text is None else ["--file", "-"]
    try:
        return run([program(), *how], NFT_SECONDS, None if text is None else text.encode())
    except HostError as error:
        first = error.why.splitlines()[0]
        raise LabError("UMB818", f"cannot {what}", first, MODULES_REMEDY) from error
