"""Lessons on nodes: what Ignition writes, the standalone kubelet, and services before there is a network."""

import copy
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.nodes.machine import HOSTNAME, PAUSE_DROP_IN
from umbilical.hardway.artifacts.nodes.render import API_SERVER_ENV
from umbilical.hardway.lessons import lesson
from umbilical.hardway.lessons.lesson import ArtifactCopy, Lesson, NotThere
from umbilical.hardway.lint.facts import BOTH, KUBERNETES, OPENSHIFT

KUBE_PROXY: Final = "kube-proxy.yaml"


def _unit(config: dict[str, Any], name: str) -> dict[str, Any]:
    units: list[dict[str, Any]] = config["systemd"]["units"]
    found = [unit for unit in units if unit["name"] == name]
    if not found:
        raise NotThere(name)
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
    """Append a file that is there already, as a blind merge does: the pull secret's where there is one."""
    files = config["storage"]["files"]
    known = {file["path"]: file for file in files}
    files.append(copy.deepcopy(known.get(layout.PULL_SECRET) or known[HOSTNAME]))


def _rename(config: dict[str, Any], old: str, new: str) -> None:
    found = [file for file in config["storage"]["files"] if file["path"] == old]
    if not found:
        raise NotThere(old)
    found[0]["path"] = new


def _kubelet_ca(scratch: ArtifactCopy) -> None:
    for node in scratch.cluster.masters:
        scratch.edit_config(node.id, lambda config: _rename(config, layout.KUBELET_CLIENT_CA, "/etc/kubernetes/ca.crt"))


def _api_address(scratch: ArtifactCopy) -> None:
    for node in scratch.cluster.masters:
        scratch.edit_config(node.id, lambda config: _rename(config, API_SERVER_ENV, f"{API_SERVER_ENV}.example"))


def _another_proxy(scratch: ArtifactCopy) -> None:
    """Run kube-proxy from kube-apiserver's image, which in OpenShift is hyperkube: it has nearly all programs."""
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
        "The bootstrap node boots, and no static pod ever starts. The kubelet's log: failed to get API group resources "
        "... dial tcp 127.0.0.1:6443: connect: connection refused, for ever.",
        "The bootstrap kubelet has --kubeconfig: it waits for the API that it is to start itself.",
        "A kubelet without any kubeconfig flag stands alone and runs what lies in its directory: umbilical stage "
        "retry 8, then install the node anew.",
        ("BK-01",),
        "--kubeconfig",
        OPENSHIFT,
        lambda scratch: scratch.edit_config("bootstrap", _kubeconfig_flag),
    ),
    Lesson(
        "script-below-opt",
        "The bootstrap node boots, static pods run, and bootkube.service fails: Failed to execute command: Permission "
        "denied, status=203/EXEC.",
        "bootkube.sh lies below /opt/openshift, where SELinux lets no unit run a file.",
        "Scripts of units belong into /usr/local/bin: umbilical stage retry 8.",
        ("SE-01",),
        "/opt/openshift/bootkube.sh",
        OPENSHIFT,
        lambda scratch: scratch.edit_config("bootstrap", _bootkube_below_opt),
    ),
    Lesson(
        "pause-image",
        "No pod of the bootstrap node gets a sandbox: CRI-O pulls registry.k8s.io/pause and is refused.",
        "The drop-in that names the release's own pause image says nothing that CRI-O reads.",
        "/etc/crio/crio.conf.d sets pause_image to the release's `pod` by digest: umbilical stage retry 8.",
        ("CRIO-01",),
        "pause_image",
        OPENSHIFT,
        lambda scratch: scratch.edit_file("bootstrap", PAUSE_DROP_IN, b"pause_image =", b"pause_image_of_nobody ="),
    ),
    Lesson(
        "path-twice",
        "A master stops in the emergency shell of its first boot. On the console: failed to fetch config ... duplicate "
        "entry defined.",
        "One path stands twice in the master's Ignition config: it was appended to a base that had it already.",
        "Files are merged by path, replaced or appended: umbilical stage retry 8.",
        ("IGN-01",),
        "stands twice",
        BOTH,
        lambda scratch: scratch.edit_config(scratch.cluster.masters[0].id, _append_again),
    ),
    Lesson(
        "kubelet-ca",
        "A master boots, and its kubelet ends at once, again and again: unable to load client CA file "
        "/etc/kubernetes/kubelet-ca.crt: no such file or directory.",
        "The masters' Ignition writes the bundle to /etc/kubernetes/ca.crt, where nobody looks.",
        "clientCAFile of the kubelet's configuration and the path in Ignition are one: umbilical stage retry 8.",
        ("IGN-04", "IGN-05"),
        "kubelet-ca.crt",
        BOTH,
        _kubelet_ca,
    ),
    Lesson(
        "api-address",
        "Nodes register and stay NotReady. The network operator's pod exits with 1 before it says anything, and other "
        "operators time out on the service's first address.",
        "Masters lack /etc/kubernetes/apiserver-url.env, by which pods of the host's network find the API.",
        "The file belongs to every member, with api-int and 6443: umbilical stage retry 8.",
        ("AU-01",),
        "apiserver-url.env",
        OPENSHIFT,
        _api_address,
    ),
    Lesson(
        "wrong-proxy",
        "kube-proxy's container ends at its start (with OpenShift's hyperkube: ID cannot be empty), and pods time out "
        "on the first service address.",
        "kube-proxy runs from an image that is not kube-proxy's.",
        "The release has a tag of its own for it, kube-proxy: umbilical stage retry 7.",
        ("KP-01",),
        "its image",
        BOTH,
        _another_proxy,
    ),
    Lesson(
        "no-proxy",
        "Nodes are Ready, and no cluster IP can be reached from any of them: dial tcp ...:443: i/o timeout. Endpoints "
        "answer when they are dialled directly.",
        "No node has kube-proxy, and nothing else implements services.",
        "A static pod kube-proxy.yaml on every member, or a network that brings its own: umbilical stage retry 7.",
        ("KP-03",),
        "nothing else implements services",
        KUBERNETES,
        _no_proxy,
        lesson.moved_away(
            KUBE_PROXY,
            lambda cluster: [cluster.members[-1].id],
            "kube-proxy.yaml is taken out of the directory that the last member's kubelet watches.",
        ),
    ),
)
