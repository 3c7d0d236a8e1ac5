"""Rendered assets before the programs that will read them: the real kube-apiserver, and the real proxy-server."""

import ipaddress
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane

import peers
from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.bootstrap.render.kube_apiserver import egress_selector
from umbilical.bootstrap.render.objects import PKI_MOUNT
from umbilical.bootstrap.render.render import KUBE_APISERVER_POD, render, render_kubernetes
from umbilical.bootstrap.spec import Mode, Shape, TunnelSpec, for_shape
from umbilical.fault import HostError
from umbilical.host.processes import start
from umbilical.manifests.tree import AssetTree, yaml_bytes
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile

pytestmark = pytest.mark.real(*PROGRAMS)
NODE_IP: Final = ipaddress.ip_address("192.0.2.9")
START_SECONDS: Final = 60.0
# Configuration of other programs; kube-apiserver has no such kinds.
NOT_OBJECTS: Final = ("EgressSelectorConfiguration", "KubeAPIServerConfig")
# As kubeadm writes it, cut to what a pod needs.
KUBE_APISERVER: Final = b"""
apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: null
  labels: {component: kube-apiserver, tier: control-plane}
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - command: [kube-apiserver, --advertise-address=192.0.2.1, --secure-port=6443]
    image: registry.example/kube-apiserver:v1.34.0
    name: kube-apiserver
    volumeMounts: [{mountPath: /etc/kubernetes/pki, name: k8s-certs, readOnly: true}]
  hostNetwork: true
  priorityClassName: system-node-critical
  volumes: [{hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}, name: k8s-certs}]
"""


def made_certificates() -> Certificates:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = Authority.create("ca", now, day, KeyType.ECDSA_P256)
    return Certificates(
        authority.certificate_pem,
        authority.issue(server_profile("server", [str(NODE_IP)], KeyType.ECDSA_P256), now, day),
        authority.issue(client_profile("agent", key_type=KeyType.ECDSA_P256), now, day),
    )


CERTIFICATES: Final = made_certificates()
FIXED: Final[dict[str, Any]] = {"node_ip": NODE_IP, "image": "registry.example/own:1"}
TREES: Final = {
    "openshift": render(for_shape(Shape.OPENSHIFT, **FIXED), certificates=CERTIFICATES),
    "openshift-shared": render(for_shape(Shape.OPENSHIFT, namespace="kube-system", **FIXED), certificates=CERTIFICATES),
    "seed": render(for_shape(Shape.SEED, **FIXED), certificates=CERTIFICATES),
    "seed-pod-network": render(for_shape(Shape.SEED, host_network=False, **FIXED), certificates=CERTIFICATES),
    "kubernetes-own": render_kubernetes(
        for_shape(Shape.KUBERNETES, namespace="tunnel", **FIXED), KUBE_APISERVER, CERTIFICATES
    ),
    "kubernetes-pod-network": render_kubernetes(
        for_shape(Shape.KUBERNETES, namespace="tunnel-pods", host_network=False, **FIXED), KUBE_APISERVER, CERTIFICATES
    ),
    "kubernetes": render_kubernetes(for_shape(Shape.KUBERNETES, **FIXED), KUBE_APISERVER, CERTIFICATES),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


def objects(tree: AssetTree) -> list[dict[str, Any]]:
    values = [yaml.safe_load(asset.content) for asset in tree if asset.path.endswith(".yaml")]
    return [value for value in values if value["kind"] not in NOT_OBJECTS]


def dry_run(plane: ControlPlane, value: dict[str, Any]) -> str:
    """Create it as far as storing; warnings, such as Pod Security's about a template, count as refusals."""
    arguments = ("create", "--dry-run=server", "--warnings-as-errors", "--validate=strict", "-f", "-")
    return plane.kubectl(*arguments, stdin=yaml_bytes(value).decode())


def as_pod(daemon_set: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """What the DaemonSet's controller would create: Pod Security enforces on pods alone."""
    template = daemon_set["spec"]["template"]
    metadata = {**template["metadata"], "name": "agent", "namespace": daemon_set["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **spec}}


@pytest.mark.parametrize("name", TREES)
def test_every_object_of_every_shape_would_be_stored(plane: ControlPlane, name: str) -> None:
    values = objects(TREES[name])
    for value in values:
        if value["kind"] == "Namespace":
            # What lives in it is admitted by its labels, so it must be there for real.
            plane.apply(value)
    for value in values:
        if value["kind"] != "Namespace":
            assert "created (server dry run)" in dry_run(plane, value)
        if value["kind"] == "DaemonSet":
            dry_run(plane, as_pod(value))


def test_the_namespace_that_the_agents_fit_into_refuses_less_careful_pods(plane: ControlPlane) -> None:
    tree = TREES["openshift"]
    plane.apply(yaml.safe_load(tree[OWN.namespace].content))
    agents = yaml.safe_load(tree[OWN.agent_daemon_set].content)
    with pytest.raises(HostError, match="violates PodSecurity"):
        dry_run(plane, as_pod(agents, hostNetwork=True))
    with pytest.raises(HostError, match="violates PodSecurity"):
        dry_run(plane, as_pod(agents, securityContext={}))


def test_a_field_that_kubernetes_does_not_know_is_refused(plane: ControlPlane) -> None:
    """Without this the dry runs above would show less than they seem to."""
    pod = yaml.safe_load(TREES["kubernetes"][STATIC_POD].content)
    pod["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(HostError, match="unknown field"):
        dry_run(plane, pod)


def test_the_changed_kube_apiserver_pod_would_be_stored_as_before(plane: ControlPlane) -> None:
    assert "created (server dry run)" in dry_run(plane, yaml.safe_load(KUBE_APISERVER))
    assert "created (server dry run)" in dry_run(plane, yaml.safe_load(TREES["kubernetes"][KUBE_APISERVER_POD].content))


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_kube_apiserver_starts_with_the_egress_file(plane: ControlPlane, tmp_path: Path, mode: Mode) -> None:
    path = tmp_path / "egress.yaml"
    path.write_bytes(yaml_bytes(egress_selector(for_shape(Shape.OPENSHIFT, mode=mode))))
    plane.stop_apiserver()
    plane.start_apiserver(f"--egress-selector-config-file={path}")
    assert plane.kubectl("get", "--raw=/readyz") == "ok"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert isinstance(port, int)
    return port


def wrong(spec: TunnelSpec, **changes: Any) -> dict[str, Any]:
    made = egress_selector(spec)
    made["egressSelections"][0]["connection"].update(changes)
    return made


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (wrong(for_shape(Shape.OPENSHIFT), proxyProtocol="grpc"), "Unsupported value"),
        (wrong(for_shape(Shape.OPENSHIFT), proxyProtocol="Direct"), "must be absent for direct connect"),
        (
            {**egress_selector(for_shape(Shape.OPENSHIFT)), "apiVersion": "apiserver.k8s.io/v1"},
            "is registered for version",
        ),
        ({**egress_selector(for_shape(Shape.OPENSHIFT)), "egressSelection": []}, "unknown field"),
    ],
    ids=["protocol", "transport-of-direct", "version", "field"],
)
def test_a_wrong_egress_file_keeps_kube_apiserver_from_starting(
    plane: ControlPlane, tmp_path: Path, content: dict[str, Any], complaint: str
) -> None:
    path = tmp_path / "egress.yaml"
    path.write_bytes(yaml_bytes(content))
    arguments = [*plane._apiserver_arguments(), f"--secure-port={free_port()}", f"--egress-selector-config-file={path}"]
    program = peers.binary("kube-apiserver")
    assert program is not None
    with start([program, *arguments], tmp_path / "kube-apiserver.log") as child:
        assert child.wait(START_SECONDS) != 0
        assert complaint in child.log_text()


@pytest.mark.real("proxy-server", "setpriv", "curl")
@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_the_real_server_runs_by_the_flags_of_the_static_pod(tmp_path: Path, mode: Mode) -> None:
    """Without a single capability, as the pod has it: as owner root may make its socket and read its keys."""
    tree = render(for_shape(Shape.OPENSHIFT, mode=mode, **FIXED), certificates=CERTIFICATES)
    pod = yaml.safe_load(tree[OWN.server_pod].content)["spec"]["containers"][0]
    pki, sockets = tmp_path / "pki", tmp_path / "sockets"
    for folder, allowed in ((pki, 0o700), (sockets, 0o755)):
        folder.mkdir()
        folder.chmod(allowed)
    for name in ("ca.crt", "tls.crt", "tls.key"):
        asset = tree[f"{OWN.pki_directory}/server/{name}"]
        (pki / name).write_bytes(asset.content)
        (pki / name).chmod(asset.mode)
    mount = pod["volumeMounts"][0]["mountPath"]
    arguments = [word.replace(PKI_MOUNT, str(pki)).replace(mount, str(sockets)) for word in pod["args"]]
    program = peers.binary("proxy-server")
    assert program is not None
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--", program, *arguments]
    with start(command, tmp_path / "server.log") as child:
        child.wait_ready(lambda: healthy(pod["livenessProbe"]["httpGet"]["port"]), START_SECONDS)
        assert [path.is_socket() for path in sockets.iterdir()] == [True]


def healthy(port: int) -> bool:
    done = subprocess.run(
        ["curl", "-sf", "--max-time", "5", f"http://127.0.0.1:{port}/healthz"],
        capture_output=True,
        timeout=10,
        check=False,
    )
    return done.returncode == 0
