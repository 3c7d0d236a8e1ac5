"""Writes a first cluster.yaml: keys that most users set have values, all other keys are comments with their default.

The explanations come from the table of keys.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind, Origin, ResolvedValue, nested
from umbilical.hardway.config.keys import API_VERSION, KIND, Key
from umbilical.hardway.config.reading import LIST, KeyTree, key_tree, read_cluster

WIDTH: Final = 116
"""Maximum length of a comment's text."""
_DECIDED: Final = (
    *("name", "baseDomain", "konnectivity", "release.image", "release.repository", "release.tag", "release.version"),
    *("networks.machine", "networks.pods", "networks.hostPrefix", "networks.services"),
    *("access.pullSecretFile", "libvirt.uplink", "libvirt.iso"),
)
"""Optional keys that are written with a value."""
_SAMPLES: Final = {
    "release.directory": "release",
    "release.tunnelArchive": "umbilical-VERSION-amd64.oci.tar",
    "access.sshKeys": ["ssh-ed25519 AAAA... you@here"],
    "access.sshKeyFile": "~/.ssh/id_ed25519",
    "access.pullSecretFile": "pull-secret.json",
    "mac": "52:54:00:12:34:56",
    "interface": "enp1s0",
}
"""Sample values for keys without a default."""
_TITLES: Final = {
    "release": "Source of the images.",
    "networks": "All networks and addresses have the same address family.",
    "dhcp": "DHCP range for live systems; installed machines have fixed addresses.",
    "nodes": "Nodes are named bootstrap, master-0..., worker-0... below the cluster's domain.",
    "machines[]": "Settings of single machines; one entry per machine, in order.",
    "access": "SSH keys for logging in to nodes, and credentials for image registries.",
    "sizes": "Sizes of the virtual machines.",
    "libvirt": "Names, paths and ports on the virtualisation host.",
    "certificates": "Key type and lifetimes of certificates.",
}


@dataclass(frozen=True)
class ExampleOptions:
    profile: ClusterProfile
    machines: MachinesKind
    masters: int
    workers: int
    name: str = ""
    ssh_keys: tuple[str, ...] = ()
    version: str | None = None
    """Of upstream Kubernetes; None: the default."""
    tunnel_archive: str = ""


EXAMPLES: Final = (
    ExampleOptions(ClusterProfile.KUBERNETES, MachinesKind.LAB, 1, 1),
    ExampleOptions(ClusterProfile.OPENSHIFT, MachinesKind.LIBVIRT, 1, 1),
)
"""A small cluster of each profile, for explanations and docs."""


def example(options: ExampleOptions) -> bytes:
    """Write cluster.yaml for these options. Raises RenderError: the options contradict each other."""
    chosen = _chosen(options)
    resolved = read_cluster(yaml.safe_dump(nested(tuple(chosen.values()))).encode())
    known = {one.path: one.plain for one in (*chosen.values(), *resolved.values)}
    lines = _Writer(options, known | _places(resolved.cluster), set(chosen)).lines(key_tree(), "", "")
    return "".join(f"{line}\n" for line in lines).encode()


def _chosen(options: ExampleOptions) -> dict[str, ResolvedValue]:
    values: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "profile": options.profile,
        "machines": options.machines,
        **({"name": options.name} if options.name else {}),
        "nodes.masters.count": options.masters,
        "nodes.workers.count": options.workers,
        **({"release.version": options.version} if options.version else {}),
        **({"access.sshKeys": options.ssh_keys} if options.ssh_keys else {}),
        **({"release.tunnelArchive": options.tunnel_archive} if options.tunnel_archive else {}),
    }
    return {path: ResolvedValue(path, value, Origin.GIVEN) for path, value in values.items()}


def _places(cluster: Cluster) -> dict[str, str]:
    """Return the nodes' addresses by the keys that would set them."""
    groups = {"nodes.masters": cluster.masters, "nodes.workers": cluster.workers}
    firsts = {f"{path}.firstAddress": str(nodes[0].address) for path, nodes in groups.items() if nodes}
    return {"nodes.bootstrap.address": str(cluster.bootstrap.address), **firsts}


class _Writer:
    def __init__(self, options: ExampleOptions, known: Mapping[str, Any], chosen: set[str]) -> None:
        self._options = options
        self._known = known
        self._active = chosen | {path for path in _DECIDED if known.get(path)}
        self._explained: set[str] = set()

    def lines(self, tree: KeyTree, prefix: str, indent: str) -> Iterator[str]:
        for name, below in tree.items():
            path = f"{prefix}{name}"
            if not self._is_meant(below):
                continue
            if isinstance(below, Key):
                yield from self._key(below, name, indent)
            elif name.endswith(LIST):
                yield from self._list(name, below, indent)
            else:
                yield from ([""] if not indent else [])
                yield from self._explanation(_TITLES.get(name, ""), indent)
                yield f"{indent}{name}:"
                yield from self.lines(below, f"{path}.", f"{indent}  ")

    def _key(self, key: Key, name: str, indent: str) -> Iterator[str]:
        value = self._known.get(key.path)
        if value in (None, "", []):
            value = _SAMPLES.get(key.path, _SAMPLES.get(name))
        if value is None:
            return
        yield from self._explanation(key.about, indent)
        yield f"{indent}{'' if key.path in self._active else '# '}{name}: {_scalar(value)}"

    def _list(self, name: str, tree: KeyTree, indent: str) -> Iterator[str]:
        yield from self._explanation(_TITLES[name], indent)
        shown = ", ".join(f"{key}: {_scalar(_SAMPLES[key])}" for key in tree if key in _SAMPLES)
        yield f"{indent}# {name.removesuffix(LIST)}:"
        yield f"{indent}#   - {{{shown}}}"

    def _explanation(self, text: str, indent: str) -> list[str]:
        """Write each explanation only once."""
        if not text or text in self._explained:
            return []
        self._explained.add(text)
        return [f"{indent}# {line}" for line in textwrap.wrap(text, WIDTH, break_on_hyphens=False)]

    def _is_meant(self, below: Key | KeyTree) -> bool:
        if isinstance(below, Key):
            return below.only in (None, self._options.profile, self._options.machines)
        return any(self._is_meant(one) for one in below.values())


def _scalar(value: Any) -> str:
    """Write a value on one line, quoted where YAML would read another type."""
    if isinstance(value, list):
        return json.dumps(value)
    return str(yaml.safe_dump(value, width=4096).splitlines()[0])
