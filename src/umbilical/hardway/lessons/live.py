"""Faults in machines that run: what a kubelet watches is moved away, the load balancer gets another configuration."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.lessons.lesson import Live
from umbilical.hardway.site import Site

ASIDE: Final = "/etc/kubernetes/umbilical-lesson"
"""Where a lesson puts files of a node; no kubelet watches it."""
_TLS_CHECK: Final = re.compile(rb" check-ssl(?: verify (?:required|none))?(?: ca-file \S+)?(?: check-sni \S+)?")

Chosen = Callable[[Cluster], Sequence[str]]
"""Ids of the nodes that a fault is for."""


def without_tls(config: bytes) -> bytes:
    """Let HAProxy's checks speak plain HTTP, and nothing else change."""
    return _TLS_CHECK.sub(b"", config)


def plain_checks() -> Live:
    return Live(
        "The load balancer is reloaded with checks in plain HTTP.",
        lambda site: site.machines.set_balancer(without_tls(site.content(_in_use(site)))),
        lambda site: site.machines.set_balancer(site.content(_in_use(site))),
        # A server of Go's answers plain HTTP by 400, others by bytes that are no HTTP.
        "L7RSP|L7STS, and it is ready",
    )


def moved_away(file: str, chosen: Chosen, fault: str) -> Live:
    """Take a static pod's file from where a kubelet watches; it ends the pod."""
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

    return Live(fault, spoil, mend, rf"{re.escape(file)} is not in")


def _in_use(site: Site) -> str:
    """Say which configuration the load balancer has, by its servers: after the pivot the bootstrap node is none."""
    servers = {one.server for one in site.machines.balancer()}
    return HAPROXY_BOOTSTRAP if site.cluster.bootstrap.name in servers else HAPROXY_FINAL


def _run(site: Site, node: str, command: Sequence[str]) -> None:
    done = site.machines.run(node, command)
    if done.exit_code != 0:
        what = f"`{' '.join(command)}` failed on {node}"
        raise HardwayError("UMB734", what, done.complaint, f"run it there by hand: {' '.join(command)}")
