"""Base of the stages that work on machines: built from functions, explained by a topic."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from umbilical.checks.check import Check
from umbilical.fault import Unsafe
from umbilical.hardway.artifacts.infrastructure.libvirt import install_commands
from umbilical.hardway.artifacts.infrastructure.places import libvirt_of, machine_places
from umbilical.hardway.artifacts.layout import TLS, ignition
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.explain.entry import Topic
from umbilical.hardway.machines.interface import Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step, Undo
from umbilical.hardway.undoing import ARTIFACTS
from umbilical.hardway.waiting import KnownFailure
from umbilical.host.waiting import NotYet
from umbilical.pki.certificate import read_certificates

_FAILURES: Final = (
    KnownFailure(
        "was not installed",
        "umbilical stage plan shows what changed since: revert it, or umbilical stage rollback 09 to install it anew",
    ),
)
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
        return self.own_checks(site)

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return [condition.check for condition in self.make_conditions(site)]


@dataclass(frozen=True)
class PassingStage(LiveStage):
    """A stage whose result a later one removes on purpose."""

    ends_with: int = 13


def _digest(site: Site, node: ClusterNode) -> str:
    import hashlib

    path = ignition(node)
    # Without the release there is none yet.
    return hashlib.sha256(site.content(path)).hexdigest() if path in site.assets else ""


def install_step(site: Site, node: ClusterNode) -> Step:
    """Boot a machine from its Ignition config and note the time: a node may request certificates only for a while."""

    def act() -> None:
        content = site.content(ignition(node))
        if not site.machines.is_installed(node.id, content):
            check_lives(site)
            site.notes[started_key(node)] = site.now().isoformat()
            site.machines.install(node.id, content)
        elif _trouble(site, node):
            site.machines.start(node.id)

    return Step(f"install {node.id}", _install_line(site, node), act, Undo("remove-machine", {"node": node.id}))


def _install_line(site: Site, node: ClusterNode) -> str:
    """Return what installs the machine as a command line; a lab runs no command for it."""
    source = f"{ARTIFACTS}/{ignition(node)}"
    libvirt = libvirt_of(site.cluster)
    if libvirt is None:
        return f"jq . {source}   # umbilical writes these files to the root of {node.id} and starts its units"
    place = machine_places(site.cluster, libvirt, node)
    commands = (
        ("install", "-m", "0600", source, place.ignition),
        *install_commands(site.cluster, libvirt, node),
        ("virsh", "start", place.domain),
    )
    return "; ".join(map(shlex.join, commands))


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
        if trouble := _trouble(site, node):
            raise NotYet(trouble)
        named = (site.machines.read(node.id, "/etc/hostname") or b"").decode().strip()
        if named != node.name:
            raise NotYet(f"its host name is {named!r}, not {node.name}")
        return named

    why = "with another config the machine has other keys, another name or another address"
    title = f"{node.id} runs from its Ignition config"
    fix = f"umbilical stage run; if it does not help: umbilical stage logs {node.id}"
    return Condition(f"installed-{node.id}", title, why, fix, probe, _FAILURES)


def _trouble(site: Site, node: ClusterNode) -> str:
    """Return why an installed machine is not at work; empty if it is."""
    if site.machines.power(node.id) is not Power.ON:
        return "the machine is off"
    failed = site.machines.failed_services(node.id)
    return f"not running: {', '.join(failed)}" if failed else ""
