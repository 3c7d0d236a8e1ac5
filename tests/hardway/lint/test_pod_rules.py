"""Rules about static pods and the tunnel: they hold for rendered clusters, and each notices its faults."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.support import hardway
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Sample, Subject, complaint, copied, replaced, verdict

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.checks.check import Outcome
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterProfile, Switch

ETCD: Final = "static-pods/bootstrap/etcd-bootstrap.yaml"
API: Final = "static-pods/bootstrap/kube-apiserver-bootstrap.yaml"
CVO: Final = "late-static-pods/bootstrap/cvo-bootstrap.yaml"
SERVER: Final = "static-pods/bootstrap/konnectivity-server-pod.yaml"
EGRESS: Final = "static-pods/bootstrap/config/egress-selector-config.yaml"
PROXY: Final = "static-pods/master-1/kube-proxy.yaml"
REMOVALS: Final = "static-pods/removals.json"
TUNNEL_OBJECTS: Final = "manifests/08-tunnel.yaml"
RBAC: Final = "manifests/03-rbac.yaml"


def container(path: str, change: Callable[[dict[str, Any]], object]) -> Sample:
    """Change a pod's first container."""
    return lambda subject: subject.edit(path, lambda pod: change(pod["spec"]["containers"][0]))


def unprivileged(path: str) -> Sample:
    return container(path, lambda one: one["securityContext"].update(privileged=False))


def moved(path: str, new: str) -> Sample:
    def change(subject: Subject) -> None:
        subject.write(new, subject.assets[path].content)
        subject.remove(path)

    return change


def removals(change: Callable[[list[dict[str, Any]]], object]) -> Sample:
    return lambda subject: subject.edit_json(REMOVALS, change)


def removal(what: str, **changes: Any) -> Sample:
    return removals(lambda steps: next(step for step in steps if step["what"] == what).update(changes))


def manifest(kind: str, **pod: Any) -> Sample:
    """Add a workload of this pod spec."""
    value = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "one"}, "spec": {"template": {"spec": pod}}}
    return lambda subject: subject.write("manifests/99-one.yaml", json.dumps(value).encode())


def hyperkube_as_proxy(subject: Subject) -> None:
    image = hardway.payload(subject.cluster.profile).images
    wrong = image.get("hyperkube", image.get("kube-apiserver", ""))
    subject.edit(PROXY, lambda pod: pod["spec"]["containers"][0].update(image=wrong))


def proxy_of_nobody(subject: Subject) -> None:
    """Its kubeconfig on the node belongs to a user without the role."""
    is_openshift = subject.cluster.is_openshift
    path = layout.BOOTSTRAP_KUBECONFIG if is_openshift else f"{layout.NODE_KUBECONFIGS}/kube-proxy.kubeconfig"
    if is_openshift:
        subject.replace(RBAC, "system:node-proxier", "system:node-problem-detector")
    else:
        other = subject.assets[layout.kubeconfig("kubelet-bootstrap")].content
        subject.edit_ignition("master-1", path, lambda _: other)


def unreadable_kubeconfig(subject: Subject) -> None:
    is_openshift = subject.cluster.is_openshift
    path = layout.BOOTSTRAP_KUBECONFIG if is_openshift else f"{layout.NODE_KUBECONFIGS}/kube-proxy.kubeconfig"
    subject.edit_ignition("master-1", path, lambda _: b"users: [")


def masters_with_egress(subject: Subject) -> None:
    if subject.cluster.is_openshift:
        override = {"kind": "KubeAPIServer", "spec": {"x": {"egress-selector-config-file": ["/etc/one"]}}}
        subject.write("manifests/99-override.yaml", json.dumps(override).encode())
    else:
        path = "late-static-pods/master-1/kube-apiserver.yaml"
        subject.edit(path, lambda pod: pod["spec"]["containers"][0]["args"].append("--egress-selector-config-file=/x"))


def tunnel_hours(hours: int) -> Sample:
    old, new = f"{layout.TUNNEL_PKI} 24".encode(), f"{layout.TUNNEL_PKI} {hours}".encode()

    def change(subject: Subject) -> None:
        subject.edit_ignition("bootstrap", BOOTKUBE, lambda script: script.replace(old, new))

    return change


def certificate_for_another_address(subject: Subject) -> None:
    pattern = (b"192.168.126.100 " + layout.TUNNEL_PKI.encode(), b"192.168.126.99 " + layout.TUNNEL_PKI.encode())
    subject.edit_ignition("bootstrap", BOOTKUBE, lambda script: script.replace(*pattern))


SAMPLES: Final[dict[str, Sample]] = {
    "BK-03": manifest("Deployment", nodeSelector={"kubernetes.io/hostname": "bootstrap.ocp4.example.com"}),
    "BK-03 by name": manifest("DaemonSet", nodeName="bootstrap"),
    "BK-03 no pod": replaced(ETCD, "kind: Pod", "kind: Deployment"),
    "BK-03 not in Ignition": moved(ETCD, "static-pods/bootstrap/other.yaml"),
    "CVO-01": container(CVO, lambda one: one.update(image="quay.io/other@sha256:" + "0" * 64)),
    "CVO-01 by tag": replaced(CVO, hardway.RELEASE_IMAGE, "quay.io/openshift-release-dev/ocp-release:4.18.0-x86_64"),
    "CVO-01 another release": replaced(CVO, hardway.DIGEST, "sha256:" + "0" * 64),
    "CVO-01 at once": moved(CVO, "static-pods/bootstrap/cvo-bootstrap.yaml"),
    "CVO-01 not there": lambda subject: subject.remove(CVO),
    "CVO-02": replaced(CVO, "--listen=", "--listen=0.0.0.0:9099"),
    "CVO-03": replaced(CVO, "self-managed-high-availability", "single-node-developer"),
    "CVO-03 not said": container(CVO, lambda one: one.pop("env")),
    "CVO-04": unprivileged(CVO),
    "ETC-01": replaced(ETCD, "--name=etcd-bootstrap", "--name=bootstrap"),
    "ETC-02": replaced(API, "--etcd-prefix=kubernetes.io", "--etcd-prefix=/registry"),
    "KP-01": hyperkube_as_proxy,
    "KP-01 unprivileged": unprivileged(PROXY),
    "KP-01 in a network of its own": replaced(PROXY, "hostNetwork: true", "hostNetwork: false"),
    "KP-02": proxy_of_nobody,
    "KP-02 unreadable": unreadable_kubeconfig,
    "KP-03": lambda subject: subject.remove(PROXY),
    "KP-03 late": moved(PROXY, PROXY.replace("static-pods", "late-static-pods")),
    "KP-04": removals(lambda steps: steps.clear()),
    "KP-04 too early": removal("kube-proxy", stage=13),
    "KP-04 file left": removal("kube-proxy", files=[]),
    "KP-04 rules left": removal("kube-proxy", commands=[]),
    "KP-04 unreadable": lambda subject: subject.write(REMOVALS, b"[1]"),
    "KN-01": replaced(SERVER, "konnectivity-server.socket", "another.socket"),
    "KN-01 mounted elsewhere": replaced(API, "mountPath: /etc/kubernetes/config", "mountPath: /etc/kubernetes/configs"),
    "KN-01 no socket": replaced(EGRESS, "udsName", "name"),
    "KN-02": replaced(EGRESS, "proxyProtocol: GRPC", "proxyProtocol: HTTPConnect"),
    "KN-02 etcd in the tunnel": lambda subject: subject.edit(
        EGRESS, lambda value: value["egressSelections"][2]["connection"].update(proxyProtocol="GRPC")
    ),
    "KN-02 control plane not said": lambda subject: subject.edit(
        EGRESS, lambda value: value["egressSelections"].pop(1)
    ),
    "KN-02 another mode": replaced(SERVER, "--mode=grpc", "--mode=http-connect"),
    "KN-03": replaced(TUNNEL_OBJECTS, "--proxy-server-port=8091", "--proxy-server-port=8132"),
    "KN-03 another host": replaced(
        TUNNEL_OBJECTS, "--proxy-server-host=192.168.126.100", "--proxy-server-host=192.168.126.10"
    ),
    "KN-03 another certificate": certificate_for_another_address,
    "KN-03 no host": replaced(TUNNEL_OBJECTS, "--proxy-server-host", "--proxy-server-name"),
    "KN-03 no agents": lambda subject: subject.remove(TUNNEL_OBJECTS),
    "KN-04": removals(lambda steps: steps.clear()),
    "KN-04 namespace stays": removal("konnectivity", namespace=""),
    "KN-04 server stays": removal("konnectivity", files=[]),
    "KN-04 before the pivot": removal("konnectivity", stage=12),
    "KN-04 unconditionally": removal("konnectivity", after=""),
    "KN-05": masters_with_egress,
    "KN-06": tunnel_hours(4),
}


def test_on_openshift_a_network_plugin_may_stand_for_kube_proxy() -> None:
    subject = copied(everything(ClusterProfile.OPENSHIFT))
    subject.cluster = replace(subject.cluster, kube_proxy=Switch.OFF)
    for path in [path for path in subject.assets if path.endswith("kube-proxy.yaml")]:
        subject.remove(path)
    assert complaint("KP-03", subject) is None
    subject.cluster = replace(subject.cluster, kube_proxy=Switch.AUTO)
    found = verdict("KP-03", subject)
    assert found.outcome is Outcome.WARNED
    assert found.evidence.startswith("kubeProxy: auto leaves kube-proxy out")
    subject.replace("manifests/05-network.yaml", "OVNKubernetes", "Calico")
    assert "Calico" in str(complaint("KP-03", subject))


def test_without_kube_proxy_nothing_implements_services_in_the_kubernetes_profile() -> None:
    subject = copied(everything(ClusterProfile.KUBERNETES))
    subject.cluster = replace(subject.cluster, kube_proxy=Switch.OFF)
    subject.remove("static-pods/worker-0/kube-proxy.yaml")
    assert "worker-0" in str(complaint("KP-03", subject))


def test_rules_about_parts_that_are_switched_off_are_skipped() -> None:
    subject = copied(everything(ClusterProfile.OPENSHIFT))
    subject.has_tunnel = False
    subject.cluster = replace(subject.cluster, kube_proxy=Switch.OFF)
    for name in ("KN-01", "KN-06", "KP-01", "KP-04"):
        assert verdict(name, subject).outcome is Outcome.SKIPPED
