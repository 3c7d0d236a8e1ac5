"""Every manifest of the hard way before the real kube-apiserver: first strictly as it is, then created for real.

Kinds of OpenShift are judged by the definitions of the made-up release, which are among the manifests themselves.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
import yaml
from tests.support import hardway
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.dry_runs import as_pod, dry_run

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.manifests.render import render_manifests
from umbilical.assets.tree import AssetTree
from umbilical.cluster.apply import Document, read_document
from umbilical.cluster.creation import Creator, Outcome, Result
from umbilical.hardway.api import Api
from umbilical.host.errors import HostError

pytestmark = pytest.mark.real(*PROGRAMS)
Object = dict[str, Any]
SECONDS: Final = 120.0
WORKLOADS: Final = ("Deployment", "DaemonSet")


@cache
def objects(profile: Profile) -> list[Object]:
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


def _documents(profile: Profile) -> list[Document]:
    found = [read_document(one) for one in objects(profile)]
    assert None not in found
    return [one for one in found if one is not None]


def _create(plane: ControlPlane, profile: Profile) -> list[Result]:
    return Api(plane.kubeconfig).call(lambda client: Creator(client).create(_documents(profile), SECONDS), SECONDS)


def _live(plane: ControlPlane, kind: str, name: str) -> Object:
    found: Object = json.loads(plane.kubectl("get", kind, name, "-o", "json"))
    return found


def may(plane: ControlPlane, user: str, *request: str) -> bool:
    try:
        return plane.kubectl("auth", "can-i", *request, f"--as={user}", "-A").strip() == "yes"
    except HostError:
        return False


def test_every_object_of_kubernetes_would_be_stored_and_is(plane: ControlPlane) -> None:
    values = objects(Profile.KUBERNETES)
    namespaces = [one for one in values if one["kind"] == "Namespace"]
    plane.apply(*namespaces)
    dry_run(plane, [one for one in values if one["kind"] != "Namespace"])
    dry_run(plane, [as_pod(one) for one in values if one["kind"] in WORKLOADS])
    done = _create(plane, Profile.KUBERNETES)
    assert {str(one.document) for one in done if one.outcome is Outcome.EXISTED} == {
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


def test_every_object_of_openshift_would_be_stored_and_is_with_its_status(plane: ControlPlane) -> None:
    values = objects(Profile.OPENSHIFT)
    first = [one for one in values if one["kind"] in ("Namespace", "CustomResourceDefinition")]
    plane.apply(*(one for one in first if one["kind"] == "Namespace"))
    dry_run(plane, [one for one in first if one["kind"] == "CustomResourceDefinition"])
    plane.apply(*first)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    dry_run(plane, [one for one in values if one not in first])
    dry_run(plane, [as_pod(one) for one in values if one["kind"] in WORKLOADS])
    done = _create(plane, Profile.OPENSHIFT)
    assert {one.document.kind for one in done if one.wrote_status} == {"FeatureGate", "Infrastructure"}
    status = _live(plane, "infrastructures.config.openshift.io", "cluster")["status"]
    assert (status["controlPlaneTopology"], status["infrastructureTopology"]) == ("HighlyAvailable", "HighlyAvailable")
    gates = _live(plane, "featuregates.config.openshift.io", "cluster")["status"]["featureGates"]
    assert [one["version"] for one in gates] == [hardway.VERSION]
    bootstrapper = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    assert may(plane, bootstrapper, "create", "certificatesigningrequests.certificates.k8s.io")
    assert may(plane, bootstrapper, "watch", "services")
    assert may(plane, "system:kube-apiserver", "create", "nodes", "--subresource=proxy")
    again = _create(plane, Profile.OPENSHIFT)
    assert {one.outcome for one in again} == {Outcome.EXISTED}
    assert not [one for one in again if one.wrote_status]


def test_a_field_that_a_kind_does_not_have_is_refused(plane: ControlPlane) -> None:
    """Or the dry runs would show less than they seem to."""
    plane.apply(*(one for one in objects(Profile.OPENSHIFT) if one["kind"] == "CustomResourceDefinition"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    wanted = {"Infrastructure", "DNS", "Ingress", "Scheduler", "ClusterVersion", "FeatureGate", "Network"}
    seen = {one["kind"]: one for one in objects(Profile.OPENSHIFT) if one["kind"] in wanted}
    assert set(seen) == wanted
    for value in seen.values():
        head = {**value["metadata"], "name": "another"}
        with pytest.raises(HostError, match="unknown field"):
            dry_run(plane, [{**value, "metadata": head, "spec": {**value["spec"], "portt": "x"}}])
