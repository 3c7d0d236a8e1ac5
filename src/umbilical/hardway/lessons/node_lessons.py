"""Lessons about nodes: Ignition files, the standalone kubelet, Services without a pod network."""

import copy
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.nodes.machine import HOSTNAME, PAUSE_DROP_IN
from umbilical.hardway.artifacts.nodes.render import API_SERVER_ENV
from umbilical.hardway.lessons import lesson
from umbilical.hardway.lessons.lesson import ArtifactCopy, Lesson, MissingArtifact
from umbilical.hardway.lint.facts import BOTH, KUBERNETES, OPENSHIFT

KUBE_PROXY: Final = "kube-proxy.yaml"


def _unit(config: dict[str, Any], name: str) -> dict[str, Any]:
    units: list[dict[str, Any]] = config["systemd"]["units"]
    found = [unit for unit in units if unit["name"] == name]
    if not found:
        raise MissingArtifact(name)
    return found[0]


def _kubeconfig_flag(config: dict[str, Any]) -> None:
    unit = _unit(config, "kubelet.service")
    flag = f"--kubeconfig={layout.NODE_KUBECONFIGS}/localhost.kubeconfig"
    unit["contents"] = unit["contents"].replace("--config=", f"{flag} --config=", 1)


def _bootkube_below_opt(config: dict[str, Any]) -> None:
    elsewhere = "/opt/openshift/bootkube.sh"
    for file in config["storage"]["files"]:
        if file["path"] == BOOTKUBE:
            file["path"] = elsewhere
    unit = _unit(config, "bootkube.service")
    unit["contents"] = unit["contents"].replace(BOOTKUBE, elsewhere)


def _append_again(config: dict[str, Any]) -> None:
    """Append an existing file again, as a merge without checks does: the pull secret, if there is one."""
    files = config["storage"]["files"]
    known = {file["path"]: file for file in files}
    files.append(copy.deepcopy(known.get(layout.PULL_SECRET) or known[HOSTNAME]))


def _rename(config: dict[str, Any], old: str, new: str) -> None:
    found = [file for file in config["storage"]["files"] if file["path"] == old]
    if not found:
        raise MissingArtifact(old)
    found[0]["path"] = new


def _kubelet_ca(scratch: ArtifactCopy) -> None:
    for node in scratch.cluster.masters:
        scratch.edit_config(node.id, lambda config: _rename(config, layout.KUBELET_CLIENT_CA, "/etc/kubernetes/ca.crt"))


def _api_address(scratch: ArtifactCopy) -> None:
    for node in scratch.cluster.masters:
        scratch.edit_config(node.id, lambda config: _rename(config, API_SERVER_ENV, f"{API_SERVER_ENV}.example"))


def _another_proxy(scratch: ArtifactCopy) -> None:
    """Run kube-proxy from kube-apiserver's image, which in OpenShift is hyperkube, with most programs."""
    master = scratch.cluster.masters[0]
    right = _image(scratch, layout.static_pod(master, KUBE_PROXY))
    wrong = _image(scratch, layout.static_pod(scratch.cluster.bootstrap, "kube-apiserver-bootstrap.yaml"))
    scratch.edit_pod(master.id, KUBE_PROXY, right, wrong)


def _image(scratch: ArtifactCopy, path: str) -> str:
    images = [line.partition("image:")[2].strip() for line in scratch.content(path).decode().splitlines()]
    return next(filter(None, images))


def _no_proxy(scratch: ArtifactCopy) -> None:
    for node in scratch.cluster.members:
        scratch.remove_pod(node.id, KUBE_PROXY)


LESSONS: Final[tuple[Lesson, ...]] = (
    Lesson(
        "bootstrap-kubelet",
        "The bootstrap node boots, and no static pod starts. The kubelet's log repeats: failed to get API group "
        "resources ... dial tcp 127.0.0.1:6443: connect: connection refused.",
        "The bootstrap kubelet has --kubeconfig: it waits for the API that it must start itself.",
        "A kubelet without kubeconfig flags runs standalone and starts the pods of its directory: umbilical stage "
        "retry 8, then install the node again.",
        ("BK-01",),
        "--kubeconfig",
        OPENSHIFT,
        lambda scratch: scratch.edit_config("bootstrap", _kubeconfig_flag),
    ),
    Lesson(
        "script-below-opt",
        "The bootstrap node boots, static pods run, and bootkube.service fails: Failed to execute command: Permission "
        "denied, status=203/EXEC.",
        "bootkube.sh is below /opt/openshift, where SELinux does not let units run files.",
        "Scripts of units must be in /usr/local/bin: umbilical stage retry 8.",
        ("SE-01",),
        "/opt/openshift/bootkube.sh",
        OPENSHIFT,
        lambda scratch: scratch.edit_config("bootstrap", _bootkube_below_opt),
    ),
    Lesson(
        "pause-image",
        "Pods of the bootstrap node get no sandbox: CRI-O tries to pull registry.k8s.io/pause and fails.",
        "The CRI-O drop-in sets an unknown key instead of pause_image.",
        "/etc/crio/crio.conf.d must set pause_image to the release's image `pod` by digest: umbilical stage retry 8.",
        ("CRIO-01",),
        "pause_image",
        OPENSHIFT,
        lambda scratch: scratch.edit_file("bootstrap", PAUSE_DROP_IN, b"pause_image =", b"pause_image_of_nobody ="),
    ),
    Lesson(
        "path-twice",
        "A master stops at its first boot in the emergency shell. On the console: failed to fetch config ... duplicate "
        "entry defined.",
        "A path is twice in the master's Ignition config: it was appended to a base that already had it.",
        "Files must be merged by path: umbilical stage retry 8.",
        ("IGN-01",),
        "is used twice",
        BOTH,
        lambda scratch: scratch.edit_config(scratch.cluster.masters[0].id, _append_again),
    ),
    Lesson(
        "kubelet-ca",
        "A master boots, and its kubelet exits repeatedly: unable to load client CA file "
        "/etc/kubernetes/kubelet-ca.crt: no such file or directory.",
        "The masters' Ignition writes the bundle to /etc/kubernetes/ca.crt, which no program reads.",
        "The path in Ignition must be the kubelet's clientCAFile: umbilical stage retry 8.",
        ("IGN-04", "IGN-05"),
        "kubelet-ca.crt",
        BOTH,
        _kubelet_ca,
    ),
    Lesson(
        "api-address",
        "Nodes register and stay NotReady. The network operator's pod exits with status 1 without a log, and other "
        "operators time out on the address of the Service `kubernetes`.",
        "Masters lack /etc/kubernetes/apiserver-url.env, which gives pods on the host network the API's address.",
        "Every master and worker needs the file with api-int and port 6443: umbilical stage retry 8.",
        ("AU-01",),
        "apiserver-url.env",
        OPENSHIFT,
        _api_address,
    ),
    Lesson(
        "wrong-proxy",
        "kube-proxy's container exits at its start (with OpenShift's hyperkube: ID cannot be empty), and pods time out "
        "on Service addresses.",
        "kube-proxy's pod has the image of another program.",
        "Use the release's image `kube-proxy`: umbilical stage retry 7.",
        ("KP-01",),
        "its image",
        BOTH,
        _another_proxy,
    ),
    Lesson(
        "no-proxy",
        "Nodes are Ready, but no node reaches a cluster IP: dial tcp ...:443: i/o timeout. Endpoints answer when they "
        "are dialled directly.",
        "No node runs kube-proxy, and nothing else implements Services.",
        "Every master and worker needs the static pod kube-proxy.yaml, or a pod network that replaces it: umbilical "
        "stage retry 7.",
        ("KP-03",),
        "nothing else implements Services",
        KUBERNETES,
        _no_proxy,
        lesson.moved_away(
            KUBE_PROXY,
            lambda cluster: [cluster.members[-1].id],
            "kube-proxy.yaml is moved out of the static pod directory of the last node.",
        ),
    ),
)
