"""Pods from files. Static pods: one pod per file; names that begin with a dot are ignored; a changed file is a new pod.

For a lab without an API also DaemonSets and Pods for this node, with their Secrets and ConfigMaps; other objects (a
Namespace, a Service) are ignored.
"""

import base64
import binascii
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from umbilical.fault import PodError
from umbilical.lab.pods.fields import Fields, read_documents
from umbilical.lab.pods.manifest import pod_of, read_static_pod
from umbilical.lab.pods.spec import LabPod, SourceKind

log: Final = logging.getLogger(__name__)


class NoSources:
    """Sources of a static pod: none, as under the kubelet."""

    async def values(self, kind: SourceKind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return None

    async def token(self, pod: LabPod, audience: str, lifetime_seconds: int) -> str | None:
        return None


def read_folder(folder: Path) -> dict[str, bytes]:
    """Read the files of a directory by name; files that vanish and a missing directory are ignored."""
    files = {}
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    for name in names:
        try:
            files[name] = (folder / name).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            log.warning("%s: %s", folder / name, error.strerror)
    return files


class StaticPods:
    """Keeps the last valid pod of every file: a half-written file must not stop a running pod."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._contents: dict[str, bytes] = {}
        self._pods: dict[str, LabPod] = {}

    def read(self, files: Mapping[str, bytes]) -> dict[str, LabPod]:
        """Return the pods of these files by uid; errors are logged once."""
        for name in set(self._contents) - set(files):
            del self._contents[name]
            self._pods.pop(name, None)
        for name, content in files.items():
            if self._contents.get(name) != content:
                self._contents[name] = content
                self._take(name, content)
        return _without_duplicates(self._pods)

    def _take(self, name: str, content: bytes) -> None:
        try:
            pod = read_static_pod(content, name)
        except PodError as error:
            log.warning("static pod: %s", error.brief)
            return
        # As in the kubelet: the node's name distinguishes pods of the same file on several nodes.
        digest = hashlib.sha256(b"\0".join((self._node.encode(), name.encode(), content))).hexdigest()
        self._pods[name] = replace(pod, name=f"{pod.name}-{self._node}", uid=digest[:32])


def _without_duplicates(pods: Mapping[str, LabPod]) -> dict[str, LabPod]:
    first: dict[str, LabPod] = {}
    for name in sorted(pods):
        first.setdefault(pods[name].title, pods[name])
    return {pod.uid: pod for pod in first.values()}


class Daemons:
    """Objects in files; also the `Sources` for pods of the same files."""

    def __init__(self, node: str, labels: Mapping[str, str]) -> None:
        self._node, self._labels = node, labels
        self._files: dict[str, bytes] = {}
        self._values: dict[tuple[SourceKind, str, str], dict[str, bytes]] = {}
        self._pods: dict[str, LabPod] = {}

    def read(self, files: Mapping[str, bytes]) -> dict[str, LabPod]:
        """Return the pods of these files by uid; errors are logged once."""
        if files != self._files:
            self._files = dict(files)
            self._values, self._pods = {}, {}
            for title, document in _read_files(files):
                try:
                    self._take(document)
                except PodError as error:
                    log.warning("%s: %s", title, error.brief)
        return self._pods

    async def values(self, kind: SourceKind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self._values.get((kind, namespace, name))

    async def token(self, pod: LabPod, audience: str, lifetime_seconds: int) -> str | None:
        return None

    def _take(self, document: dict[str, Any]) -> None:
        top = Fields(document, str(document.get("kind")))
        match document.get("kind"):
            case "Secret" | "ConfigMap":
                metadata = top.needed("metadata")
                kind = SourceKind(document["kind"])
                self._values[kind, metadata.text("namespace", "default"), metadata.name("name")] = values(kind, top)
            case "DaemonSet":
                self._add(_daemon(top, self._node), document)
            case "Pod":
                self._add(pod_of(top.needed("metadata"), top.needed("spec")), document)

    def _add(self, pod: LabPod, document: dict[str, Any]) -> None:
        if all(self._labels.get(key) == value for key, value in pod.node_selector.items()):
            content = json.dumps(document, sort_keys=True, default=str)
            digest = hashlib.sha256(f"{self._node}\0{content}".encode()).hexdigest()
            self._pods[digest[:32]] = replace(pod, uid=digest[:32])


def values(kind: SourceKind, top: Fields) -> dict[str, bytes]:
    """Read a Secret (base64, `stringData`) or ConfigMap (text, `binaryData`). Raises PodError: UMB831."""
    is_secret = kind is SourceKind.SECRET
    encoded = "data" if is_secret else "binaryData"
    plain = "stringData" if is_secret else "data"
    found = {}
    for key, text in top.table(encoded).items():
        try:
            found[key] = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise top.wrong(encoded, f"the value of {key!r} is not base64") from None
    return found | {key: text.encode() for key, text in top.table(plain).items()}


def _daemon(top: Fields, node: str) -> LabPod:
    metadata = top.needed("metadata")
    template = top.needed("spec").needed("template")
    name = metadata.name("name")
    # Five characters, like a controller's suffix, but stable.
    suffix = hashlib.sha256(f"{name}\0{node}".encode()).hexdigest()[:5]
    pod = pod_of(template.child("metadata") or Fields({}, "metadata"), template.needed("spec"), f"{name}-{suffix}")
    return replace(pod, namespace=metadata.text("namespace", "default"))


def _read_files(files: Mapping[str, bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, content in files.items():
        try:
            for document in read_documents(content, name):
                yield name, document
        except PodError as error:
            log.warning("%s", error.brief)
