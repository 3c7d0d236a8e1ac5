"""The rendered control plane starts for real: etcd, kube-apiserver, controller-manager, scheduler, in a namespace."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.control_plane_specs import DUAL, IPV4, control_plane_set, control_plane_spec
from tests.support.netns import Network
from tests.support.static_processes import StaticProcesses, lay_tree, peer
from tests.support.tunnel_pair import wait_until

from umbilical.fault import HostError
from umbilical.host.processes import run
from umbilical.lab.control_plane import KUBELET_KUBECONFIG, kubelet_node_assets, render_control_plane
from umbilical.manifests.control_plane_spec import ControlPlaneSpec
from umbilical.pki.control_plane_set import NodeNames
from umbilical.pki.profiles import KeyType

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
pytestmark = [pytest.mark.real(*PROGRAMS, "kubectl", "openssl", "curl"), pytest.mark.root, pytest.mark.timeout(240)]
WORKER = NodeNames("worker-0", ("10.90.0.21",))


class Plane:
    def __init__(self, spec: ControlPlaneSpec, processes: StaticProcesses) -> None:
        self.spec = spec
        self.processes = processes
        self.kubectl = processes.kubectl


@pytest.fixture(
    scope="module", params=[(IPV4, KeyType.ECDSA_P256), (DUAL, KeyType.RSA_2048)], ids=["ipv4-ecdsa", "dual-stack-rsa"]
)
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    family, key_type = request.param
    spec = control_plane_spec(family, is_throwaway=True)
    certificates = control_plane_set(spec, WORKER, key_type=key_type)
    root = tmp_path_factory.mktemp("plane")
    with Network("umb") as network:
        node, other = network.create("plane"), network.create("other")
        for left, right in (("10.90.0.1/24", "10.90.0.2/24"), ("fd90::1/64", "fd90::2/64")):
            network.link(node, left, other, right)
        processes = StaticProcesses(root, render_control_plane(spec, certificates), node)
        lay_tree(root / "worker", kubelet_node_assets("worker-0", spec.api_url, certificates))
        try:
            processes.start(*PROGRAMS)
            processes.wait_for_api()
            yield Plane(spec, processes)
        finally:
            processes.stop()


def test_the_controllers_work_on_a_new_namespace(plane: Plane) -> None:
    plane.kubectl("create", "namespace", "shown")

    def has_account() -> bool:
        return "default" in plane.kubectl("-n", "shown", "get", "serviceaccounts", "-o", "name")

    wait_until(has_account, "the default service account", 60)
    root = plane.kubectl("-n", "shown", "get", "configmaps", "-o", "jsonpath={.items[*].data.ca\\.crt}")
    assert root.strip() == _file(plane, "ca.crt").read_text().strip()


def test_a_token_is_signed_and_recognised(plane: Plane) -> None:
    token = plane.kubectl("create", "token", "default").strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = json.loads(plane.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"


def test_the_scheduler_says_why_a_pod_has_no_node(plane: Plane) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waiting"},
        "spec": {"containers": [{"name": "one", "image": "localhost/none:lab"}]},
    }
    plane.kubectl("create", "-f", "-", stdin=json.dumps(pod))

    def reason() -> bool:
        return "no nodes available" in plane.kubectl("get", "pod", "waiting", "-o", "json")

    wait_until(reason, "the scheduler's word", 60)


def test_the_service_of_the_api_has_the_first_address_of_every_range(plane: Plane) -> None:
    service = json.loads(plane.kubectl("get", "service", "kubernetes", "-o", "json"))
    assert service["spec"]["clusterIP"] == str(plane.spec.service_networks[0][1])
    slices = json.loads(plane.kubectl("get", "endpointslices", "-o", "json"))["items"]
    assert [slice_["endpoints"][0]["addresses"] for slice_ in slices] == [[str(plane.spec.node_ip)]]


def test_a_kubelet_may_register_its_own_node_and_no_other(plane: Plane) -> None:
    kubeconfig = plane.processes.root / "worker" / KUBELET_KUBECONFIG.lstrip("/")

    def register(name: str) -> str:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": "10.92.3.0/24"}}
        command = [peer("kubectl"), f"--kubeconfig={kubeconfig}", "create", "-f", "-"]
        return run(plane.processes.namespace.command(*command), 60, json.dumps(node).encode())

    assert "node/worker-0 created" in register("worker-0")
    assert plane.kubectl("get", "node", "worker-0", "-o", "jsonpath={.spec.podCIDR}") == "10.92.3.0/24"
    with pytest.raises(HostError) as refusal:
        register("worker-1")
    assert "not allowed" in refusal.value.why


def test_openssl_follows_every_chain(plane: Plane) -> None:
    for authority, purpose, names in (
        ("ca.crt", "sslserver", ["apiserver.crt"]),
        ("ca.crt", "sslclient", ["apiserver-kubelet-client.crt"]),
        ("etcd/ca.crt", "sslserver", ["etcd/server.crt", "etcd/peer.crt"]),
        ("etcd/ca.crt", "sslclient", ["etcd/server.crt", "etcd/peer.crt", "apiserver-etcd-client.crt"]),
        ("front-proxy-ca.crt", "sslclient", ["front-proxy-client.crt"]),
    ):
        paths = [str(_file(plane, name)) for name in names]
        options = ["-x509_strict", "-purpose", purpose, "-CAfile", str(_file(plane, authority))]
        printed = run(["openssl", "verify", *options, *paths], 30)
        assert printed.splitlines() == [f"{path}: OK" for path in paths]


def test_etcd_is_healthy_for_a_client_with_a_certificate_and_refuses_one_without(plane: Plane) -> None:
    authority, pair = _file(plane, "etcd/ca.crt"), _file(plane, "apiserver-etcd-client")
    curl = ["curl", "-sS", "--cacert", str(authority)]
    credentials = ["--cert", f"{pair}.crt", "--key", f"{pair}.key"]
    inside = plane.processes.namespace.command
    assert '"health":"true"' in run(inside(*curl, *credentials, "https://localhost:2379/health"), 30)
    with pytest.raises(HostError):
        run(inside(*curl, "https://localhost:2379/health"), 30)
    log = plane.processes.log("etcd")
    assert "client didn't provide a certificate" in log
    assert "incompatible key usage" not in log


def _file(plane: Plane, name: str) -> Path:
    return plane.processes.root / "etc/kubernetes/pki" / name
