"""Several servers: certificates that fit every address they are reached by, and commands that our own programs take."""

from datetime import UTC, datetime
from typing import Any, Final

import click
import pytest
import yaml

from umbilical.assets.manifests.kube_apiserver import EGRESS_DIRECTORY
from umbilical.cli.agent import agent
from umbilical.cli.server import server
from umbilical.lab import several_servers
from umbilical.lab.topology import Family, Topology, plan_topology
from umbilical.pki.certificate import read_certificates

NOW: Final = datetime.now(UTC)
NODES: Final = ("master-0", "master-1")
TOPOLOGIES: Final = [plan_topology(family=family) for family in (Family.IPV4, Family.IPV6)]
EVERY = pytest.mark.parametrize("topology", TOPOLOGIES, ids=["ipv4", "ipv6"])


def _options(group: click.Group, command: list[str]) -> dict[str, Any]:
    """Read a command as the program would, without running it."""
    assert command[0] == "umbilical"
    run = group.commands[command[2]]
    return run.make_context(command[2], command[3:], resilient_parsing=False).params


@EVERY
def test_each_server_is_known_by_its_own_address_and_by_the_common_one(topology: Topology) -> None:
    credentials = several_servers.make_credentials(topology, NODES, NOW)
    assert set(credentials.servers) == set(NODES)
    for node, pair in credentials.servers.items():
        [certificate] = read_certificates(pair.certificate)
        wanted = {topology.node(node).address, str(several_servers.front_address(topology))}
        assert wanted <= set(certificate.names)


@EVERY
def test_nobody_has_the_common_address(topology: Topology) -> None:
    front = several_servers.front_address(topology)
    assert front in topology.machine_networks[0]
    taken = [address.ip for node in topology.nodes for address in node.addresses]
    assert front not in [*taken, *topology.gateways]


@EVERY
def test_a_server_publishes_the_address_on_which_it_takes_agents(topology: Topology) -> None:
    options = _options(server, several_servers.server_command(topology, "master-1"))
    assert options["publish_lease"]
    assert options["advertise"].host == topology.node("master-1").address
    assert options["advertise"].port == options["agents"].port
    assert options["listen"].port == several_servers.CLIENT_PORT


def test_an_agent_is_told_of_no_server() -> None:
    options = _options(agent, several_servers.agent_command("worker-0"))
    assert options["count_leases"]
    assert not options["server"]


def test_every_file_that_a_command_names_is_written() -> None:
    topology = TOPOLOGIES[0]
    credentials = several_servers.make_credentials(topology, NODES, NOW)
    for command, files in (
        (several_servers.server_command(topology, "master-0"), several_servers.server_files(credentials, "master-0")),
        (several_servers.agent_command("master-0"), several_servers.agent_files(credentials)),
    ):
        named = {word for word in command if word.startswith(several_servers.PLACE)}
        assert named == {*files, several_servers.KUBECONFIG}


def _front(topology: Topology) -> str:
    return several_servers.in_url(str(several_servers.front_address(topology)))


@EVERY
def test_kube_apiserver_finds_all_that_its_configuration_names(topology: Topology) -> None:
    [cluster, *others] = yaml.safe_load(several_servers.egress_file(_front(topology)))["egressSelections"]
    tcp = cluster["connection"]["transport"]["tcp"]
    front = several_servers.front_address(topology)
    assert tcp["url"] == (f"https://[{front}]:8090" if front.version == 6 else f"https://{front}:8090")
    credentials = several_servers.make_credentials(topology, NODES, NOW)
    files = several_servers.client_files(credentials.authority, credentials.client)
    assert set(tcp["tlsConfig"].values()) == set(files)
    assert all(path.startswith(EGRESS_DIRECTORY) for path in files)
    assert {other["connection"]["proxyProtocol"] for other in others} == {"Direct"}


def test_a_kubeconfig_is_led_elsewhere_and_keeps_the_rest() -> None:
    local = {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", "x": 1}}], "users": ["u"]}
    changed = yaml.safe_load(several_servers.kubeconfig_from_afar(yaml.safe_dump(local).encode(), "https://a:1"))
    assert changed == {"clusters": [{"name": "c", "cluster": {"server": "https://a:1", "x": 1}}], "users": ["u"]}
