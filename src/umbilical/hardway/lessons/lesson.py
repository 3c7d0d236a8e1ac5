"""A lesson: symptoms, a breakage of artifacts or of running machines, and how it is recognised.

`ArtifactCopy` is a scratch copy of the artifacts; a `LiveBreakage` moves a file away or changes the load balancer.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import yaml

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.config import cluster
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.site import Site
from umbilical.ignition.document import IgnitionDocument
from umbilical.manifests.tree import Asset
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Profile, Usage

if TYPE_CHECKING:
    from umbilical.hardway.site import Site


class MissingArtifact(Exception):
    """The object to break does not exist: its stage has not run, or an option is off."""


class ArtifactCopy:
    def __init__(self, cluster: Cluster, assets: Mapping[str, Asset], now: datetime) -> None:
        self.cluster = cluster
        self.now = now
        self._before = dict(assets)
        self.assets = dict(assets)

    @property
    def changed(self) -> list[Asset]:
        return [asset for path, asset in self.assets.items() if self._before.get(path) != asset]

    @property
    def removed(self) -> list[str]:
        return [path for path in self._before if path not in self.assets]

    @property
    def before(self) -> list[Asset]:
        """The original of every changed or removed file."""
        touched = {asset.path for asset in self.changed} | set(self.removed)
        return [self._before[path] for path in sorted(touched) if path in self._before]

    def content(self, path: str) -> bytes:
        if path not in self.assets:
            raise MissingArtifact(path)
        return self.assets[path].content

    def write(self, path: str, content: bytes) -> None:
        self.assets[path] = replace(self.assets[path], content=content)

    def remove(self, path: str) -> None:
        if self.assets.pop(path, None) is None:
            raise MissingArtifact(path)

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace every occurrence of `old`."""
        text = self.content(path).decode()
        if old not in text:
            raise MissingArtifact(f"{old.strip()!r} in {path}")
        self.write(path, text.replace(old, new).encode())

    def edit(self, path: str, change: Callable[[Any], object]) -> None:
        """Change a YAML file with one object."""
        value = yaml.safe_load(self.content(path))
        change(value)
        self.write(path, yaml.safe_dump(value, sort_keys=False).encode())

    def edit_pod(self, node_id: str, file: str, old: str, new: str) -> None:
        """Change a static pod, also in the node's Ignition config."""
        path = next((one for one in self._places(node_id, file) if one in self.assets), file)
        before = self.content(path)
        self.replace(path, old, new)
        self._replace_on_nodes(before, self.content(path))

    def remove_pod(self, node_id: str, file: str) -> None:
        self.remove(next((one for one in self._places(node_id, file) if one in self.assets), file))
        self.edit_config(node_id, lambda config: _drop(config, f"/{file}"))

    def edit_config(self, node_id: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change a node's Ignition config as JSON."""
        path = layout.ignition(self.cluster.node(node_id))
        config = json.loads(self.content(path))
        change(config)
        self.write(path, json.dumps(config, separators=(",", ":")).encode())

    def edit_file(self, node_id: str, path: str, old: bytes, new: bytes) -> None:
        """Change a file in a node's Ignition config."""
        where = layout.ignition(self.cluster.node(node_id))
        document = IgnitionDocument(self.content(where))
        file = document.config.file(path)
        if file is None or old not in file.content():
            raise MissingArtifact(f"{path} in {where}")
        self.write(where, document.with_content(path, file.content().replace(old, new)).content)

    def reissue(self, row_id: str, **changes: Any) -> None:
        """Issue a certificate again with changed fields, also in the nodes' Ignition configs."""
        old = KeyPair(self.content(layout.certificate(row_id)), self.content(layout.key(row_id)))
        seen = read_certificates(old.certificate)[0]
        signer = KeyPair(self.content(layout.certificate(seen.issuer_name)), self.content(layout.key(seen.issuer_name)))
        wanted = Profile(
            seen.common_name,
            tuple(map(Usage, seen.usages)),
            tuple(value for kind, value in seen.subject if kind == "O"),
            seen.dns_names,
            seen.ip_addresses,
            self.cluster.terms.key_type,
        )
        life = timedelta(hours=self.cluster.terms.short_hours)
        made = Authority.load(signer).issue(replace(wanted, **changes), self.now, life)
        for path, before, after in (
            (layout.certificate(row_id), old.certificate, made.certificate),
            (layout.key(row_id), old.key, made.key),
        ):
            self.write(path, after)
            self._replace_on_nodes(before, after)

    def _places(self, node_id: str, file: str) -> tuple[str, str]:
        node = self.cluster.node(node_id)
        return layout.static_pod(node, file), layout.late_static_pod(node, file)

    def _replace_on_nodes(self, before: bytes, after: bytes) -> None:
        for node in self.cluster.nodes:
            where = layout.ignition(node)
            if where not in self.assets:
                continue
            document = IgnitionDocument(self.content(where))
            for path in [file.path for file in document.config.files if file.content() == before]:
                document = document.with_content(path, after)
            self.write(where, document.content)


def _drop(config: dict[str, Any], ending: str) -> None:
    files = config["storage"]["files"]
    config["storage"]["files"] = [one for one in files if not str(one["path"]).endswith(ending)]


@dataclass(frozen=True)
class LiveBreakage:
    """The same fault in running machines."""

    cause: str
    """What is changed."""
    spoil: Callable[["Site"], None]
    mend: Callable[["Site"], None]
    """Both idempotent."""
    sign: str
    """Regular expression for the evidence on the machines."""


@dataclass(frozen=True)
class Lesson:
    id: str
    symptoms: str
    """The symptoms, without the cause."""
    cause: str
    """The cause."""
    permanent_fix: str
    """The permanent fix, for a cluster that was not broken on purpose."""
    rules: tuple[str, ...]
    """Lint rules that fail."""
    sign: str
    """Regular expression for the evidence of one of them."""
    profiles: frozenset[cluster.ClusterProfile]
    spoil: Callable[[ArtifactCopy], None]
    live: LiveBreakage | None = None


ASIDE: Final = "/etc/kubernetes/umbilical-lesson"
"""Directory on a node for moved files; no kubelet watches it."""
_TLS_CHECK: Final = re.compile(rb" check-ssl(?: verify (?:required|none))?(?: ca-file \S+)?(?: check-sni \S+)?")

Chosen = Callable[[Cluster], Sequence[str]]
"""Ids of the nodes to break."""


def without_tls(config: bytes) -> bytes:
    """Make HAProxy's health checks use plain HTTP."""
    return _TLS_CHECK.sub(b"", config)


def plain_checks() -> LiveBreakage:
    return LiveBreakage(
        "The load balancer is reloaded with health checks in plain HTTP.",
        lambda site: site.machines.set_balancer(without_tls(site.content(_in_use(site)))),
        lambda site: site.machines.set_balancer(site.content(_in_use(site))),
        # A Go server answers plain HTTP with 400, others with bytes that are not HTTP.
        "L7RSP|L7STS, and it is ready",
    )


def moved_away(file: str, chosen: Chosen, cause: str) -> LiveBreakage:
    """Move a static pod's file out of the kubelet's directory, which stops the pod."""
    watched, aside = f"{layout.NODE_MANIFESTS}/{file}", f"{ASIDE}/{file}"

    def spoil(site: Site) -> None:
        for node in chosen(site.cluster):
            _run(site, node, ["mkdir", "-p", ASIDE])
            if site.machines.read(node, watched) is not None:
                _run(site, node, ["mv", watched, aside])

    def mend(site: Site) -> None:
        for node in chosen(site.cluster):
            if site.machines.read(node, aside) is not None:
                _run(site, node, ["mv", aside, watched])

    return LiveBreakage(cause, spoil, mend, rf"{re.escape(file)} is not in")


def _in_use(site: Site) -> str:
    """Return the load balancer's current configuration: before the pivot it has the bootstrap node."""
    servers = {one.server for one in site.machines.balancer()}
    return HAPROXY_BOOTSTRAP if site.cluster.bootstrap.name in servers else HAPROXY_FINAL


def _run(site: Site, node: str, command: Sequence[str]) -> None:
    done = site.machines.run(node, command)
    if done.exit_code != 0:
        what = f"`{' '.join(command)}` failed on {node}"
        raise HardwayError("UMB734", what, done.complaint, f"on {node}: {' '.join(command)}")
