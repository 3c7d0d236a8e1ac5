"""kube-proxy on every node that stays: the usual way to services of the kubernetes profile, a crutch on OpenShift."""

from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.seat import (
    VERBOSITY,
    Program,
    Row,
    Seat,
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
_CONNTRACK: Final = "0: the kernel's own setting stays. It counts for the whole machine, whose it is to choose"
_READ_ONLY: Final = "it writes to /proc/sys, and fails where that is not its own, as in a namespace of a lab"


def _kubeconfig(seat: Seat) -> str:
    return layout.BOOTSTRAP_KUBECONFIG if seat.is_openshift else kubeconfig(PROGRAM)


KUBE_PROXY: Final = Program(
    PROGRAM,
    (
        Row(
            "kubeconfig",
            _kubeconfig,
            "how it asks the API; its user must be bound to system:node-proxier. On OpenShift it is the kubelets' "
            "bootstrap identity, which needs that binding",
            "services is forbidden: User ... cannot list resource, and no cluster IP works",
        ),
        Row(
            "proxy-mode",
            by_profile(openshift="iptables", kubernetes="nftables"),
            "how rules get into the kernel: nftables is the current way, iptables what RHCOS's own tools share",
            "it guesses by what it finds",
        ),
        Row(
            "cluster-cidr",
            lambda seat: str(seat.cluster.networks.pods),
            "whose traffic to services keeps its source: that of pods",
            "pods' addresses are hidden behind their node's",
        ),
        Row(
            "hostname-override",
            lambda seat: seat.node.name,
            "by which name it looks for its own Node, for topology and local traffic",
            "Failed to retrieve node info: nodes ... not found, if the host is called otherwise",
        ),
        Row(
            "healthz-bind-address",
            lambda seat: f"{_bracketed(seat.every_address)}:{HEALTH_PORT}",
            "where the kubelet asks whether it still follows the API",
            "a stuck one is never restarted",
        ),
        Row("conntrack-max-per-core", "0", _CONNTRACK, _READ_ONLY, on_kubernetes),
        Row("conntrack-min", "0", _CONNTRACK, _READ_ONLY, on_kubernetes),
        Row("conntrack-tcp-timeout-established", "0s", _CONNTRACK, _READ_ONLY, on_kubernetes),
        Row("conntrack-tcp-timeout-close-wait", "0s", _CONNTRACK, _READ_ONLY, on_kubernetes),
        VERBOSITY,
    ),
    "it ships none: services are implemented by the network plugin, and hostNetwork operators find the API by "
    "/etc/kubernetes/apiserver-url.env",
)


def kube_proxy_pod(seat: Seat) -> dict[str, Any]:
    path = _kubeconfig(seat)
    kernel = (_LOCK, _MODULES) if seat.is_openshift else ()
    component = PodComponent(
        name=PROGRAM,
        image=seat.image(PROGRAM),
        flags=KUBE_PROXY.command_line(seat),
        files=(HostFile("kubeconfig", path), *kernel),
        probes={"livenessProbe": probe("HTTP", _LOOPBACK, HEALTH_PORT, "/livez", period=10, failures=8, timeout=10)},
        cpu="100m",
        memory="128Mi",
        grace_seconds=30,
        command=(f"/usr/bin/{PROGRAM}",) if seat.is_openshift else (PROGRAM,),
        # Rules of the host's kernel are its whole work.
        is_privileged=True,
    )
    return static_pod(component)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
