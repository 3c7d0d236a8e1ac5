"""Base of the stages that work on machines: built from functions, explained by a topic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from umbilical.checks.check import Check
from umbilical.fault import Unsafe
from umbilical.hardway.artifacts.layout import TLS, ignition
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.explain.entry import Topic
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step, Undo
from umbilical.host.waiting import NotYet
from umbilical.pki.certificate import read_certificates

LEAST_LEFT: Final = timedelta(hours=2)
"""Minimum lifetime of every certificate when a machine boots."""


@dataclass(frozen=True)
class LiveStage:
    number: int
    name: str
    title: str
    needs: tuple[int, ...]
    topic: Topic
    make_steps: Callable[[Site], Sequence[Step]]
    make_conditions: Callable[[Site], Sequence[Condition]]
    recipes: tuple[str, ...] = ()
    """Recipes whose artifacts it uses: other content makes it stale."""
    nodes: Callable[[Site], Sequence[ClusterNode]] = field(default=lambda site: ())
    """Nodes that it boots."""

    def inputs(self, site: Site) -> Mapping[str, str]:
        used = {recipe: site.hashes.get(recipe, "") for recipe in self.recipes}
        return {**used, **{node.id: _digest(site, node) for node in self.nodes(site)}}

    def steps(self, site: Site) -> Sequence[Step]:
        return self.make_steps(site)

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [condition.check for condition in self.make_conditions(site)]


@dataclass(frozen=True)
class PassingStage(LiveStage):
    """A stage whose result a later one removes on purpose."""

    ends_with: int = 13


def _digest(site: Site, node: ClusterNode) -> str:
    import hashlib

    return hashlib.sha256(site.content(ignition(node))).hexdigest()


def install_step(site: Site, node: ClusterNode) -> Step:
    """Boot a machine from its Ignition config and note the time: a node may request certificates only for a while."""

    def act() -> None:
        content = site.content(ignition(node))
        if not site.machines.is_installed(node.id, content):
            check_lives(site)
            site.notes[started_key(node)] = site.now().isoformat()
            site.machines.install(node.id, content)

    command = f"coreos-installer install /dev/vda --ignition-file {node.id}.ign   # lab: applied to the node's root"
    return Step(f"install {node.id}", command, act, Undo("remove-machine", {"node": node.id}))


def check_lives(site: Site) -> None:
    """Refuse to boot a machine with certificates that expire too soon. Raises Unsafe: UMB762."""
    paths = [path for path in site.assets if path.startswith(f"{TLS}/") and path.endswith(".crt")]
    for path in sorted(paths):
        for certificate in read_certificates(site.content(path)):
            left = certificate.time_left(site.now())
            if left < LEAST_LEFT:
                why = f"{path} expires at {certificate.not_after:%Y-%m-%d %H:%M} UTC"
                remedy = "umbilical stage rotate --due, then umbilical stage run"
                raise Unsafe("UMB762", "no machine was booted: a certificate expires too soon", why, remedy)


def started_key(node: ClusterNode) -> str:
    return f"started:{node.id}"


def installed_condition(node: ClusterNode) -> Condition:
    def probe(site: Site) -> str:
        if not site.machines.is_installed(node.id, site.content(ignition(node))):
            raise NotYet("it was not installed from this config")
        named = (site.machines.read(node.id, "/etc/hostname") or b"").decode().strip()
        if named != node.name:
            raise NotYet(f"its host name is {named!r}, not {node.name}")
        return named

    why = "with another config the machine has other keys, another name or another address"
    fix = "umbilical stage rollback 09; or on the machine's console: journalctl -u ignition-firstboot-complete"
    return Condition(f"installed-{node.id}", f"{node.id} runs from its Ignition config", why, fix, probe)
