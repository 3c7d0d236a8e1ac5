"""Breakages of the network: a cut link, a closed port, lost packets, a missing route."""

from typing import Final

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.shell.scripts import library
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.fault import LabError
from umbilical.lab import nft
from umbilical.lab.breakages.certificates import restart_server
from umbilical.lab.breakages.registry import Breakage, Memory, Speaker
from umbilical.lab.network import MACHINE_LINK
from umbilical.lab.testbed import BOOTSTRAP, Testbed

BLOCK: Final = "port_blocked"
LOSS: Final = "packet_loss"
LOSS_PERCENT: Final = 40
SECOND_ADDRESS: Final = {4: "192.0.2.10/24", 6: "2001:db8::10/64"}
"""Of documentation: nobody has it. A machine with one address needs no route to find it."""
FINDER: Final = "/tmp/umbilical-address.sh"


def _cut(testbed: Testbed) -> Memory:
    testbed.lab.set_link(BOOTSTRAP, False)
    return {}


def _block(testbed: Testbed) -> Memory:
    """As security groups do: what is open goes on, so the agents must come anew to notice."""
    testbed.lab.add_rules(BOOTSTRAP, BLOCK, refuse_new_connections(testbed.tunnel.spec.agent_port))
    restart_server(testbed)
    return {}


def refuse_new_connections(port: int) -> str:
    return f"""
    chain coming {{
        type filter hook prerouting priority raw; policy accept;
        iifname != "lo" tcp dport {port} tcp flags & (syn | ack) == syn drop
    }}
"""


def _lose_packets(testbed: Testbed) -> Memory:
    testbed.lab.add_rules(BOOTSTRAP, LOSS, nft.lose_at_random(LOSS_PERCENT, MACHINE_LINK))
    return {}


def _take_route(testbed: Testbed) -> Memory:
    testbed.lab.exec(BOOTSTRAP, ["ip", "addr", "replace", _second(testbed), "dev", MACHINE_LINK]).check()
    testbed.lab.set_default_route(BOOTSTRAP, False)
    return {}


def _give_route(testbed: Testbed, memory: Memory) -> None:
    shown = testbed.lab.exec(BOOTSTRAP, ["ip", "-o", "addr", "show", "dev", MACHINE_LINK]).text
    if _second(testbed).partition("/")[0] in shown:
        testbed.lab.exec(BOOTSTRAP, ["ip", "addr", "del", _second(testbed), "dev", MACHINE_LINK]).check()
    testbed.lab.set_default_route(BOOTSTRAP, True)
    found = _find_address(testbed)
    if found.strip() not in [str(one.ip) for one in testbed.lab.topology.bootstrap.addresses]:
        why = f"its address finder says: {' | '.join(found.split(chr(10)))}"
        raise LabError("UMB864", "the bootstrap node does not know its address again", why, "umbilical lab status")


def _second(testbed: Testbed) -> str:
    return SECOND_ADDRESS[testbed.lab.topology.bootstrap.addresses[0].version]


def _find_address(testbed: Testbed) -> str:
    """Let the node's own script look for its address, as in a patched bootkube.sh that was told none."""
    spec = for_shape(Shape.OPENSHIFT, use_ipv6=testbed.lab.topology.bootstrap.addresses[0].version == 6)
    testbed.lab.write(BOOTSTRAP, FINDER, library(spec, OWN))
    script = 'set -euoE pipefail; source "$1"; _umbilical_find_address'
    done = testbed.lab.exec(BOOTSTRAP, ["bash", "-c", script, "bash", FINDER])
    testbed.lab.remove(BOOTSTRAP, FINDER)
    return (done.stdout + done.stderr).decode(errors="replace")


BREAKAGES: Final = (
    Breakage(
        "link-cut",
        "the bootstrap node's cable is pulled",
        "calls hang until their timeout; nodes cannot reach the bootstrap API either",
        "UMB407",
        Speaker.SERVER,
        _cut,
        lambda testbed, memory: testbed.lab.set_link(BOOTSTRAP, True),
    ),
    Breakage(
        "port-8091-blocked",
        "a firewall swallows new connections to the agents' port",
        "calls fail with `No agent available`; agents run, and none gets connected",
        "UMB312",
        Speaker.AGENTS,
        _block,
        lambda testbed, memory: testbed.lab.remove_rules(BOOTSTRAP, BLOCK),
        seconds=60.0,
    ),
    Breakage(
        "packet-loss",
        f"{LOSS_PERCENT} of 100 packets to and from the bootstrap node are lost",
        "calls go through, some of them slowly; some may reach their timeout",
        "UMB409",
        Speaker.SERVER,
        _lose_packets,
        lambda testbed, memory: testbed.lab.remove_rules(BOOTSTRAP, LOSS),
        needs_traffic=True,
        stops_calls=False,
        seconds=60.0,
    ),
    Breakage(
        "no-default-route",
        "the bootstrap node has two addresses and no default route",
        "bootkube.sh stops in the stage konnectivity-certs, since no certificate can be made for an unknown address",
        "UMB112",
        Speaker.COMMAND,
        _take_route,
        _give_route,
        ask=_find_address,
        stops_calls=False,
    ),
)
