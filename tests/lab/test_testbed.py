"""Testbeds: who plays in them, the tunnel's files, what is left over, and how another terminal takes one up."""

import json
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.support.labs import running

from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.bootstrap.render import objects
from umbilical.bootstrap.spec import Mode, Shape
from umbilical.fault import LabError
from umbilical.lab.kubernetes_testbed import KubernetesTestbed, Plane
from umbilical.lab.lab import CompletedCommand, Lab
from umbilical.lab.scenario_run import load_testbed, make_testbed
from umbilical.lab.stand_in_testbed import StandInTestbed
from umbilical.lab.testbed import BOOTSTRAP, COUNTER
from umbilical.lab.topology import Family, plan_topology
from umbilical.lab.transcript import CallResult, Transcript
from umbilical.lab.tunnel_parts import OURS, UPSTREAM, ScenarioOptions, make_parts, restore_parts, secrets_of
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates

ADDRESS = "10.91.0.10"
NOW = datetime.now(UTC)
KUBE_APISERVER = b"""
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - name: kube-apiserver
    image: localhost/kube-apiserver:lab
    command: [kube-apiserver, --secure-port=6443]
"""


def test_nothing_is_left_to_be_filled_in_and_the_static_pod_lies_where_a_kubelet_looks() -> None:
    for shape in (Shape.OPENSHIFT, Shape.SEED):
        parts = make_parts(ScenarioOptions(shape), ADDRESS, Authority, NOW)
        texts = [asset.content.decode() for asset in parts.files if asset.path.endswith(".yaml")]
        assert [name for name in objects.ALL if any(name in text for text in texts)] == []
        assert parts.files[STATIC_POD].content == parts.files[OWN.server_pod].content


def test_a_tunnel_of_different_makers_is_taken_up_again_with_the_same_certificates() -> None:
    parts = make_parts(ScenarioOptions(server_image=UPSTREAM, agent_image=OURS), ADDRESS, Authority, NOW)
    server = yaml.safe_load(parts.files[STATIC_POD].content)
    (agents,) = (one for one in parts.objects if one["kind"] == "DaemonSet")
    assert server["spec"]["containers"][0]["image"] == UPSTREAM
    assert agents["spec"]["template"]["spec"]["containers"][0]["image"] == OURS
    assert yaml.safe_load(parts.files[OWN.agent_daemon_set].content) == agents
    options = ScenarioOptions()
    parts = make_parts(options, ADDRESS, Authority, NOW)
    again = restore_parts(options, ADDRESS, Authority, secrets_of(parts), NOW)
    assert again.certificates == parts.certificates
    assert [(one.path, one.content) for one in again.files] == [(one.path, one.content) for one in parts.files]


def test_kube_apiserver_is_told_the_same_socket_and_protocol_as_the_server() -> None:
    parts = make_parts(ScenarioOptions(Shape.SEED), ADDRESS, Authority, NOW)
    pod = yaml.safe_load(parts.kube_apiserver_pod(KUBE_APISERVER))
    egress = yaml.safe_load(parts.egress_file)
    cluster = egress["egressSelections"][0]["connection"]
    assert parts.spec.mode is Mode.HTTP_CONNECT
    assert cluster["proxyProtocol"] == "HTTPConnect"
    assert cluster["transport"]["uds"]["udsName"] == parts.spec.socket_on_host
    mounts = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert parts.spec.socket_directory in mounts


def test_options_survive_being_written_down() -> None:
    for shape in (Shape.OPENSHIFT, Shape.SEED):
        options = ScenarioOptions(shape, server_image=UPSTREAM, is_stand_in=True)
        assert ScenarioOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


@pytest.fixture
def no_lab() -> Any:
    return SimpleNamespace(topology=plan_topology())


def test_the_options_decide_which_testbed_is_played(no_lab: Any) -> None:
    assert isinstance(make_testbed(no_lab, ScenarioOptions(), Transcript("a test")), KubernetesTestbed)
    testbed = make_testbed(no_lab, ScenarioOptions(is_stand_in=True), Transcript("a test"))
    assert isinstance(testbed, StandInTestbed)
    assert not testbed.has_production


class _Lab(SimpleNamespace):
    """Answers every command with what a test put there."""

    answer: CompletedCommand

    def exec(self, node: str, command: list[str], **options: Any) -> CompletedCommand:
        self.asked = (node, command, options)
        return self.answer


def _testbed(family: Family = Family.IPV4, **answer: Any) -> KubernetesTestbed:
    lab: Any = _Lab(topology=plan_topology(family=family))
    lab.answer = CompletedCommand("bootstrap", ("kubectl",), **{"exit_code": 0, "stdout": b"", "stderr": b"", **answer})
    return KubernetesTestbed(lab, ScenarioOptions(), Transcript("a test"))


@pytest.mark.parametrize("family", list(Family))
def test_certificates_cover_every_member_and_production_uses_the_bootstrap_nodes_etcd(family: Family) -> None:
    testbed = _testbed(family)
    names = testbed.certificate_names()
    wanted = {str(one.ip) for plane in Plane for one in testbed.lab.topology.node(plane.value).addresses}
    assert wanted == set(names.node_ips)
    assert {node.name for node in names.nodes} == {node.name for node in testbed.lab.topology.nodes}
    assert len(names.service_ips) == len(testbed.lab.topology.service_networks)
    spec = testbed.plane_spec(Plane.PRODUCTION)
    address = testbed.lab.topology.bootstrap.address
    host = f"[{address}]" if ":" in address else address
    assert spec.etcd_urls == (f"https://{host}:2379",)
    assert not spec.has_etcd
    assert not spec.has_controllers


def test_a_refusal_by_the_webhook_is_told_from_a_webhook_that_is_not_reached() -> None:
    denied = _testbed(exit_code=1, stderr=b'admission webhook "v" denied the request: no')
    blocked = _testbed(exit_code=1, stderr=b'failed calling webhook "v": connect: network is unreachable')
    assert denied.call_webhook("deny").call is CallResult.DENIED
    assert blocked.call_webhook("deny").call is CallResult.UNREACHABLE
    assert _testbed(stdout=b"configmap/judged-allow created").call_webhook("allow").call is CallResult.ALLOWED


def test_objects_go_to_kubectl_by_standard_input_and_a_refusal_is_an_error() -> None:
    with pytest.raises(LabError, match="UMB816"):
        _testbed(exit_code=1, stderr=b"error: nope").apply({"kind": "Namespace"})
    testbed = _testbed()
    testbed.apply({"kind": "Secret", "data": {"key": "c2VjcmV0"}})
    lab: Any = testbed.lab
    _, command, options = lab.asked
    assert not any("c2VjcmV0" in word for word in command)
    assert json.loads(options["stdin"])["items"][0]["kind"] == "Secret"


_TALK = """
import socket, threading
server = socket.create_server(("10.91.0.10", 8091))
def answer():
    peer, _ = server.accept()
    while peer.recv(65536): pass
    peer.sendall(b"x" * 20000)
    peer.close()
thread = threading.Thread(target=answer); thread.start()
client = socket.create_connection(("10.91.0.10", 8091), 5)
client.sendall(b"y" * 10000); client.shutdown(socket.SHUT_WR)
while client.recv(65536): pass
thread.join(5)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("testbed") / "lab") as lab:
        yield lab


@pytest.fixture(autouse=True)
def _clean(lab: Lab) -> Iterator[None]:
    yield
    lab.directory.testbed_file.unlink(missing_ok=True)
    for path in (STATIC_POD, OWN.pki_directory):
        if lab.exists(BOOTSTRAP, path):
            lab.remove(BOOTSTRAP, path)


@pytest.mark.real("unshare", "nsenter", "nft", "ss")
def test_a_tunnel_is_taken_up_by_another_terminal_of_its_owner(lab: Lab) -> None:
    parts = make_testbed(lab, ScenarioOptions(is_stand_in=True), Transcript("first")).make_tunnel()
    again = load_testbed(lab, Transcript("second"))
    assert again.tunnel.certificates == parts.certificates
    assert again.options == ScenarioOptions(is_stand_in=True)
    assert again.connected_agents() == []
    assert stat.S_IMODE(lab.directory.testbed_file.stat().st_mode) == 0o600


@pytest.mark.real("unshare", "nsenter", "nft")
def test_agents_dial_the_family_that_is_chosen_also_when_the_tunnel_is_taken_up_again(tmp_path: Path) -> None:
    topology = plan_topology(masters=1, workers=0, family=Family.DUAL)
    with running(tmp_path / "lab", topology=topology) as both:
        for version, address in {None: "10.91.0.10", 4: "10.91.0.10", 6: "fd91::10"}.items():
            options = ScenarioOptions(is_stand_in=True, dial_version=version)
            make_testbed(both, options, Transcript("first")).make_tunnel()
            again = load_testbed(both, Transcript("second"))
            assert again.options == options
            (agents,) = (one for one in again.tunnel.objects if one["kind"] == "DaemonSet")
            flags = agents["spec"]["template"]["spec"]["containers"][0]["args"]
            assert f"--proxy-server-host={address}" in flags
            assert read_certificates(again.tunnel.certificates.server.certificate)[0].names == (address,)


@pytest.mark.real("unshare", "nsenter", "nft", "ss")
def test_nothing_played_is_taken_up_and_what_lies_on_the_node_is_left_over(lab: Lab) -> None:
    with pytest.raises(LabError, match="UMB851"):
        load_testbed(lab, Transcript("second"))
    testbed = make_testbed(lab, ScenarioOptions(is_stand_in=True), Transcript("first"))
    testbed.write_files(BOOTSTRAP, testbed.make_tunnel().files)
    assert testbed.node_leftovers() == [STATIC_POD, OWN.pki_directory]
    for path in (STATIC_POD, OWN.pki_directory):
        lab.remove(BOOTSTRAP, path)
    assert testbed.node_leftovers() == []


@pytest.mark.real("unshare", "nsenter", "nft", "ss")
def test_bytes_on_the_agents_port_are_counted_in_both_directions(lab: Lab) -> None:
    testbed = make_testbed(lab, ScenarioOptions(is_stand_in=True), Transcript("first"))
    lab.count_port(BOOTSTRAP, COUNTER, 8091)
    try:
        assert testbed.tunnel_bytes() == 0
        lab.exec(BOOTSTRAP, [sys.executable, "-c", _TALK]).check()
        # Headers come on top; on loopback both chains see a packet, each in one direction.
        assert 30_000 < testbed.tunnel_bytes() < 40_000
    finally:
        lab.remove_rules(BOOTSTRAP, COUNTER)


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInTestbed]:
    transcript = Transcript("a test")
    with running(tmp_path_factory.mktemp("stand-in") / "lab") as lab, transcript.step("a test"):
        testbed = make_testbed(lab, ScenarioOptions(is_stand_in=True), transcript)
        assert isinstance(testbed, StandInTestbed)
        testbed.start_control_plane()
        testbed.start_nodes()
        assert testbed.start_webhook() == "master-0"
        yield testbed


@pytest.mark.real("unshare", "nsenter", "nft", "ss")
def test_without_the_tunnel_the_bootstrap_node_has_no_way_to_a_pod_and_calls_have_no_times(
    testbed: StandInTestbed,
) -> None:
    verdict = testbed.call_webhook("allow")
    assert verdict.call is CallResult.UNREACHABLE
    assert "network is unreachable" in verdict.text
    with pytest.raises(LabError, match="UMB855"):
        testbed.call_times(2)
    assert any("replaces kube-apiserver" in line for line in testbed.transcript.steps[0].evidence)
