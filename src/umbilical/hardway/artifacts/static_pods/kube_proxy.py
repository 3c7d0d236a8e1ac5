"""kube-proxy on every node that stays: the usual way to services of the kubernetes profile, a crutch on OpenShift."""

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
from umbilical.manifests.static_pod import Component, HostFile, probe, static_pod

PROGRAM: Final = "kube-proxy"
HEALTH_PORT: Final = 10256
_LOOPBACK: Final = "127.0.0.1"
_LOCK: Final = HostFile("xtables-lock", "/run/xtables.lock", "FileOrCreate", is_writable=True)
_MODULES: Final = HostFile("lib-modules", "/lib/modules", "Directory")
_CONNTRACK: Final = "0: the kernel's own setting stays. It counts for the whole machine, whose it is to choose"
_READ_ONLY: Final = "it writes to /proc/sys, and fails where that is not its own, as in a namespace of a lab"


def _kubeconfig(placement: PodPlacement) -> str:
    return layout.BOOTSTRAP_KUBECONFIG if placement.is_openshift else kubeconfig(PROGRAM)


KUBE_PROXY: Final = ProgramFlags(
    PROGRAM,
    (
        FlagRow(
            "kubeconfig",
            _kubeconfig,
            "how it asks the API; its user must be bound to system:node-proxier. On OpenShift it is the kubelets' "
            "bootstrap identity, which needs that binding",
            "services is forbidden: User ... cannot list resource, and no cluster IP works",
        ),
        FlagRow(
            "proxy-mode",
            by_profile(openshift="iptables", kubernetes="nftables"),
            "how rules get into the kernel: nftables is the current way, iptables what RHCOS's own tools share",
            "it guesses by what it finds",
        ),
        FlagRow(
            "cluster-cidr",
            lambda placement: str(placement.cluster.networks.pods),
            "whose traffic to services keeps its source: that of pods",
            "pods' addresses are hidden behind their node's",
        ),
        FlagRow(
            "hostname-override",
            lambda placement: placement.node.name,
            "by which name it looks for its own Node, for topology and local traffic",
            "Failed to retrieve node info: nodes ... not found, if the host is called otherwise",
        ),
        FlagRow(
            "healthz-bind-address",
            lambda placement: f"{_bracketed(placement.every_address)}:{HEALTH_PORT}",
            "where the kubelet asks whether it still follows the API",
            "a stuck one is never restarted",
        ),
        FlagRow("conntrack-max-per-core", "0", _CONNTRACK, _READ_ONLY, on_kubernetes),
        FlagRow("conntrack-min", "0", _CONNTRACK, _READ_ONLY, on_kubernetes),
        FlagRow("conntrack-tcp-timeout-established", "0s", _CONNTRACK, _READ_ONLY, on_kubernetes),
        FlagRow("conntrack-tcp-timeout-close-wait", "0s", _CONNTRACK, _READ_ONLY, on_kubernetes),
        VERBOSITY,
    ),
    "it ships none: services are implemented by the network plugin, and hostNetwork operators find the API by "
    "/etc/kubernetes/apiserver-url.env",
)


def kube_proxy_pod(placement: PodPlacement) -> dict[str, Any]:
    path = _kubeconfig(placement)
    kernel = (_LOCK, _MODULES) if placement.is_openshift else ()
    component = Component(
        name=PROGRAM,
        image=placement.image(PROGRAM),
        flags=KUBE_PROXY.command_line(placement),
        files=(HostFile("kubeconfig", path), *kernel),
        probes={"livenessProbe": probe("HTTP", _LOOPBACK, HEALTH_PORT, "/livez", period=10, failures=8, timeout=10)},
        cpu="100m",
        memory="128Mi",
        grace_seconds=30,
        command=(f"/usr/bin/{PROGRAM}",) if placement.is_openshift else (PROGRAM,),
        # Rules of the host's kernel are its whole work.
        is_privileged=True,
    )
    return static_pod(component)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
