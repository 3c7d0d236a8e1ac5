"""Every path of a node that something on it will want to read, and what a config puts there.

Looked for in static pods (through their mounts), in units and in the kubelet's configuration.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from umbilical.bootstrap.verify.documents import Pod, dig, is_within, mappings, shown
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.facts import Unreadable
from umbilical.hardway.lint.unit_text import commands, environment_files
from umbilical.ignition.config import Config, File, objects

UNITS: Final = "/etc/systemd/system"
POD_DIRECTORIES: Final = (layout.NODE_MANIFESTS, layout.NODE_LATE_MANIFESTS)
MADE_BY_PROGRAMS: Final = frozenset({"uds-name", "data-dir", "cert-dir", "audit-log-path"})
"""Flags of pods that name what the program makes itself, somewhere below a mount."""
OF_THE_SYSTEM: Final = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/share", "/bin", "/sbin", "/lib", "/lib/modules"),
    *("/run", "/var/run", "/var/log", "/var/lib/cni", "/dev", "/proc", "/sys", "/tmp"),
    *("/etc/ssl", "/etc/pki", "/etc/os-release", "/etc/resolv.conf", "/etc/hosts"),
)
"""What an operating system brings, or makes as it runs."""
MADE_LATER: Final = (
    # The kubelet's own state, its kubeconfig among it, and its plugins' directory.
    "/var/lib/kubelet",
    "/etc/kubernetes/kubelet-plugins",
    # Upstream's kubelet is put there by whoever made the machine.
    "/usr/local/bin/kubelet",
    # By bootkube.sh.
    layout.TUNNEL_PKI,
    "/opt/openshift/.bootkube.done",
)
_MAKES_ITSELF: Final = frozenset({"DirectoryOrCreate", "FileOrCreate"})
_PATH: Final = re.compile(r"/[A-Za-z0-9][^\s,:;'\"]*")
_WATCHED: Final = "/etc/kubernetes/"
"""A path in a pod that no mount covers is the image's own, but not here."""


@dataclass(frozen=True)
class Wanted:
    path: str
    """On the node; in the pod, where that has no mount for it."""
    by: str
    is_mounted: bool = True

    @property
    def words(self) -> str:
        return f"{self.by} wants {self.path}, which {'nobody writes' if self.is_mounted else 'no mount covers'}"


def missing_paths(config: Config) -> Iterator[Wanted]:
    """List what is wanted and neither written, nor the system's, nor made later; and what no mount leads to."""
    written = written_paths(config)
    seen: set[Wanted] = set()
    for wanted in wanted_paths(config):
        is_there = wanted.is_mounted and (wanted.path in written or is_known(wanted.path))
        if wanted not in seen and not is_there:
            yield wanted
        seen.add(wanted)


def written_paths(config: Config) -> set[str]:
    """List files, directories, links and units, with all directories above them."""
    storage = config.value.get("storage")
    kinds = ("files", "directories", "links")
    entries = [entry for kind in kinds for entry in (objects(storage, kind) if isinstance(storage, dict) else [])]
    paths = {str(entry.get("path", "")) for entry in entries} | {f"{UNITS}/{unit.name}" for unit in config.units}
    return paths | {parent for path in paths for parent in _parents(path)}


def wanted_paths(config: Config) -> Iterator[Wanted]:
    for path, pod in static_pods(config):
        yield from (replace(wanted, by=f"{path}: {wanted.by}") for wanted in _pod_paths(pod))
    for unit in config.units:
        for command in commands(unit):
            yield Wanted(command.program, unit.name)
            for name, value in command.flags.items():
                yield from (Wanted(found, f"{unit.name}: --{name}") for found in _paths_in(value))
        yield from (Wanted(path, f"{unit.name}: EnvironmentFile") for path in environment_files(unit))
    file = config.file(layout.KUBELET_CONFIG)
    if file is not None:
        yield from (Wanted(path, f"{file.path}: {key}") for key, path in _path_values(_yaml(file)))


def is_known(path: str) -> bool:
    return not path.startswith("/") or any(is_within(path, known) for known in (*OF_THE_SYSTEM, *MADE_LATER))


def static_pods(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the pods that a config writes, those that wait included."""
    for file in config.files:
        if posixpath.dirname(file.path) in POD_DIRECTORIES and not posixpath.basename(file.path).startswith("."):
            pod = _yaml(file)
            if isinstance(pod, dict):
                yield file.path, pod


def _pod_paths(pod: dict[str, Any]) -> Iterator[Wanted]:
    spec = dig(pod, "spec")
    for volume in mappings(dig(spec, "volumes")):
        path, kind = (dig(volume, "hostPath", key) for key in ("path", "type"))
        if isinstance(path, str) and kind not in _MAKES_ITSELF:
            yield Wanted(path, f"volume {shown(volume.get('name'))}")
    for container in (*mappings(dig(spec, "initContainers")), *mappings(dig(spec, "containers"))):
        inside = Pod({**spec, "containers": [container]})
        for flag, path in _container_paths(container):
            yield from _through(inside, flag, path)


def _through(inside: Pod, flag: str, path: str) -> Iterator[Wanted]:
    """Follow a path of a container to the node."""
    mount = inside.mount_of(path)
    if mount is None:
        if path.startswith(_WATCHED):
            yield Wanted(path, flag, is_mounted=False)
        return
    on_host = mount.on_host(path)
    if on_host is not None and flag.lstrip("-") not in MADE_BY_PROGRAMS:
        yield Wanted(on_host, flag)


def _container_paths(container: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    commands_of = [("command",), ("args",), *((f"{kind}Probe", "exec", "command") for kind in ("startup", "liveness"))]
    for keys in commands_of:
        for word in _strings(dig(container, *keys)):
            name, equals, value = word.partition("=")
            yield from ((name, path) for path in _paths_in(value) if equals and name.startswith("-"))
    for variable in mappings(container.get("env")):
        yield from ((f"env {shown(variable.get('name'))}", path) for path in _paths_in(str(variable.get("value", ""))))


def _paths_in(value: str) -> list[str]:
    """Find the paths of a flag's value: alone, or several with commas and colons between them; no URL's."""
    return [] if "://" in value else [match.rstrip("/") for match in _PATH.findall(value) if value[0] == "/"]


def _path_values(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and value.startswith("/"):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _path_values(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _path_values(inner, key)


def _yaml(file: File) -> Any:
    try:
        return yaml.safe_load(file.content())
    except (yaml.YAMLError, IgnitionError, ValueError, RecursionError):
        raise Unreadable(f"{file.path} is not YAML") from None


def _parents(path: str) -> Iterator[str]:
    while path not in ("", "/"):
        path = posixpath.dirname(path)
        yield path


def _strings(value: Any) -> Iterable[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
