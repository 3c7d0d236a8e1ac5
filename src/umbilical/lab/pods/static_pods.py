"""Static pods: a file, a pod. Files that begin with a dot are none, and a changed file is another pod."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from umbilical.fault import PodError
from umbilical.lab.pods.manifest import read_static_pod
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
