"""kube-scheduler: on the bootstrap node, and in the kubernetes profile on every master."""

from typing import Any, Final

from umbilical.hardway.artifacts.static_pods.kube_apiserver import control_plane_place
from umbilical.hardway.artifacts.static_pods.kube_controller_manager import access_rows
from umbilical.hardway.artifacts.static_pods.rows import Program, Row, on_openshift
from umbilical.hardway.artifacts.static_pods.seat import Seat, kubeconfig
from umbilical.manifests.control_plane_pods import SCHEDULER, SCHEDULER_PORT, loopback_probes
from umbilical.manifests.static_pod import Component, HostFile, static_pod

OPENSHIFT_NAMESPACE: Final = "openshift-kube-scheduler"
"""Where OpenShift's schedulers keep their lease; the default is kube-system."""
_LEASE_PLACE: Final = Row(
    "leader-elect-resource-namespace",
    OPENSHIFT_NAMESPACE,
    "the namespace of the lease, the same as in the configuration that the operator gives to the masters' schedulers",
    "two schedulers lead at once until the pivot, each by a lease of its own, and nobody takes over this one's",
    on_openshift,
)

KUBE_SCHEDULER: Final = Program(
    SCHEDULER,
    (*access_rows(SCHEDULER, SCHEDULER_PORT), _LEASE_PLACE),
    "the scheduler operator renders its pod with --config; leases there last 137 s, because the operator restarts "
    "schedulers often and a lost lease costs more than a slow takeover",
)


def kube_scheduler_pod(seat: Seat) -> dict[str, Any]:
    component = Component(
        name=SCHEDULER,
        image=seat.image(SCHEDULER),
        flags=KUBE_SCHEDULER.command_line(seat),
        files=(HostFile("kubeconfig", kubeconfig(SCHEDULER)),),
        probes=loopback_probes(SCHEDULER_PORT),
        cpu="100m",
        memory="128Mi",
        grace_seconds=30,
        command=seat.command(SCHEDULER),
    )
    return static_pod(component, place=control_plane_place(seat, SCHEDULER))
