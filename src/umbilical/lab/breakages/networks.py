"""Breakages of the network."""

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
"""From the documentation ranges. With two addresses the node needs a route to find its own."""
FINDER: Final = "/tmp/umbilical-address.sh"


def _cut(testbed: Testbed) -> Memory:
    testbed.lab.set_link(BOOTSTRAP, False)
    return {}


def _block(testbed: Testbed) -> Memory:
    """Like a security group: open connections continue, so restart the server to make the agents reconnect."""
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
    # The search prints the address, and its origin behind it.
    if found.split()[:1] not in [[str(one.ip)] for one in testbed.lab.topology.bootstrap.addresses]:
        why = f"the script that finds its address printed: {' | '.join(found.split(chr(10)))}"
        raise LabError(
            "UMB864", "the bootstrap node did not find its address after the repair", why, "umbilical lab status"
        )


def _second(testbed: Testbed) -> str:
    return SECOND_ADDRESS[testbed.lab.topology.bootstrap.addresses[0].version]


def _find_address(testbed: Testbed) -> str:
    """Run the address search of a patched bootkube.sh on the node, and return its output."""
    spec = for_shape(Shape.OPENSHIFT, use_ipv6=testbed.lab.topology.bootstrap.addresses[0].version == 6)
    testbed.lab.write(BOOTSTRAP, FINDER, library(spec, OWN))
    script = 'set -euoE pipefail; source "$1"; _umbilical_find_address'
    done = testbed.lab.exec(BOOTSTRAP, ["bash", "-c", script, "bash", FINDER])
    testbed.lab.remove(BOOTSTRAP, FINDER)
    return (done.stdout + done.stderr).decode(errors="replace")


BREAKAGES: Final = (
    Breakage(
        "link-cut",
        "the bootstrap node's network link is down",
        "calls time out; nodes cannot reach the bootstrap API either",
        "UMB407",
        Speaker.SERVER,
        _cut,
        lambda testbed, memory: testbed.lab.set_link(BOOTSTRAP, True),
    ),
    Breakage(
        "port-8091-blocked",
        "a firewall drops new connections to the agents' port",
        "calls fail with `No agent available`; agents run and cannot connect",
        "UMB312",
        Speaker.AGENTS,
        _block,
        lambda testbed, memory: testbed.lab.remove_rules(BOOTSTRAP, BLOCK),
        seconds=60.0,
    ),
    Breakage(
        "packet-loss",
        f"{LOSS_PERCENT} % of the packets to and from the bootstrap node are lost",
        "calls succeed, some slowly; some may time out",
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
        "bootkube.sh stops in the stage konnectivity-certs: the address for the certificate is unknown",
        "UMB112",
        Speaker.COMMAND,
        _take_route,
        _give_route,
        ask=_find_address,
        stops_calls=False,
    ),
)
