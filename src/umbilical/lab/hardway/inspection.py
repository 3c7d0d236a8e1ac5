"""Whether the infrastructure of a hard-way lab is as it was made: each fact looked at anew."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.host.machine_records import Probe
from umbilical.lab.hardway.balancer import Balancer
from umbilical.lab.hardway.names import Resolver, forward_questions, reverse_questions
from umbilical.lab.hardway.topology import HOST, topology_of

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

FIX: Final = "umbilical stage run 02"


def inspect(lab: "Lab", cluster: Cluster) -> list[Probe]:
    return [_topology(lab, cluster), _vips(lab, cluster), *_balancer(Balancer(lab)), *_names(Resolver(lab), cluster)]


def _topology(lab: "Lab", cluster: Cluster) -> Probe:
    nodes = ", ".join(node.name for node in lab.topology.nodes)
    return Probe("network", lab.topology == topology_of(cluster), f"nodes: {nodes}", "umbilical stage destroy")


def _vips(lab: "Lab", cluster: Cluster) -> Probe:
    networks = cluster.networks
    there = lab.describe_network()["nodes"][HOST]["addresses"]
    wanted = [f"{vip}/{networks.machine.prefixlen}" for vip in (networks.api_vip, networks.ingress_vip)]
    return Probe("vips", set(wanted) <= set(there), f"{HOST} has {', '.join(there)}", FIX)


def _balancer(balancer: Balancer) -> Iterator[Probe]:
    bound, there = balancer.bound(), balancer.listening()
    missing = [place for place in bound if place not in there]
    seen = f"nobody listens on {', '.join(missing)}" if missing else f"listening on {', '.join(bound) or 'nothing'}"
    yield Probe("balancer", balancer.is_running and bool(bound) and not missing, seen, FIX)
    verdict = balancer.verdict(balancer.config())
    yield Probe("balancer-config", verdict.is_good, verdict.words, "umbilical stage lint")


def _names(resolver: Resolver, cluster: Cluster) -> Iterator[Probe]:
    forward, reverse = forward_questions(cluster), reverse_questions(cluster)
    yield _answers("names", resolver.wrong(forward), len(forward))
    yield _answers("reverse-names", resolver.wrong(reverse, is_reverse=True), len(reverse))


def _answers(id_: str, wrong: Sequence[str], count: int) -> Probe:
    return Probe(id_, not wrong, "; ".join(wrong) or f"{count} answers are right", FIX)
