"""The static pods of a rendered tree as plain processes: below a scratch root, in a network namespace.

Only paths are translated. No mounts, no supervision: what is shown is that the programs take their flags and files.
"""

import os
from pathlib import Path
from typing import Final

import yaml
from tests.support.control_plane import KUBECTL_SECONDS, READY_SECONDS
from tests.support.netns import Namespace

import peers
from umbilical.fault import HostError
from umbilical.host.files import make_directory, write_file
from umbilical.host.processes import Child, run, start
from umbilical.lab.control_plane import ADMIN_KUBECONFIG
from umbilical.manifests.tree import AssetTree

MANIFESTS: Final = "/etc/kubernetes/manifests/"
_ROOTED: Final = ("/etc/", "/var/")


class StaticProcesses:
    def __init__(self, root: Path, tree: AssetTree, namespace: Namespace) -> None:
        self.root = make_directory(root)
        self.namespace = namespace
        self._children: list[Child] = []
        lay_tree(root, tree)

    def start(self, *names: str) -> None:
        """Start pods by name, in this order."""
        for name in names:
            pod = yaml.safe_load((self.root / f"{MANIFESTS}{name}.yaml".lstrip("/")).read_bytes())
            container = pod["spec"]["containers"][0]
            command = [peer(container["command"][0]), *(self._translated(flag) for flag in container["args"])]
            self._children.append(start(self.namespace.command(*command), self.root / f"{name}.log", name=name))

    def wait_for_api(self) -> None:
        """Wait until the API is ready and has made the namespaces that it makes by itself."""
        self._child("kube-apiserver").wait_ready(self._is_ready, READY_SECONDS, poll_seconds=0.3)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        kubeconfig = self.root / ADMIN_KUBECONFIG.lstrip("/")
        command = self.namespace.command(peer("kubectl"), f"--kubeconfig={kubeconfig}", *arguments)
        return run(command, KUBECTL_SECONDS, None if stdin is None else stdin.encode())

    def stop(self) -> None:
        for child in reversed(self._children):
            child.kill()

    def log(self, name: str) -> str:
        return self._child(name).log_text()

    def _child(self, name: str) -> Child:
        return next(child for child in self._children if child.name == name)

    def _is_ready(self) -> bool:
        try:
            self.kubectl("get", "--raw=/readyz")
            self.kubectl("get", "namespace", "default", "kube-system")
        except HostError:
            return False
        return True

    def _translated(self, flag: str) -> str:
        name, equals, value = flag.partition("=")
        return f"{name}{equals}{self.root}{value}" if value.startswith(_ROOTED) else flag


def lay_tree(root: Path, tree: AssetTree) -> None:
    for asset in tree:
        path = root / asset.path.lstrip("/")
        make_directory(path.parent)
        write_file(path, asset.content, asset.mode)


def peer(name: str) -> str:
    path = peers.binary(name)
    assert path is not None, f"no {name} in the cache: run `make peers`"
    return os.fspath(path)
