"""Finds paths that programs on a node read but its Ignition config does not write.

Unit files are parsed as far as rules need it. Static pods in the config must equal those among the artifacts.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from umbilical.bootstrap.verify.documents import PodSpec, dig, is_within, mappings, shown
from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.ignition.config import Config, File, IgnitionUnit, objects

PLACES: Final = {layout.STATIC_PODS: layout.NODE_MANIFESTS, layout.LATE_STATIC_PODS: layout.NODE_LATE_MANIFESTS}


def copy_faults(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    """List the static pods and their files that the node's config lacks or has changed."""
    carried = _carried(facts, node)
    for folder, place in PLACES.items():
        for asset in facts.below(f"{folder}/{node.id}"):
            name = asset.path.removeprefix(f"{folder}/{node.id}/")
            # Files in subdirectories are configuration files, which pods read from their mounts.
            is_pod = "/" not in name
            places = carried.get(asset.content, set())
            if is_pod and f"{place}/{name}" not in places:
                yield f"{asset.path} is not written to {place}/{name} with the same content"
            elif not is_pod and posixpath.basename(name) not in map(posixpath.basename, places):
                yield f"{asset.path} is not written with the same content"
    # Only a rendered MachineConfig may contain other pods.
    if node.role is NodeRole.BOOTSTRAP or not facts.cluster.is_openshift:
        yield from _unknown(facts, node)


def _unknown(facts: LintFacts, node: ClusterNode) -> Iterator[str]:
    """List pods in a node's config that are not among the artifacts."""
    folders = {place: folder for folder, place in PLACES.items()}
    for file in facts.ignition(node).files:
        place, name = posixpath.split(file.path)
        if place in folders and f"{folders[place]}/{node.id}/{name}" not in facts.assets:
            yield f"{file.path} is written, but {folders[place]}/{node.id}/{name} is missing"


def _carried(facts: LintFacts, node: ClusterNode) -> dict[bytes, set[str]]:
    found: dict[bytes, set[str]] = {}
    for file in facts.ignition(node).files:
        try:
            found.setdefault(file.content(), set()).add(file.path)
        except IgnitionError:
            # Another rule reports unreadable files.
            continue
    return found


# systemd's prefixes of a program: ignore failure, other argv[0], no expansion, full or no privileges.
_MARKS: Final = "@-:+!"


@dataclass(frozen=True)
class UnitCommand:
    words: tuple[str, ...]
    """The program, without systemd's prefixes, and its arguments."""

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def flags(self) -> dict[str, str]:
        """Flags by name without dashes; `--flag value` counts as `--flag` without a value."""
        pairs = (word.lstrip("-").partition("=") for word in self.words[1:] if word.startswith("-"))
        return {name: value for name, _, value in pairs}


def commands(unit: IgnitionUnit) -> list[UnitCommand]:
    """List the commands of a unit and its drop-ins."""
    found = [_words(value) for key, value in _settings(unit) if key.startswith("Exec") and value]
    return [UnitCommand(tuple(words)) for words in found if words]


def environment_files(unit: IgnitionUnit) -> Iterator[str]:
    """List the required environment files; those with a minus are optional."""
    for key, value in _settings(unit):
        if key == "EnvironmentFile" and value.startswith("/"):
            yield value


def _settings(unit: IgnitionUnit) -> Iterator[tuple[str, str]]:
    for text in (unit.contents or "", *unit.dropins.values()):
        for line in text.replace("\\\n", " ").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and not key.startswith(("#", ";", "[")):
                yield key.strip(), value.strip()


def _words(value: str) -> list[str]:
    try:
        words = shlex.split(value)
    except ValueError:
        # systemd's quoting differs slightly from a shell's.
        words = value.split()
    return [words[0].lstrip(_MARKS), *words[1:]] if words else []


UNITS: Final = "/etc/systemd/system"
POD_DIRECTORIES: Final = (layout.NODE_MANIFESTS, layout.NODE_LATE_MANIFESTS)
MADE_BY_PROGRAMS: Final = frozenset({"uds-name", "data-dir", "cert-dir", "audit-log-path"})
"""Flags whose file the program creates itself, below a mount."""
OF_THE_SYSTEM: Final = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/share", "/bin", "/sbin", "/lib", "/lib/modules"),
    *("/run", "/var/run", "/var/log", "/var/lib/cni", "/dev", "/proc", "/sys", "/tmp"),
    *("/etc/ssl", "/etc/pki", "/etc/os-release", "/etc/resolv.conf", "/etc/hosts"),
)
"""Paths of the operating system."""
MADE_LATER: Final = (
    # The kubelet's state, including its kubeconfig, and its plugin directory.
    "/var/lib/kubelet",
    "/etc/kubernetes/kubelet-plugins",
    # Upstream's kubelet, which is installed with the machine.
    "/usr/local/bin/kubelet",
    # bootkube.sh makes these.
    layout.TUNNEL_PKI,
    "/opt/openshift/.bootkube.done",
)
_MAKES_ITSELF: Final = frozenset({"DirectoryOrCreate", "FileOrCreate"})
_PATH: Final = re.compile(r"/[A-Za-z0-9][^\s,:;'\"]*")
_WATCHED: Final = "/etc/kubernetes/"
"""A path in a pod without a mount belongs to the image, except below this directory."""


@dataclass(frozen=True)
class NeededPath:
    path: str
    """Path on the node; path in the pod if no mount covers it."""
    by: str
    is_mounted: bool = True

    @property
    def words(self) -> str:
        return f"{self.by} needs {self.path}, which {'is not written' if self.is_mounted else 'no mount covers'}"


def missing_paths(config: Config) -> Iterator[NeededPath]:
    """List needed paths that are not written, not the system's and not made later, or that no mount covers."""
    written = written_paths(config)
    seen: set[NeededPath] = set()
    for wanted in wanted_paths(config):
        is_there = wanted.is_mounted and (wanted.path in written or is_known(wanted.path))
        if wanted not in seen and not is_there:
            yield wanted
        seen.add(wanted)


def written_paths(config: Config) -> set[str]:
    """List files, directories, links and units, with all their parent directories."""
    storage = config.value.get("storage")
    kinds = ("files", "directories", "links")
    entries = [entry for kind in kinds for entry in (objects(storage, kind) if isinstance(storage, dict) else [])]
    paths = {str(entry.get("path", "")) for entry in entries} | {f"{UNITS}/{unit.name}" for unit in config.units}
    return paths | {parent for path in paths for parent in _parents(path)}


def wanted_paths(config: Config) -> Iterator[NeededPath]:
    for path, pod in static_pods(config):
        yield from (replace(wanted, by=f"{path}: {wanted.by}") for wanted in _pod_paths(pod))
    for unit in config.units:
        for command in commands(unit):
            yield NeededPath(command.program, unit.name)
            for name, value in command.flags.items():
                yield from (NeededPath(found, f"{unit.name}: --{name}") for found in _paths_in(value))
        yield from (NeededPath(path, f"{unit.name}: EnvironmentFile") for path in environment_files(unit))
    file = config.file(layout.KUBELET_CONFIG)
    if file is not None:
        yield from (NeededPath(path, f"{file.path}: {key}") for key, path in _path_values(_yaml(file)))


def is_known(path: str) -> bool:
    return not path.startswith("/") or any(is_within(path, known) for known in (*OF_THE_SYSTEM, *MADE_LATER))


def static_pods(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the pods that a config writes, including late ones."""
    for file in config.files:
        if posixpath.dirname(file.path) in POD_DIRECTORIES and not posixpath.basename(file.path).startswith("."):
            pod = _yaml(file)
            if isinstance(pod, dict):
                yield file.path, pod


def _pod_paths(pod: dict[str, Any]) -> Iterator[NeededPath]:
    spec = dig(pod, "spec")
    for volume in mappings(dig(spec, "volumes")):
        path, kind = (dig(volume, "hostPath", key) for key in ("path", "type"))
        if isinstance(path, str) and kind not in _MAKES_ITSELF:
            yield NeededPath(path, f"volume {shown(volume.get('name'))}")
    for container in (*mappings(dig(spec, "initContainers")), *mappings(dig(spec, "containers"))):
        inside = PodSpec({**spec, "containers": [container]})
        for flag, path in _container_paths(container):
            yield from _through(inside, flag, path)


def _through(inside: PodSpec, flag: str, path: str) -> Iterator[NeededPath]:
    """Translate a container's path to the node."""
    mount = inside.mount_of(path)
    if mount is None:
        if path.startswith(_WATCHED):
            yield NeededPath(path, flag, is_mounted=False)
        return
    on_host = mount.on_host(path)
    if on_host is not None and flag.lstrip("-") not in MADE_BY_PROGRAMS:
        yield NeededPath(on_host, flag)


def _container_paths(container: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    commands_of = [("command",), ("args",), *((f"{kind}Probe", "exec", "command") for kind in ("startup", "liveness"))]
    for keys in commands_of:
        for word in _strings(dig(container, *keys)):
            name, equals, value = word.partition("=")
            yield from ((name, path) for path in _paths_in(value) if equals and name.startswith("-"))
    for variable in mappings(container.get("env")):
        yield from ((f"env {shown(variable.get('name'))}", path) for path in _paths_in(str(variable.get("value", ""))))


def _paths_in(value: str) -> list[str]:
    """Find the paths in a flag's value, separated by commas or colons; a URL has none."""
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
