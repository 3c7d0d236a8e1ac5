"""kube-proxy on masters and workers: in the kubernetes profile permanently, in OpenShift temporarily if turned on."""

from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.placement import (
    VERBOSITY,
    FlagRow,
    PodPlacement,
    ProgramFlags,
    by_profile,
    kubeconfig,
    on_kubernetes,
)
from umbilical.manifests.static_pod import HostFile, PodComponent, probe, static_pod

PROGRAM: Final = "kube-proxy"
HEALTH_PORT: Final = 10256
_LOOPBACK: Final = "127.0.0.1"
_LOCK: Final = HostFile("xtables-lock", "/run/xtables.lock", "FileOrCreate", is_writable=True)
_MODULES: Final = HostFile("lib-modules", "/lib/modules", "Directory")
_CONNTRACK: Final = "0: keep the kernel's setting, which applies to the whole machine"
_READ_ONLY: Final = "it writes to /proc/sys and fails if that is read-only, as in a lab's namespace"


def _kubeconfig(placement: PodPlacement) -> str:
    return layout.BOOTSTRAP_KUBECONFIG if placement.is_openshift else kubeconfig(PROGRAM)


KUBE_PROXY: Final = ProgramFlags(
    PROGRAM,
    (
        FlagRow(
            "kubeconfig",
            _kubeconfig,
            "how it connects to the API; its user must be bound to system:node-proxier. In OpenShift it is the "
            "kubelets' bootstrap kubeconfig, whose user gets that binding",
            "services is forbidden: User ... cannot list resource, and no cluster IP works",
        ),
        FlagRow(
            "proxy-mode",
            by_profile(openshift="iptables", kubernetes="nftables"),
            "how it writes rules: nftables is the current mode; iptables is what the tools of RHCOS use",
            "it detects a mode itself",
        ),
        FlagRow(
            "cluster-cidr",
            lambda placement: str(placement.cluster.networks.pods),
            "pod network; connections from it to Services keep their source address",
            "connections of pods get the source address of their node",
        ),
        FlagRow(
            "hostname-override",
            lambda placement: placement.node.name,
            "name of its Node object, for topology and local traffic",
            "Failed to retrieve node info: nodes ... not found, if the host has another name",
        ),
        FlagRow(
            "healthz-bind-address",
            lambda placement: f"{_bracketed(placement.every_address)}:{HEALTH_PORT}",
            "address of its health endpoint for the kubelet's probe",
            "a stuck kube-proxy is never restarted",
        ),
        FlagRow("conntrack-max-per-core", "0", _CONNTRACK, _READ_ONLY, on_kubernetes),
        FlagRow("conntrack-min", "0", _CONNTRACK, _READ_ONLY, on_kubernetes),
        FlagRow("conntrack-tcp-timeout-established", "0s", _CONNTRACK, _READ_ONLY, on_kubernetes),
        FlagRow("conntrack-tcp-timeout-close-wait", "0s", _CONNTRACK, _READ_ONLY, on_kubernetes),
        VERBOSITY,
    ),
    "it has no kube-proxy: the network plugin implements Services, and hostNetwork operators read the API's address "
    "from /etc/kubernetes/apiserver-url.env",
)


def kube_proxy_pod(placement: PodPlacement) -> dict[str, Any]:
    path = _kubeconfig(placement)
    kernel = (_LOCK, _MODULES) if placement.is_openshift else ()
    component = PodComponent(
        name=PROGRAM,
        image=placement.image(PROGRAM),
        flags=KUBE_PROXY.command_line(placement),
        files=(HostFile("kubeconfig", path), *kernel),
        probes={"livenessProbe": probe("HTTP", _LOOPBACK, HEALTH_PORT, "/livez", period=10, failures=8, timeout=10)},
        cpu="100m",
        memory="128Mi",
        grace_seconds=30,
        command=(f"/usr/bin/{PROGRAM}",) if placement.is_openshift else (PROGRAM,),
        # It writes rules of the host's kernel.
        is_privileged=True,
    )
    return static_pod(component)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
