"""Pods from files. Static pods: a file, a pod; files that begin with a dot are none, and a changed file is another pod.

For a lab without an API also DaemonSets and Pods that run on this node, with their Secrets and ConfigMaps; what else
lies there (a Namespace, a Service) changes nothing.
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
from umbilical.lab.pods.spec import Kind, Pod

log: Final = logging.getLogger(__name__)


class NoSources:
    """What a static pod can refer to: nothing of the API's, as under the kubelet."""

    async def values(self, kind: Kind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return None

    async def token(self, pod: Pod, audience: str, lifetime_seconds: int) -> str | None:
        return None


def read_folder(folder: Path) -> dict[str, bytes]:
    """Read the files of a directory by name; one that vanishes meanwhile was not there, nor is a missing directory."""
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
    """Keeps the last good pod of every file: one that is being written is no reason to stop what runs."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._contents: dict[str, bytes] = {}
        self._pods: dict[str, Pod] = {}

    def read(self, files: Mapping[str, bytes]) -> dict[str, Pod]:
        """Return the pods, by uid, that these files ask for; what cannot be read is logged once."""
        for name in set(self._contents) - set(files):
            del self._contents[name]
            self._pods.pop(name, None)
        for name, content in files.items():
            if self._contents.get(name) != content:
                self._contents[name] = content
                self._take(name, content)
        return _without_twins(self._pods)

    def _take(self, name: str, content: bytes) -> None:
        try:
            pod = read_static_pod(content, name)
        except PodError as error:
            log.warning("static pod: %s", error.brief)
            return
        # The kubelet's: the node's name makes pods of the same file on many nodes differ.
        digest = hashlib.sha256(b"\0".join((self._node.encode(), name.encode(), content))).hexdigest()
        self._pods[name] = replace(pod, name=f"{pod.name}-{self._node}", uid=digest[:32])


def _without_twins(pods: Mapping[str, Pod]) -> dict[str, Pod]:
    first: dict[str, Pod] = {}
    for name in sorted(pods):
        first.setdefault(pods[name].title, pods[name])
    return {pod.uid: pod for pod in first.values()}


class Daemons:
    """What the files hold now; a source of values for the pods out of the same files."""

    def __init__(self, node: str, labels: Mapping[str, str]) -> None:
        self._node, self._labels = node, labels
        self._files: dict[str, bytes] = {}
        self._values: dict[tuple[Kind, str, str], dict[str, bytes]] = {}
        self._pods: dict[str, Pod] = {}

    def read(self, files: Mapping[str, bytes]) -> dict[str, Pod]:
        """Return the pods, by uid, that these files ask for; what cannot be read is logged once."""
        if files != self._files:
            self._files = dict(files)
            self._values, self._pods = {}, {}
            for title, document in _read_files(files):
                try:
                    self._take(document)
                except PodError as error:
                    log.warning("%s: %s", title, error.brief)
        return self._pods

    async def values(self, kind: Kind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self._values.get((kind, namespace, name))

    async def token(self, pod: Pod, audience: str, lifetime_seconds: int) -> str | None:
        return None

    def _take(self, document: dict[str, Any]) -> None:
        top = Fields(document, str(document.get("kind")))
        match document.get("kind"):
            case "Secret" | "ConfigMap":
                metadata = top.needed("metadata")
                kind = Kind(document["kind"])
                self._values[kind, metadata.text("namespace", "default"), metadata.name("name")] = values(kind, top)
            case "DaemonSet":
                self._add(_daemon(top, self._node), document)
            case "Pod":
                self._add(pod_of(top.needed("metadata"), top.needed("spec")), document)

    def _add(self, pod: Pod, document: dict[str, Any]) -> None:
        if all(self._labels.get(key) == value for key, value in pod.node_selector.items()):
            content = json.dumps(document, sort_keys=True, default=str)
            digest = hashlib.sha256(f"{self._node}\0{content}".encode()).hexdigest()
            self._pods[digest[:32]] = replace(pod, uid=digest[:32])


def values(kind: Kind, top: Fields) -> dict[str, bytes]:
    """Read a Secret (base64, `stringData`) or ConfigMap (text, `binaryData`). Raises PodError: UMB831."""
    is_secret = kind is Kind.SECRET
    encoded = "data" if is_secret else "binaryData"
    plain = "stringData" if is_secret else "data"
    found = {}
    for key, text in top.table(encoded).items():
        try:
            found[key] = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise top.wrong(encoded, f"the value of {key!r} is no base64") from None
    return found | {key: text.encode() for key, text in top.table(plain).items()}


def _daemon(top: Fields, node: str) -> Pod:
    metadata = top.needed("metadata")
    template = top.needed("spec").needed("template")
    name = metadata.name("name")
    # Five letters, as a controller would append; the same ones every time.
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
