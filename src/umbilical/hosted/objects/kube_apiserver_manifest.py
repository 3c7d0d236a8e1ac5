"""Reads the given manifest of kube-apiserver, a Deployment or a static pod, and compares it with the spec."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.hosted.objects.spec import HostedSpec, Workload
from umbilical.manifests.objects import Object
from umbilical.manifests.sections import DocumentError, read_document

PROGRAM: Final = "kube-apiserver"
_VERSIONS: Final = {Workload.DEPLOYMENT: "apps/v1", Workload.STATIC_POD: "v1"}
_CONFIGURED_BY_FILE: Final = "--openshift-config"


@dataclass(frozen=True)
class Manifest:
    document: Object
    workload: Workload
    index: int
    """Index of kube-apiserver's container."""

    @property
    def pod(self) -> Object:
        """The pod's spec, inside the document."""
        spec: Object = self.document["spec"]
        return spec if self.workload is Workload.STATIC_POD else spec["template"]["spec"]

    @property
    def container(self) -> Object:
        found: Object = self.pod["containers"][self.index]
        return found

    @property
    def arguments_key(self) -> str:
        """The field to which flags are appended."""
        return "args" if self.container.get("args") else "command"


def read_manifest(content: bytes, spec: HostedSpec) -> Manifest:
    """Read the one document of a file. Raises RenderError: it is not such a workload, or contradicts the spec."""
    try:
        document = read_document(content)
    except DocumentError as error:
        raise refused(str(error)) from None
    workload = spec.kube_apiserver.workload
    if not isinstance(document, dict) or document.get("kind") != workload.value:
        raise refused(f"its kind is not {workload.value}, as in kubeApiserver.workload")
    if document.get("apiVersion") != _VERSIONS[workload]:
        raise refused(f"its apiVersion is not {_VERSIONS[workload]}")
    manifest = Manifest(document, workload, _container_index(document, workload, spec))
    contradictions = list(_contradictions(manifest, spec))
    if contradictions:
        raise conflict("; ".join(contradictions))
    return manifest


def words(container: Object) -> list[str]:
    """Return command and arguments as one list."""
    parts = [container.get(key) or [] for key in ("command", "args")]
    if not all(isinstance(part, list) and all(isinstance(word, str) for word in part) for part in parts):
        raise refused("the command or the arguments of its container are not strings")
    return [word for part in parts for word in part]


def flag_value(container: Object, flag: str) -> str | None:
    """Return the value of a flag; None if it is not set."""
    given = words(container)
    for number, word in enumerate(given):
        name, equals, value = word.partition("=")
        if name == flag:
            following = given[number + 1 :][:1] or [""]
            return value if equals else following[0]
    return None


def _container_index(document: Object, workload: Workload, spec: HostedSpec) -> int:
    try:
        pod = document["spec"] if workload is Workload.STATIC_POD else document["spec"]["template"]["spec"]
        containers = pod["containers"]
    except (KeyError, TypeError):
        raise refused("it has no containers") from None
    if not isinstance(containers, list) or not all(isinstance(one, dict) for one in containers):
        raise refused("its containers are not a list of objects")
    for number, container in enumerate(containers):
        if container.get("name") == spec.kube_apiserver.container:
            return number
    for number, container in enumerate(containers):
        if PROGRAM in (posixpath.basename(word) for word in words(container) if not word.startswith("-")):
            return number
    raise refused(f"none of its containers is called {spec.kube_apiserver.container} or runs kube-apiserver")


def _contradictions(manifest: Manifest, spec: HostedSpec) -> Iterator[str]:
    document = manifest.document
    head = _mapping(document.get("metadata"))
    namespace = head.get("namespace")
    if namespace not in (None, spec.namespace) and manifest.workload is Workload.DEPLOYMENT:
        yield f"it is in the namespace {namespace}, the spec says {spec.namespace}"
    if manifest.workload is Workload.DEPLOYMENT:
        if head.get("name") != spec.kube_apiserver.name:
            yield f"its name is {head.get('name')}, the spec says {spec.kube_apiserver.name}"
        replicas = document["spec"].get("replicas", 1)
        if replicas != spec.replicas:
            yield f"it has {replicas} replicas, the spec says {spec.replicas}, the number of servers for agents"
        head = _mapping(_mapping(document["spec"]["template"]).get("metadata"))
    labels = _mapping(head.get("labels"))
    missing = [f"{key}={value}" for key, value in spec.kube_apiserver.labels.items() if labels.get(key) != value]
    if missing:
        yield f"its pods lack the labels {', '.join(missing)}, which Services select"
    if spec.kube_apiserver.has_egress_flag and flag_value(manifest.container, _CONFIGURED_BY_FILE) is not None:
        yield f"with {_CONFIGURED_BY_FILE} it takes no other flags: set egressFlag to false and add the egress file"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def refused(why: str) -> RenderError:
    remedy = "give a file with one Deployment, or one static pod and kubeApiserver.workload: Pod"
    return RenderError("UMB551", "kube-apiserver's manifest is invalid", why, remedy)


def conflict(why: str) -> RenderError:
    remedy = "change the spec or the manifest so that both agree"
    return RenderError("UMB552", "kube-apiserver's manifest contradicts the spec", why, remedy)
