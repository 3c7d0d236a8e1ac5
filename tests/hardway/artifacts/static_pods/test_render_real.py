"""The rendered static pods start for real: a bootstrap control plane in a namespace, and a master that joins it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.control_plane import KUBECTL_SECONDS, READY_SECONDS
from tests.support.hardway import certificates, cluster, identity, inputs, payload
from tests.support.netns import Namespace, Network
from tests.support.static_processes import peer
from tests.support.tunnel_pair import wait_until

from umbilical.fault import HostError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import render_certificates
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.kubeconfigs import render_kubeconfigs
from umbilical.hardway.artifacts.nodes.render import files_needed
from umbilical.hardway.artifacts.static_pods.etcd import client_url, member_name, peer_url
from umbilical.hardway.artifacts.static_pods.pods import render_static_pods
from umbilical.hardway.config.cluster import ClusterNode, ClusterProfile, Switch
from umbilical.host.files import make_directory, write_file
from umbilical.host.processes import Child, run, start
from umbilical.manifests.tree import AssetTree

pytestmark = pytest.mark.timeout(300)
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROGRAMS = pytest.mark.real(*CONTROL_PLANE, "kube-proxy", "etcdctl", "kubectl")


def command_line(root: Path, pod: dict[str, Any]) -> list[str]:
    """Translate a pod's command for a process that sees the host below `root`."""
    spec = pod["spec"]["containers"][0]
    program = peer(spec["command"][-1].rpartition("/")[2])
    return [program, *(_translated(word, _places(root, pod, spec)) for word in spec["args"])]


def _places(root: Path, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
    """Mount path -> directory of this machine, the longest first."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    places = {}
    for mount in container["volumeMounts"]:
        host = volumes[mount["name"]].get("hostPath", {}).get("path", mount["mountPath"])
        places[mount["mountPath"]] = f"{root}{host}"
    return dict(sorted(places.items(), key=lambda item: -len(item[0])))


def _translated(word: str, places: dict[str, str]) -> str:
    flag, equals, value = word.partition("=")
    parts = [_place(part, places) for part in value.split(",")]
    return f"{flag}{equals}{','.join(parts)}"


def _place(part: str, places: dict[str, str]) -> str:
    for inside, outside in places.items():
        if part == inside or part.startswith(f"{inside}/"):
            return outside + part[len(inside) :]
    return part


class Machine:
    """A node: its files below a folder of its own, its pods as processes in a namespace."""

    def __init__(self, root: Path, namespace: Namespace, given: Inputs, node: ClusterNode) -> None:
        self.root = root
        self.node = node
        self._namespace = namespace
        self._children: list[Child] = []
        renderers = (render_certificates, render_kubeconfigs, render_static_pods)
        made = {asset.path: asset for render in renderers for asset in render(given, AssetTree())}
        # What the node's Ignition would put onto its disk for its static pods.
        for path, artifact in files_needed(given, node).items():
            place = root / path.lstrip("/")
            make_directory(place.parent)
            write_file(place, made[artifact].content, made[artifact].mode)
        self._kubeconfig = root / "admin.kubeconfig"
        self._kubeconfig.write_bytes(made[layout.kubeconfig("localhost")].content)

    def start(self, *files: str) -> None:
        for file in files:
            [manifest] = self.root.glob(f"etc/kubernetes/*/{file}.yaml")
            pod = yaml.safe_load(manifest.read_bytes())
            container = pod["spec"]["containers"][0]
            variables = [f"{one['name']}={one['value']}" for one in container.get("env", ())]
            command = self._namespace.command("env", *variables, *command_line(self.root, pod))
            self._children.append(start(command, self.root / f"{file}.log", name=container["name"]))

    def stop(self) -> None:
        for child in reversed(self._children):
            child.kill()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = self._namespace.command(peer("kubectl"), f"--kubeconfig={self._kubeconfig}", *arguments)
        return run(command, KUBECTL_SECONDS, None if stdin is None else stdin.encode())

    def etcdctl(self, *arguments: str) -> str:
        """By the pair that the member serves with, as OpenShift's probe does."""
        secrets = next(self.root.glob("etc/kubernetes/*/etcd-ca-bundle.crt")).parent
        pair = secrets / f"etcd-serving-{self.node.id}"
        trust = [f"--cacert={secrets}/etcd-ca-bundle.crt", f"--cert={pair}.crt", f"--key={pair}.key"]
        command = [peer("etcdctl"), f"--endpoints={client_url(self.node)}", *trust, *arguments]
        return run(self._namespace.command(*command), KUBECTL_SECONDS)

    def wait_for_api(self) -> None:
        wait_until(self._is_ready, f"the API of {self.node.id}", READY_SECONDS)

    def wait_for_etcd(self) -> None:
        wait_until(self._has_healthy_etcd, f"etcd of {self.node.id}", READY_SECONDS)

    def _is_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw=/readyz") == "ok" and bool(self.kubectl("get", "ns", "kube-system"))
        except HostError:
            return False

    def _has_healthy_etcd(self) -> bool:
        try:
            return "true" in self.etcdctl("endpoint", "health", "-w", "json")
        except HostError:
            return False


def _inputs(profile: ClusterProfile) -> Inputs:
    """With certificates that are good now."""
    of = cluster(profile, masters=1, workers=0, konnectivity=Switch.OFF)
    return Inputs(of, certificates(of, datetime.now(UTC)), payload(profile), identity())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Machine]]:
    """A bootstrap node, and a master whose etcd has not joined yet."""
    given = _inputs(ClusterProfile.KUBERNETES)
    nodes = (given.cluster.bootstrap, given.cluster.masters[0])
    with Network("umb") as network:
        spaces = [network.create(node.id) for node in nodes]
        network.link(spaces[0], f"{nodes[0].address}/24", spaces[1], f"{nodes[1].address}/24")
        machines = [
            Machine(tmp_path_factory.mktemp(node.id), space, given, node)
            for node, space in zip(nodes, spaces, strict=True)
        ]
        try:
            machines[0].start(*(f"{program}-bootstrap" for program in CONTROL_PLANE))
            machines[0].wait_for_api()
            yield machines[0], machines[1]
        finally:
            for machine in machines:
                machine.stop()


@PROGRAMS
@pytest.mark.root
def test_the_controllers_of_the_bootstrap_node_work_by_localhost(pair: tuple[Machine, Machine]) -> None:
    bootstrap, _ = pair

    def has_account() -> bool:
        return "default" in bootstrap.kubectl("get", "serviceaccounts", "-o", "name")

    def both_lead() -> bool:
        leases = json.loads(bootstrap.kubectl("-n", "kube-system", "get", "leases", "-o", "json"))["items"]
        return {"kube-controller-manager", "kube-scheduler"} <= {lease["metadata"]["name"] for lease in leases}

    wait_until(has_account, "the default service account", 60)
    wait_until(both_lead, "the leases of both", 60)


@pytest.fixture(scope="module")
def joined(pair: tuple[Machine, Machine]) -> tuple[Machine, Machine]:
    """The same, with the master's etcd as a voter and its kube-apiserver ready."""
    bootstrap, master = pair
    bootstrap.etcdctl("member", "add", member_name(master.node), "--learner", f"--peer-urls={peer_url(master.node)}")
    master.start("etcd")

    def is_promoted() -> bool:
        members = json.loads(bootstrap.etcdctl("member", "list", "-w", "json"))["members"]
        [mine] = [one for one in members if peer_url(master.node) in one["peerURLs"]]
        if not mine.get("isLearner"):
            return True
        try:
            bootstrap.etcdctl("member", "promote", f"{mine['ID']:x}")
        except HostError as refusal:
            if "in sync" not in refusal.why:
                raise
        return False

    wait_until(is_promoted, "the learner becomes a voter", 60)
    master.wait_for_etcd()
    bootstrap.kubectl("create", "configmap", "nonce", "--from-literal=seen=yes")
    master.start("kube-apiserver")
    master.wait_for_api()
    return pair


@PROGRAMS
@pytest.mark.root
def test_a_master_joins_as_a_learner_and_serves_what_the_bootstrap_node_stored(joined: tuple[Machine, Machine]) -> None:
    _, master = joined
    members = json.loads(master.etcdctl("member", "list", "-w", "json"))["members"]
    assert {one["name"] for one in members} == {"etcd-bootstrap", "master-0.ocp4.example.com"}
    assert master.kubectl("get", "configmap", "nonce", "-o", "jsonpath={.data.seen}") == "yes"


@PROGRAMS
@pytest.mark.root
def test_a_token_of_the_bootstrap_node_is_good_on_the_master(joined: tuple[Machine, Machine]) -> None:
    bootstrap, master = joined
    token = bootstrap.kubectl("create", "token", "default").strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = json.loads(master.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"


@PROGRAMS
@pytest.mark.root
def test_clients_by_name_and_by_address_see_certificates_that_fit(pair: tuple[Machine, Machine]) -> None:
    bootstrap, _ = pair
    for host in ("localhost", "127.0.0.1", str(bootstrap.node.address)):
        seen = bootstrap.kubectl(f"--server=https://{host}:6443", "get", "--raw=/readyz")
        assert seen == "ok", host
    for name in ("api.ocp4.example.com", "api-int.ocp4.example.com"):
        seen = bootstrap.kubectl("--server=https://127.0.0.1:6443", f"--tls-server-name={name}", "get", "--raw=/readyz")
        assert seen == "ok", name


@PROGRAMS
@pytest.mark.root
def test_openshifts_objects_lie_below_the_prefix_that_its_masters_read(tmp_path: Path) -> None:
    given = _inputs(ClusterProfile.OPENSHIFT)
    node = given.cluster.bootstrap
    with Network("umb") as network:
        space, other = network.create("boot"), network.create("other")
        network.link(space, f"{node.address}/24", other, "192.168.126.1/24")
        machine = Machine(tmp_path, space, given, node)
        try:
            machine.start("etcd-bootstrap", "kube-apiserver-bootstrap")
            machine.wait_for_api()
            keys = machine.etcdctl("get", "--prefix", "--keys-only", "/").split()
        finally:
            machine.stop()
    assert "/kubernetes.io/namespaces/kube-system" in keys
    assert all(key.startswith("/kubernetes.io/") for key in keys)


@PROGRAMS
@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_program_knows_all_of_its_flags(profile: ClusterProfile, tmp_path: Path) -> None:
    asked = 0
    for pod in _pods(profile):
        if pod["spec"]["containers"][0]["name"] in (*CONTROL_PLANE, "kube-proxy"):
            # Flags are parsed before this one is looked at: an unknown one ends the program with an error.
            assert run([*command_line(tmp_path, pod), "--version"], 60)
            asked += 1
    assert asked >= 9


@PROGRAMS
@pytest.mark.root
@pytest.mark.parametrize("profile", ClusterProfile)
def test_every_pod_is_one_by_the_apis_own_schema(profile: ClusterProfile, pair: tuple[Machine, Machine]) -> None:
    bootstrap, _ = pair

    def create(pod: dict[str, Any]) -> str:
        # In a namespace that is there; OpenShift's own are made by manifests.
        here = pod | {"metadata": pod["metadata"] | {"namespace": "default"}}
        strictly = ("create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
        return bootstrap.kubectl(*strictly, stdin=json.dumps(here)).strip()

    wait_until(lambda: "default" in bootstrap.kubectl("get", "serviceaccounts"), "the default service account", 60)
    for pod in _pods(profile):
        assert create(pod) == f"pod/{pod['metadata']['name']}"
    with pytest.raises(HostError) as refusal:
        create(_pods(profile)[0] | {"spce": {}})
    assert "unknown field" in refusal.value.why


def _pods(profile: ClusterProfile) -> list[dict[str, Any]]:
    tree = render_static_pods(inputs(profile, kube_proxy=Switch.ON), AssetTree())
    found = [yaml.safe_load(asset.content) for asset in tree if asset.path.endswith(".yaml")]
    return [one for one in found if one["kind"] == "Pod"]
