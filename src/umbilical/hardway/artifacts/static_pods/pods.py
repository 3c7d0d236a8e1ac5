"""Which static pods stand on which node, under which file names, and which of them a later stage moves into place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.names import EGRESS_FILE
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.static_pods.cluster_version_operator import cluster_version_operator_pod
from umbilical.hardway.artifacts.static_pods.etcd import etcd_pod
from umbilical.hardway.artifacts.static_pods.kube_apiserver import kube_apiserver_pod
from umbilical.hardway.artifacts.static_pods.kube_controller_manager import (
    POLICY_CONFIG,
    kube_controller_manager_pod,
    policy_controller_config,
)
from umbilical.hardway.artifacts.static_pods.kube_proxy import kube_proxy_pod
from umbilical.hardway.artifacts.static_pods.kube_scheduler import kube_scheduler_pod
from umbilical.hardway.artifacts.static_pods.rows import Condition
from umbilical.hardway.artifacts.static_pods.seat import CONFIG_FOLDER, Seat
from umbilical.hardway.artifacts.static_pods.tunnel import egress_selector_config, konnectivity_server_pod
from umbilical.hardway.config.cluster import Node, Role

CVO_FILE: Final = "cvo-bootstrap.yaml"
TUNNEL_FILE: Final = "konnectivity-server-pod.yaml"
KUBE_PROXY_FILE: Final = "kube-proxy.yaml"
MASTER_FILES: Final = ("etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml")
"""Late ones of a master in the kubernetes profile, in the order in which they are moved into place."""


@dataclass(frozen=True)
class PodFile:
    file: str
    make: Callable[[Seat], dict[str, Any]]
    stands: Condition
    is_late: bool = False

    def artifact(self, node: Node) -> str:
        return (layout.late_static_pod if self.is_late else layout.static_pod)(node, self.file)

    def on_node(self) -> str:
        return f"{layout.NODE_LATE_MANIFESTS if self.is_late else layout.NODE_MANIFESTS}/{self.file}"


@dataclass(frozen=True)
class ConfigFile:
    """A file of NODE_CONFIGS that a static pod reads."""

    file: str
    make: Callable[[Seat], dict[str, Any]]
    stands: Condition

    def artifact(self, node: Node) -> str:
        return layout.static_pod(node, f"{CONFIG_FOLDER}/{self.file}")

    def on_node(self) -> str:
        return f"{layout.NODE_CONFIGS}/{self.file}"


def _bootstrap(seat: Seat) -> bool:
    return seat.is_bootstrap


def _bootstrap_openshift(seat: Seat) -> bool:
    return seat.is_bootstrap and seat.is_openshift


def _own_master(seat: Seat) -> bool:
    """On OpenShift operators write the masters' pods."""
    return seat.node.role is Role.MASTER and not seat.is_openshift


def _tunnel(seat: Seat) -> bool:
    return seat.has_tunnel


def _member_with_proxy(seat: Seat) -> bool:
    return not seat.is_bootstrap and seat.cluster.has_kube_proxy


_CONTROL_PLANE: Final = (
    ("etcd", etcd_pod),
    ("kube-apiserver", kube_apiserver_pod),
    ("kube-controller-manager", kube_controller_manager_pod),
    ("kube-scheduler", kube_scheduler_pod),
)
PODS: Final[tuple[PodFile, ...]] = (
    *(PodFile(f"{name}-bootstrap.yaml", make, _bootstrap) for name, make in _CONTROL_PLANE),
    PodFile(TUNNEL_FILE, konnectivity_server_pod, _tunnel),
    PodFile(CVO_FILE, cluster_version_operator_pod, _bootstrap_openshift, is_late=True),
    *(PodFile(f"{name}.yaml", make, _own_master, is_late=True) for name, make in _CONTROL_PLANE),
    PodFile(KUBE_PROXY_FILE, kube_proxy_pod, _member_with_proxy),
)
CONFIGS: Final[tuple[ConfigFile, ...]] = (
    ConfigFile(EGRESS_FILE, egress_selector_config, _tunnel),
    ConfigFile(POLICY_CONFIG, lambda _seat: policy_controller_config(), _bootstrap_openshift),
)


def files_of(inputs: Inputs, node: Node) -> list[PodFile | ConfigFile]:
    """List what stands on a node; its configs before the pods that read them."""
    seat = Seat(inputs, node)
    every: tuple[PodFile | ConfigFile, ...] = (*CONFIGS, *PODS)
    return [file for file in every if file.stands(seat)]
