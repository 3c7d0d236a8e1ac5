"""The parts of a hosted control plane and of several servers: every command finds its files, our programs take it."""

import base64
from datetime import UTC, datetime
from typing import Any, Final

import click
import pytest
import yaml

from umbilical.bootstrap.render.kube_apiserver import EGRESS_DIRECTORY
from umbilical.cli.agent import agent
from umbilical.cli.proxy.serve import https, socks5
from umbilical.cli.server import server
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.hosted.objects import names
from umbilical.hosted.pki.table import CLIENT, CONTROL_PLANE_AGENT, SERVER
from umbilical.lab import several_servers
from umbilical.lab.hosted import parts as hosted_parts
from umbilical.lab.hosted.parts import (
    API_NODE,
    SERVER_NODES,
    HostedPart,
    HostedParts,
    command,
    container,
    find,
    mounted_files,
)
from umbilical.lab.hosted.stage import HTTPS, SERVERS, HostedStage, complaint
from umbilical.lab.lab import Lab, ProcessStatus
from umbilical.lab.nft import spread
from umbilical.lab.proxy_client import ProxyProtocol
from umbilical.lab.through_proxies import say
from umbilical.lab.topology import Family, Topology, plan_topology
from umbilical.lab.transcript import Transcript
from umbilical.pki.certificate import read_certificates

OBJECTS: list[dict[str, Any]] = [
    {"kind": "Secret", "metadata": {"name": "pair"}, "data": {"tls.key": base64.b64encode(b"key").decode()}},
    {"kind": "ConfigMap", "metadata": {"name": "trust"}, "data": {"a.crt": "A", "b.crt": "B"}},
]
SERVER_CONTAINER: dict[str, Any] = {
    "name": "server",
    "command": ["/usr/bin/proxy-server"],
    "args": ["--mode=http-connect"],
    "volumeMounts": [
        {"name": "pair", "mountPath": "/etc/pair"},
        {"name": "all", "mountPath": "/etc/all"},
        {"name": "one", "mountPath": "/etc/one"},
        {"name": "tmp", "mountPath": "/tmp"},
    ],
}
POD: dict[str, Any] = {
    "containers": [{"name": "main"}, SERVER_CONTAINER],
    "volumes": [
        {"name": "pair", "secret": {"secretName": "pair"}},
        {"name": "all", "configMap": {"name": "trust"}},
        {"name": "one", "configMap": {"name": "trust", "items": [{"key": "b.crt", "path": "ca.crt"}]}},
        {"name": "tmp", "emptyDir": {}},
    ],
}


def test_a_container_gets_the_files_of_its_mounts_and_is_named_without_its_place() -> None:
    assert mounted_files(POD, container(POD, "server"), OBJECTS) == {
        "/etc/pair/tls.key": b"key",
        "/etc/all/a.crt": b"A",
        "/etc/all/b.crt": b"B",
        "/etc/one/ca.crt": b"B",
    }
    assert mounted_files(POD, container(POD, "main"), OBJECTS) == {}
    assert command(SERVER_CONTAINER) == ["proxy-server", "--mode=http-connect"]
    with pytest.raises(LabError, match="found no Secret other") as caught:
        find(OBJECTS, "Secret", "other")
    assert caught.value.code == "UMB859"


NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def parts() -> HostedParts:
    return hosted_parts.make_parts(hosted_parts.topology(), NOW)


def _named_files(part: HostedPart) -> set[str]:
    words = [word.rpartition("=")[2] for word in part.command]
    return {word for word in words if word.startswith("/")}


def test_the_rendered_server_and_agent_find_every_file_that_they_name(parts: HostedParts) -> None:
    assert parts.server.command[0] == "proxy-server"
    assert f"--server-count={len(SERVER_NODES)}" in parts.server.command
    assert _named_files(parts.server) <= set(parts.server.files)
    assert f"{names.SERVER_SERVER_DIRECTORY}/tls.crt" in parts.server.files
    agent = parts.control_plane_agent
    address = hosted_parts.topology().node(API_NODE).address
    assert agent.command[0] == "proxy-agent"
    assert f"--agent-identifiers=ipv4={address}" in agent.command
    assert _named_files(agent) <= set(agent.files)
    shown = agent.files[f"{names.AGENT_PAIR_DIRECTORY}/tls.crt"]
    assert read_certificates(shown)[0].common_name == CONTROL_PLANE_AGENT.common_name


def test_objects_are_those_of_the_nodes_or_of_the_api_which_finds_its_pair(parts: HostedParts) -> None:
    assert "DaemonSet" in {one["kind"] for one in parts.agent_objects}
    assert {one["kind"] for one in parts.api_objects} >= {"Service", "EndpointSlice", "APIService"}
    assert not any(one in parts.api_objects for one in parts.agent_objects)
    part = parts.api.part
    assert {word for word in part.command if word.startswith("/")} == set(part.files)
    assert "--close-connections" in part.command


def test_a_renewed_certificate_is_another_one_of_the_same_signer_and_all_others_stay(parts: HostedParts) -> None:
    renewed = parts.renewed(SERVER, NOW)
    assert renewed.pki.leaves[SERVER.id] != parts.pki.leaves[SERVER.id]
    assert renewed.pki.leaves[CLIENT.id] == parts.pki.leaves[CLIENT.id]
    assert renewed.pki.signers == parts.pki.signers
    changed = {path for path, content in renewed.server.files.items() if parts.server.files[path] != content}
    folder = names.SERVER_SERVER_DIRECTORY
    assert changed == {f"{folder}/tls.crt", f"{folder}/tls.key"}


def _options(command: click.Command, words: list[str]) -> dict[str, Any]:
    """Read words as the program would, without running it."""
    assert words[0] == "umbilical"
    # click keeps a command's help option from its first use, for every later test of this process.
    return command.make_context(words[2], words[3:], help_option_names=["-h", "--help"]).params


@pytest.mark.parametrize(("kind", "command"), [("socks5", socks5), ("https", https)])
def test_a_proxy_is_told_of_all_servers_in_order_and_finds_its_files(
    parts: HostedParts, kind: str, command: click.Command
) -> None:
    servers = ["192.168.91.12", "192.168.91.11"]
    options = _options(command, hosted_parts.proxy_command(kind, 1080, 2042, servers, ["--resolve", "agent"]))
    found = [(server.host, server.port) for server in options["server"]]
    assert found == [(server, names.FRONTEND_PORT) for server in servers]
    assert options["server_name"] in parts.spec.frontend_names
    assert {str(options[name]) for name in ("ca", "cert", "key")} <= set(parts.proxy_files)


def test_dns_knows_the_given_names_alone_and_every_kind_of_proxying_has_a_way_to_one_name() -> None:
    command = hosted_parts.dns_command("10.91.0.22", {"a.example": "10.92.0.2"})
    assert "--host-record=a.example,10.92.0.2" in command
    assert {"--no-resolv", "--no-hosts", "--bind-interfaces", "--listen-address=10.91.0.22"} <= set(command)
    ways = hosted_parts.ways()
    assert {way.kind for way in ways.values()} == set(ProxyProtocol)
    assert {way.host for way in ways.values()} == {hosted_parts.SERVICE_NAME}


METRICS = """# HELP x y
konnectivity_network_proxy_server_established_connections 3
umbilical_certificate_reloads_total{role="agents",result="success"} 1
umbilical_certificate_reloads_total{role="clients",result="success"} 2
umbilical_certificate_reloads_total{role="clients",result="failure"} 4
"""


class _Lab:
    def __init__(self) -> None:
        self.topology = hosted_parts.topology()
        self.files = {("bootstrap", "/etc/hosts"): b"127.0.0.1 localhost\n"}
        self.rules: dict[tuple[str, str], str] = {}
        self.logs: dict[tuple[str, str], str] = {}
        self.rows: list[ProcessStatus] = []

    def read(self, node: str, path: str) -> bytes:
        return self.files[node, path]

    def write(self, node: str, path: str, content: bytes, mode: int = 0o600) -> None:
        self.files[node, path] = content

    def add_rules(self, node: str, name: str, ruleset: str) -> None:
        self.rules[node, name] = ruleset

    def log(self, node: str, name: str) -> str:
        return self.logs.get((node, name), "")

    write_all = Lab.write_all
    process = Lab.process

    def processes(self) -> list[ProcessStatus]:
        return self.rows


class _Testbed:
    def __init__(self) -> None:
        self.lab = _Lab()
        self.transcript = Transcript("test")
        self.answer: str | None = METRICS

    def fetch(self, node: str, url: str) -> str | None:
        return self.answer

    def wait(self, what: str, look: Any, seconds: float) -> Any:
        return look()


@pytest.fixture
def testbed() -> _Testbed:
    return _Testbed()


@pytest.fixture
def stage(testbed: _Testbed) -> HostedStage:
    return HostedStage(testbed)  # type: ignore[arg-type]


def test_a_metric_is_the_sum_over_its_labels_and_silence_is_named(stage: HostedStage, testbed: _Testbed) -> None:
    name = "umbilical_certificate_reloads_total"
    assert stage.metric(HTTPS, name) == 7
    assert stage.metric(HTTPS, name, 'result="success"') == 3
    assert stage.metric(HTTPS, name, 'role="clients"', 'result="failure"') == 4
    assert stage.open_tunnels("management-0") == 3
    testbed.answer = None
    with pytest.raises(NotYet, match="the server on management-0 does not serve its metrics"):
        stage.metric(SERVERS["management-0"], "x")
    testbed.answer = "konnectivity_network_proxy_agent_open_server_connections 2\n"
    with pytest.raises(NotYet, match="worker-0's agent has 2 servers"):
        stage.wait_for_agents(["worker-0"])
    stage.wait_for_agents(["worker-0"], servers=2)


def test_kube_apiserver_finds_all_servers_by_one_name(stage: HostedStage, testbed: _Testbed) -> None:
    for servers in (["management-0", "management-1"], ["management-1"]):
        stage.lead_kube_apiserver(servers)
        targets = [stage.topology.node(name).addresses[0].ip for name in servers]
        front = stage.topology.management.networks[0][90]  # type: ignore[union-attr]
        assert testbed.lab.rules["bootstrap", "front"] == spread(front, 8090, targets)
    hosts = testbed.lab.files["bootstrap", "/etc/hosts"].decode().splitlines()
    assert hosts == ["127.0.0.1 localhost", "192.168.91.90 konnectivity-server-local"]


def test_calls_are_waited_for_in_every_way_and_the_last_failure_is_told(
    stage: HostedStage, testbed: _Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = hosted_parts.ways()
    for name in ("socks5", "connect"):
        say({"way": name, "began": 5.0, "ended": 6.0, "failure": ""})
    say({"way": "plain", "began": 5.0, "ended": 6.0, "failure": "Refused: 502"})
    testbed.lab.logs[hosted_parts.CLIENT_NODE, "calls"] = capsys.readouterr().out
    with pytest.raises(NotYet, match="no call through plain was answered; plain: Refused: 502"):
        stage.wait_for_calls("calls", ways, 4.0)
    with pytest.raises(NotYet, match="no call through socks5, connect, plain"):
        stage.wait_for_calls("calls", ways, 5.0)
    stage.wait_for_calls("calls", {"socks5": ways["socks5"]}, 4.0)


def test_the_last_process_counts_and_a_complaint_says_where_to_look(stage: HostedStage, testbed: _Testbed) -> None:
    testbed.lab.rows = [ProcessStatus("a", "server", 1, 0), ProcessStatus("a", "server", 2, None)]
    assert stage.lab.process("a", "server").pid == 2
    with pytest.raises(NotYet, match="still runs"):
        stage.wait_until_gone("a", "server")
    fault = complaint("what", "why")
    assert fault.code == "UMB858"
    assert "--keep hosted" in fault.remedy


NODES: Final = ("master-0", "master-1")
TOPOLOGIES: Final = [plan_topology(family=family) for family in (Family.IPV4, Family.IPV6)]
EVERY = pytest.mark.parametrize("topology", TOPOLOGIES, ids=["ipv4", "ipv6"])


@EVERY
def test_each_server_is_known_by_its_own_address_and_by_the_common_one_which_nobody_has(topology: Topology) -> None:
    credentials = several_servers.make_credentials(topology, NODES, NOW)
    assert set(credentials.servers) == set(NODES)
    for node, pair in credentials.servers.items():
        [certificate] = read_certificates(pair.certificate)
        wanted = {topology.node(node).address, str(several_servers.front_address(topology))}
        assert wanted <= set(certificate.names)
    front = several_servers.front_address(topology)
    assert front in topology.machine_networks[0]
    taken = [address.ip for node in topology.nodes for address in node.addresses]
    assert front not in [*taken, *topology.gateways]


@EVERY
def test_a_server_publishes_its_address_and_an_agent_is_told_of_no_server(topology: Topology) -> None:
    options = _options(server.commands["run"], several_servers.server_command(topology, "master-1"))
    assert options["publish_lease"]
    assert options["advertise"].host == topology.node("master-1").address
    assert options["advertise"].port == options["agents"].port
    assert options["listen"].port == several_servers.CLIENT_PORT
    options = _options(agent.commands["run"], several_servers.agent_command("worker-0"))
    assert options["count_leases"]
    assert not options["server"]


def test_every_file_that_a_command_names_is_written() -> None:
    topology = TOPOLOGIES[0]
    credentials = several_servers.make_credentials(topology, NODES, NOW)
    for words, files in (
        (several_servers.server_command(topology, "master-0"), several_servers.server_files(credentials, "master-0")),
        (several_servers.agent_command("master-0"), several_servers.agent_files(credentials)),
    ):
        named = {word for word in words if word.startswith(several_servers.PLACE)}
        assert named == {*files, several_servers.KUBECONFIG}


@EVERY
def test_kube_apiserver_finds_all_that_its_configuration_names(topology: Topology) -> None:
    front = several_servers.front_address(topology)
    egress = several_servers.egress_file(several_servers.in_url(str(front)))
    [cluster, *others] = yaml.safe_load(egress)["egressSelections"]
    tcp = cluster["connection"]["transport"]["tcp"]
    assert tcp["url"] == (f"https://[{front}]:8090" if front.version == 6 else f"https://{front}:8090")
    credentials = several_servers.make_credentials(topology, NODES, NOW)
    files = several_servers.client_files(credentials.authority, credentials.client)
    assert set(tcp["tlsConfig"].values()) == set(files)
    assert all(path.startswith(EGRESS_DIRECTORY) for path in files)
    assert {other["connection"]["proxyProtocol"] for other in others} == {"Direct"}


def test_a_kubeconfig_is_led_elsewhere_and_keeps_the_rest() -> None:
    local = {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", "x": 1}}], "users": ["u"]}
    changed = yaml.safe_load(several_servers.kubeconfig_for_nodes(yaml.safe_dump(local).encode(), "https://a:1"))
    assert changed == {"clusters": [{"name": "c", "cluster": {"server": "https://a:1", "x": 1}}], "users": ["u"]}
