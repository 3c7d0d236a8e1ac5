"""A cluster's file to begin with: what most people decide is said, all else stands there as a comment.

The explanations are those of the table of keys; what comments show is what holds without them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind, Origin, ResolvedValue, nested
from umbilical.hardway.config.keys import API_VERSION, KIND, Key
from umbilical.hardway.config.reading import LIST, KeyTree, key_tree, read_cluster

_DECIDED: Final = (
    *("name", "baseDomain", "konnectivity", "release.image", "release.repository", "release.tag", "release.version"),
    *("networks.machine", "networks.pods", "networks.hostPrefix", "networks.services"),
    *("access.pullSecretFile", "libvirt.uplink", "libvirt.iso"),
)
"""Keys that are said although they could be left out."""
_SAMPLES: Final = {
    "release.directory": "release",
    "access.sshKeys": ["ssh-ed25519 AAAA... you@here"],
    "access.sshKeyFile": "~/.ssh/id_ed25519",
    "access.pullSecretFile": "pull-secret.json",
    "mac": "52:54:00:12:34:56",
    "interface": "enp1s0",
}
"""For keys that have no default."""
_TITLES: Final = {
    "release": "Where images come from.",
    "networks": "All of one address family.",
    "dhcp": "For live systems only: installed machines have fixed addresses.",
    "nodes": "Named bootstrap, master-0..., worker-0... below the cluster's domain.",
    "machines[]": "Machines of which more has to be said; one entry each, in order.",
    "access": "How people and the pipeline come in, and machines to their images.",
    "sizes": "Of the virtual machines.",
    "libvirt": "Names and places on the virtualisation host.",
    "certificates": "Keys, and how long what they sign is valid.",
}


@dataclass(frozen=True)
class ExampleOptions:
    profile: ClusterProfile
    machines: MachinesKind
    masters: int
    workers: int
    name: str = ""
    ssh_keys: tuple[str, ...] = ()


def example(wish: ExampleOptions) -> bytes:
    """Write a file for this wish. Raises RenderError: there can be no such cluster."""
    said = _said(wish)
    resolved = read_cluster(yaml.safe_dump(nested(tuple(said.values()))).encode())
    known = {one.path: one.plain for one in (*said.values(), *resolved.values)}
    lines = _Writer(wish, known | _places(resolved.cluster), set(said)).lines(key_tree(), "", "")
    return "".join(f"{line}\n" for line in lines).encode()


def _said(wish: ExampleOptions) -> dict[str, ResolvedValue]:
    values: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "profile": wish.profile,
        "machines": wish.machines,
        **({"name": wish.name} if wish.name else {}),
        "nodes.masters.count": wish.masters,
        "nodes.workers.count": wish.workers,
        **({"access.sshKeys": wish.ssh_keys} if wish.ssh_keys else {}),
    }
    return {path: ResolvedValue(path, value, Origin.GIVEN) for path, value in values.items()}


def _places(cluster: Cluster) -> dict[str, str]:
    """Show addresses of nodes by the keys that would set them."""
    groups = {"nodes.masters": cluster.masters, "nodes.workers": cluster.workers}
    firsts = {f"{path}.firstAddress": str(nodes[0].address) for path, nodes in groups.items() if nodes}
    return {"nodes.bootstrap.address": str(cluster.bootstrap.address), **firsts}


class _Writer:
    def __init__(self, wish: ExampleOptions, known: Mapping[str, Any], said: set[str]) -> None:
        self._wish = wish
        self._known = known
        self._said = said | {path for path in _DECIDED if known.get(path)}
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
        yield f"{indent}{'' if key.path in self._said else '# '}{name}: {_scalar(value)}"

    def _list(self, name: str, tree: KeyTree, indent: str) -> Iterator[str]:
        yield from self._explanation(_TITLES[name], indent)
        shown = ", ".join(f"{key}: {_scalar(_SAMPLES[key])}" for key in tree if key in _SAMPLES)
        yield f"{indent}# {name.removesuffix(LIST)}:"
        yield f"{indent}#   - {{{shown}}}"

    def _explanation(self, text: str, indent: str) -> list[str]:
        """Explain the same thing once."""
        if not text or text in self._explained:
            return []
        self._explained.add(text)
        return [f"{indent}# {text}"]

    def _is_meant(self, below: Key | KeyTree) -> bool:
        if isinstance(below, Key):
            return below.only in (None, self._wish.profile, self._wish.machines)
        return any(self._is_meant(one) for one in below.values())


def _scalar(value: Any) -> str:
    """Write a value in one line, quoted where YAML would take it for something else."""
    if isinstance(value, list):
        return json.dumps(value)
    return str(yaml.safe_dump(value, width=4096).splitlines()[0])
