"""Stage 02: networks, DNS names, load balancer, firewall and machines that are off, from the artifacts."""

from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.checks.check import Check, failed, passed
from umbilical.fault import Fault, HardwayError
from umbilical.hardway.artifacts.layout import INFRASTRUCTURE
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.machines.interface import InfraProbe, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, Step, Undo
from umbilical.hardway.stages import artifact_stages
from umbilical.hardway.stages.artifact_stages import lint_checks
from umbilical.hardway.stages.live import started_key
from umbilical.hardway.undoing import DESTROY_MACHINES

PKI_STAGE: Final = 5
_WHY: Final = "without it machines cannot reach each other, the load balancer or other networks"


class InfrastructureStage:
    number = 2
    name = "infrastructure"
    title = "build network, names, load balancer and machines"
    needs: tuple[int, ...] = ()

    def inputs(self, site: Site) -> Mapping[str, str]:
        return {"infrastructure": site.hashes["infrastructure"], "machines": site.machines.kind}

    def steps(self, site: Site) -> Sequence[Step]:
        by_hand = "umbilical explain host-plan.json"
        if site.machines.kind == "libvirt":
            by_hand = f"bash artifacts/{INFRASTRUCTURE}/host-plan.sh apply RECORD"
        return [
            # The load balancer's health checks need a CA, and a run that resumes needs the same keys.
            *artifact_stages.writing_steps(site, PKI_STAGE, "for the load balancer's checks"),
            *artifact_stages.writing_steps(site, self.number),
            *artifact_stages.sweeping_steps(site, self.number),
            Step(
                "build networks, names, load balancer and machines",
                by_hand,
                lambda: _build(site),
                Undo(DESTROY_MACHINES),
            ),
        ]

    def own_checks(self, site: Site) -> Sequence[Check[Site]]:
        return [artifact_stages.written_check(self.number)]

    def checks(self, site: Site) -> Sequence[Check[Site]]:
        return [*self.own_checks(site), *lint_checks(site, ("HA", "LV")), *(_check(probe) for probe in _probes(site))]

    def outputs(self, site: Site) -> Mapping[str, str]:
        return artifact_stages.hashes(site, self.number)


def _build(site: Site) -> None:
    """Raises HardwayError: UMB739, the machines that held the cluster are gone; new ones would wait for its API."""
    booted = [node.id for node in site.cluster.members if started_key(node) in site.notes]
    if booted and all(site.machines.power(node.id) is Power.ABSENT for node in site.cluster.nodes):
        why = f"{', '.join(booted)} were booted and no longer exist; etcd's data was on them"
        remedy = "umbilical stage destroy --yes, then umbilical stage run"
        raise HardwayError("UMB739", "the machines of the cluster are gone", why, remedy)
    chosen = {name: asset.content for name, asset in site.assets.items() if name.startswith(f"{INFRASTRUCTURE}/")}
    site.machines.build(site.cluster, chosen)


def _probes(site: Site) -> list[InfraProbe]:
    try:
        return site.machines.inspect(site.cluster)
    except Fault as fault:
        return [InfraProbe("inspection", False, fault.brief, fault.remedy)]


def _check(probe: InfraProbe) -> Check[Site]:
    verdict = passed(probe.seen) if probe.is_right else failed(probe.seen)
    title = f"the infrastructure is complete: {probe.id}"
    return Check(f"INFRA-{probe.id}", title, _WHY, probe.fix or "umbilical stage retry 2", lambda site: verdict)


STAGE: Final[Stage] = InfrastructureStage()
TOPIC: Final = stage_topic(
    2,
    "Creates the infrastructure of the nodes: a network with NAT, DNS names for the API, the nodes and *.apps, the "
    "load balancer on its two addresses, firewall rules, and machines that are defined and not started.",
    "Every node from its first boot on, and all clients of the API.",
    "Ports that firewalld blocks look like a dead load balancer; without the wildcard name the console does not work; "
    "a health check with plain HTTP on a TLS port marks every server as down.",
    "haproxy -c -f artifacts/infrastructure/haproxy.bootstrap.cfg; dig +short api.CLUSTER.DOMAIN @GATEWAY",
    "Expects you to provide all this, except on clouds where it creates it.",
)
