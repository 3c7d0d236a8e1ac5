"""Every manifest of the hard way before the real kube-apiserver: first strictly as it is, then created for real.

Kinds of OpenShift are judged by the definitions of the made-up release, which are among the manifests themselves.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest
import yaml
from tests.support import hardway
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.dry_runs import as_pod, dry_run
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Subject, copied
from tests.support.hardway_pki import reissue
from tests.support.static_processes import peer
from tests.support.tunnel_directories import openssl_verifies
from tests.support.tunnel_pair import wait_until

import peers
from umbilical.cluster.apply import CreateOutcome, CreateResult, Creator, ManifestDocument, read_document
from umbilical.fault import HostError
from umbilical.hardway.artifacts.certificates import anchor, cluster_bundles, cluster_rows, render_certificates
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.catalogue import render_manifests
from umbilical.hardway.artifacts.manifests.coredns import coredns
from umbilical.hardway.config.cluster import ClusterProfile, Switch
from umbilical.hardway.site import ClusterApi
from umbilical.host.files import make_directory, write_file
from umbilical.host.processes import Child, run, start
from umbilical.manifests.tree import AssetTree
from umbilical.pki.certificate import read_certificates
from umbilical.pki.control_plane_set import PkiKind
from umbilical.pki.profiles import Usage
from umbilical.pki.validation import chain_trouble

Object = dict[str, Any]
SECONDS: Final = 120.0
WORKLOADS: Final = ("Deployment", "DaemonSet")


@cache
def objects(profile: ClusterProfile) -> list[Object]:
    """All of them, in the order of their files; everything that can be switched on is."""
    tree = render_manifests(hardway.inputs(profile, kube_proxy=Switch.ON, konnectivity=Switch.ON), AssetTree())
    paths = sorted(one.path for one in tree)
    return [one for path in paths for one in yaml.safe_load_all(tree[path].content)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An empty cluster with the service network of ours."""
    services = str(hardway.cluster().networks.services)
    arguments = [f"--service-cluster-ip-range={services}"]
    with control_plane(tmp_path_factory.mktemp("plane"), apiserver_arguments=arguments) as plane:
        yield plane


def _documents(profile: ClusterProfile) -> list[ManifestDocument]:
    found = [read_document(one) for one in objects(profile)]
    assert None not in found
    return [one for one in found if one is not None]


def _create(plane: ControlPlane, profile: ClusterProfile) -> list[CreateResult]:
    return ClusterApi(plane.kubeconfig).call(
        lambda client: Creator(client).create(_documents(profile), SECONDS), SECONDS
    )


def _live(plane: ControlPlane, kind: str, name: str) -> Object:
    found: Object = json.loads(plane.kubectl("get", kind, name, "-o", "json"))
    return found


def may(plane: ControlPlane, user: str, *request: str) -> bool:
    try:
        return plane.kubectl("auth", "can-i", *request, f"--as={user}", "-A").strip() == "yes"
    except HostError:
        return False


@pytest.mark.real(*PROGRAMS)
def test_every_object_of_kubernetes_would_be_stored_and_is(plane: ControlPlane) -> None:
    values = objects(ClusterProfile.KUBERNETES)
    namespaces = [one for one in values if one["kind"] == "Namespace"]
    plane.apply(*namespaces)
    dry_run(plane, [one for one in values if one["kind"] != "Namespace"])
    dry_run(plane, [as_pod(one) for one in values if one["kind"] in WORKLOADS])
    done = _create(plane, ClusterProfile.KUBERNETES)
    assert {str(one.document) for one in done if one.outcome is CreateOutcome.EXISTED} == {
        f"Namespace {one['metadata']['name']}" for one in namespaces
    }
    service = json.loads(plane.kubectl("-n", "kube-system", "get", "service", "kube-dns", "-o", "json"))
    assert service["spec"]["clusterIP"] == str(hardway.cluster().dns_ip)
    for user, *request in (
        ("system:bootstrapper", "create", "certificatesigningrequests.certificates.k8s.io"),
        ("system:kube-apiserver", "create", "nodes", "--subresource=proxy"),
        ("system:kube-proxy", "watch", "services"),
        ("system:serviceaccount:kube-system:coredns", "watch", "endpointslices.discovery.k8s.io"),
    ):
        assert may(plane, user, *request), (user, request)


@pytest.mark.real(*PROGRAMS)
def test_every_object_of_openshift_would_be_stored_and_is_with_its_status(plane: ControlPlane) -> None:
    values = objects(ClusterProfile.OPENSHIFT)
    first = [one for one in values if one["kind"] in ("Namespace", "CustomResourceDefinition")]
    plane.apply(*(one for one in first if one["kind"] == "Namespace"))
    dry_run(plane, [one for one in first if one["kind"] == "CustomResourceDefinition"])
    plane.apply(*first)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    dry_run(plane, [one for one in values if one not in first])
    dry_run(plane, [as_pod(one) for one in values if one["kind"] in WORKLOADS])
    done = _create(plane, ClusterProfile.OPENSHIFT)
    assert {one.document.kind for one in done if one.wrote_status} == {"FeatureGate", "Infrastructure"}
    status = _live(plane, "infrastructures.config.openshift.io", "cluster")["status"]
    assert (status["controlPlaneTopology"], status["infrastructureTopology"]) == ("HighlyAvailable", "HighlyAvailable")
    gates = _live(plane, "featuregates.config.openshift.io", "cluster")["status"]["featureGates"]
    assert [one["version"] for one in gates] == [hardway.VERSION]
    bootstrapper = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    assert may(plane, bootstrapper, "create", "certificatesigningrequests.certificates.k8s.io")
    assert may(plane, bootstrapper, "watch", "services")
    assert may(plane, "system:kube-apiserver", "create", "nodes", "--subresource=proxy")
    again = _create(plane, ClusterProfile.OPENSHIFT)
    assert {one.outcome for one in again} == {CreateOutcome.EXISTED}
    assert not [one for one in again if one.wrote_status]


@pytest.mark.real(*PROGRAMS)
def test_a_field_that_a_kind_does_not_have_is_refused(plane: ControlPlane) -> None:
    """Or the dry runs would show less than they seem to."""
    plane.apply(*(one for one in objects(ClusterProfile.OPENSHIFT) if one["kind"] == "CustomResourceDefinition"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    wanted = {"Infrastructure", "DNS", "Ingress", "Scheduler", "ClusterVersion", "FeatureGate", "Network"}
    seen = {one["kind"]: one for one in objects(ClusterProfile.OPENSHIFT) if one["kind"] in wanted}
    assert set(seen) == wanted
    for value in seen.values():
        head = {**value["metadata"], "name": "another"}
        with pytest.raises(HostError, match="unknown field"):
            dry_run(plane, [{**value, "metadata": head, "spec": {**value["spec"], "portt": "x"}}])


READY_SECONDS = 60.0


def corefile(folder: Path, plane: ControlPlane, ports: list[int]) -> Path:
    """Ours, on ports that are free here, and with a kubeconfig where a pod has its account."""
    made = next(one for one in coredns(hardway.inputs(ClusterProfile.KUBERNETES)) if one["kind"] == "ConfigMap")
    text = made["data"]["Corefile"]
    health, ready, metrics = (f"127.0.0.1:{port}" for port in ports[1:])
    for old, new in (
        (".:53 {", f".:{ports[0]} {{\n    bind 127.0.0.1"),
        ("health {", f"health {health} {{"),
        ("    ready\n", f"    ready {ready}\n"),
        ("prometheus :9153", f"prometheus {metrics}"),
        ("pods insecure", f"pods insecure\n        kubeconfig {plane.kubeconfig}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return write_file(folder / "Corefile", text.encode(), overwrite=True)


def free_ports(count: int) -> list[int]:
    """Ask the kernel for some at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A resolver of the cluster, and the port on which it answers."""
    folder = tmp_path_factory.mktemp("dns")
    services = str(hardway.cluster(ClusterProfile.KUBERNETES).networks.services)
    with control_plane(folder / "plane", apiserver_arguments=[f"--service-cluster-ip-range={services}"]) as plane:
        ports = free_ports(4)
        program = peers.binary("coredns")
        assert program is not None
        command = [str(program), "-conf", str(corefile(folder, plane, ports))]
        with start(command, folder / "coredns.log", name="coredns") as child:
            child.wait_ready(lambda: answers(ports[0]), READY_SECONDS)
            yield ports[0]


def ask(port: int, name: str) -> dns.message.Message:
    return dns.query.udp(dns.message.make_query(name, dns.rdatatype.A), "127.0.0.1", port=port, timeout=5)


def addresses(port: int, name: str) -> list[str]:
    return [item.to_text() for group in ask(port, name).answer for item in group]


def answers(port: int) -> bool:
    try:
        return bool(addresses(port, "kubernetes.default.svc.cluster.local"))
    except (OSError, dns.exception.DNSException):
        return False


@pytest.mark.real(*PROGRAMS, "coredns")
def test_a_service_is_found_by_its_name(resolver: int) -> None:
    assert addresses(resolver, "kubernetes.default.svc.cluster.local") == [
        str(hardway.cluster(ClusterProfile.KUBERNETES).service_ip)
    ]


@pytest.mark.real(*PROGRAMS, "coredns")
def test_a_pods_address_is_told_without_asking_for_the_pod(resolver: int) -> None:
    assert addresses(resolver, "10-128-0-7.default.pod.cluster.local") == ["10.128.0.7"]


@pytest.mark.real(*PROGRAMS, "coredns")
def test_a_name_that_no_service_has_is_not_invented(resolver: int) -> None:
    assert ask(resolver, "nobody.default.svc.cluster.local").rcode() is dns.rcode.NXDOMAIN


PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}
WAIT_SECONDS: Final = 60.0


def lay(subject: Subject, folder: Path) -> Path:
    for asset in subject.assets.values():
        if asset.path.startswith("tls/"):
            make_directory((folder / asset.path).parent)
            write_file(folder / asset.path, asset.content, asset.mode)
    return folder


@pytest.mark.real("openssl")
@pytest.mark.parametrize("profile", ClusterProfile)
def test_openssl_verifies_every_certificate_with_what_will_check_it(profile: ClusterProfile, tmp_path: Path) -> None:
    folder = lay(everything(profile), tmp_path)
    time = ("-attime", str(int(hardway.NOW.timestamp())))
    checked = 0
    for row in cluster_rows(hardway.cluster(profile)):
        for trusted in row.verified_by:
            for usage in row.usages:
                bundle, leaf = folder / anchor(trusted), folder / f"tls/{row.id}.crt"
                assert openssl_verifies(bundle, leaf, *time, "-purpose", PURPOSES[usage]), f"{row.id}: {usage}"
                checked += 1
    assert checked > 20


@pytest.mark.real("openssl")
def test_openssl_and_we_agree_about_every_leaf_every_bundle_and_both_purposes(tmp_path: Path) -> None:
    subject = everything(ClusterProfile.KUBERNETES, 1, 0)
    folder = lay(subject, tmp_path)
    time = ("-attime", str(int(hardway.NOW.timestamp())))
    verdicts = set()
    for row in (row for row in cluster_rows(subject.cluster) if row.kind is PkiKind.LEAF):
        leaf = folder / f"tls/{row.id}.crt"
        for trusted in cluster_bundles(subject.cluster):
            bundle = folder / anchor(trusted.value)
            for usage, purpose in PURPOSES.items():
                certificates = read_certificates(bundle.read_bytes())
                ours = chain_trouble(read_certificates(leaf.read_bytes())[0], certificates, usage, hardway.NOW) == ""
                assert openssl_verifies(bundle, leaf, *time, "-purpose", purpose) == ours, f"{row.id} {trusted} {usage}"
                verdicts.add(ours)
    assert verdicts == {True, False}


@dataclass
class Etcd:
    """A member on loopback, and its client."""

    folder: Path
    port: int
    child: Child

    def says_healthy(self, pair: str) -> bool:
        """Ask as the holder of a pair."""
        tls = self.folder / "tls"
        trust = [f"--cacert={tls}/bundles/etcd-ca-bundle.crt", f"--cert={tls}/{pair}.crt", f"--key={tls}/{pair}.key"]
        try:
            run([peer("etcdctl"), f"--endpoints=https://localhost:{self.port}", *trust, "endpoint", "health"], 60)
        except HostError:
            return False
        return True


@contextmanager
def etcd(subject: Subject, folder: Path) -> Iterator[Etcd]:
    lay(subject, folder)
    tls, (port, peer_port) = folder / "tls", _free_ports()
    here = f"https://127.0.0.1:{peer_port}"
    flags = [
        "--name=etcd-bootstrap",
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls=https://127.0.0.1:{port}",
        f"--advertise-client-urls=https://127.0.0.1:{port}",
        f"--listen-peer-urls={here}",
        f"--initial-advertise-peer-urls={here}",
        f"--initial-cluster=etcd-bootstrap={here}",
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        *(f"--{kind}trusted-ca-file={tls}/bundles/etcd-ca-bundle.crt" for kind in ("", "peer-")),
        *(f"--{end}-file={tls}/etcd-serving-bootstrap.{ending}" for end, ending in (("cert", "crt"), ("key", "key"))),
        *(f"--peer-{end}-file={tls}/etcd-peer-bootstrap.{ending}" for end, ending in (("cert", "crt"), ("key", "key"))),
    ]
    with start([peer("etcd"), *flags], folder / "etcd.log", name="etcd") as child:
        yield Etcd(folder, port, child)


def _free_ports() -> list[int]:
    """Two that nobody has; both are held until both are known."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [one.getsockname()[1], other.getsockname()[1]]


@pytest.fixture
def today() -> Subject:
    """Certificates that are good now: etcd looks at its own clock."""
    of = hardway.cluster(ClusterProfile.KUBERNETES, 1, 0)
    given = Inputs(
        of, hardway.certificates(of, datetime.now(UTC)), hardway.payload(ClusterProfile.KUBERNETES), hardway.identity()
    )
    return Subject(of, {asset.path: asset for asset in render_certificates(given, AssetTree())})


@pytest.mark.real("etcd", "etcdctl")
def test_etcd_is_healthy_for_its_client_and_for_itself(today: Subject, tmp_path: Path) -> None:
    with etcd(today, tmp_path) as member:
        wait_until(lambda: member.says_healthy("etcd-client"), "etcd to be healthy", WAIT_SECONDS)
        # The pair that it dials its own port with.
        assert member.says_healthy("etcd-serving-bootstrap")
        assert "incompatible key usage" not in member.child.log_text()


@pytest.mark.real("etcd", "etcdctl")
def test_with_a_certificate_for_servers_alone_etcd_refuses_itself_while_clients_see_nothing(
    today: Subject, tmp_path: Path
) -> None:
    broken = copied(today)
    reissue(broken, "etcd-serving-bootstrap", now=datetime.now(UTC), usages=(Usage.SERVER,))
    with etcd(broken, tmp_path) as member:
        wait_until(lambda: member.says_healthy("etcd-client"), "etcd to be healthy", WAIT_SECONDS)
        assert not member.says_healthy("etcd-serving-bootstrap")
        complaint = "incompatible key usage"
        wait_until(lambda: complaint in member.child.log_text(), f"the log to say {complaint}", WAIT_SECONDS)
