"""Which static pods each node gets, which of them a later stage starts, and which are removed again.

Stages execute the removal steps, and the lint checks them.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
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
    kube_scheduler_pod,
    policy_controller_config,
)
from umbilical.hardway.artifacts.static_pods.kube_proxy import PROGRAM as KUBE_PROXY
from umbilical.hardway.artifacts.static_pods.kube_proxy import kube_proxy_pod
from umbilical.hardway.artifacts.static_pods.placement import CONFIG_FOLDER, Condition, PodPlacement
from umbilical.hardway.artifacts.tunnel import egress_selector_config, konnectivity_server_pod, tunnel_spec
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.manifests.tree import PUBLIC_MODE, AssetTree

CVO_FILE: Final = "cvo-bootstrap.yaml"
TUNNEL_FILE: Final = "konnectivity-server-pod.yaml"
KUBE_PROXY_FILE: Final = "kube-proxy.yaml"


@dataclass(frozen=True)
class PodFile:
    file: str
    make: Callable[[PodPlacement], dict[str, Any]]
    is_on: Condition
    is_late: bool = False

    def artifact(self, node: ClusterNode) -> str:
        return (layout.late_static_pod if self.is_late else layout.static_pod)(node, self.file)

    def on_node(self) -> str:
        return f"{layout.NODE_LATE_MANIFESTS if self.is_late else layout.NODE_MANIFESTS}/{self.file}"


@dataclass(frozen=True)
class ConfigFile:
    """A file in NODE_CONFIGS that a static pod reads."""

    file: str
    make: Callable[[PodPlacement], dict[str, Any]]
    is_on: Condition

    def artifact(self, node: ClusterNode) -> str:
        return layout.static_pod(node, f"{CONFIG_FOLDER}/{self.file}")

    def on_node(self) -> str:
        return f"{layout.NODE_CONFIGS}/{self.file}"


def _bootstrap_openshift(placement: PodPlacement) -> bool:
    return placement.is_bootstrap and placement.is_openshift


def _own_master(placement: PodPlacement) -> bool:
    """In OpenShift, operators write the masters' pods."""
    return placement.node.role is NodeRole.MASTER and not placement.is_openshift


def _tunnel(placement: PodPlacement) -> bool:
    return placement.has_tunnel


def _member_with_proxy(placement: PodPlacement) -> bool:
    return not placement.is_bootstrap and placement.cluster.has_kube_proxy


_CONTROL_PLANE: Final = (
    ("etcd", etcd_pod),
    ("kube-apiserver", kube_apiserver_pod),
    ("kube-controller-manager", kube_controller_manager_pod),
    ("kube-scheduler", kube_scheduler_pod),
)
PODS: Final[tuple[PodFile, ...]] = (
    *(
        PodFile(f"{name}-bootstrap.yaml", make, lambda placement: placement.is_bootstrap)
        for name, make in _CONTROL_PLANE
    ),
    PodFile(TUNNEL_FILE, konnectivity_server_pod, _tunnel),
    PodFile(CVO_FILE, cluster_version_operator_pod, _bootstrap_openshift, is_late=True),
    *(PodFile(f"{name}.yaml", make, _own_master, is_late=True) for name, make in _CONTROL_PLANE),
    PodFile(KUBE_PROXY_FILE, kube_proxy_pod, _member_with_proxy),
)
CONFIGS: Final[tuple[ConfigFile, ...]] = (
    ConfigFile(EGRESS_FILE, egress_selector_config, _tunnel),
    ConfigFile(POLICY_CONFIG, lambda _seat: policy_controller_config(), _bootstrap_openshift),
)


def files_of(inputs: Inputs, node: ClusterNode) -> list[PodFile | ConfigFile]:
    """List the files of a node; configuration files before the pods that read them."""
    placement = PodPlacement(inputs, node)
    every: tuple[PodFile | ConfigFile, ...] = (*CONFIGS, *PODS)
    return [file for file in every if file.is_on(placement)]


REMOVALS_PATH: Final = f"{layout.STATIC_PODS}/removals.json"
TUNNEL: Final = "konnectivity"
PIVOT_STAGE: Final = 13
CONVERGENCE_STAGE: Final = 16
AFTER_MEMBER_REMOVAL: Final = "the bootstrap member has left etcd"
AFTER_NETWORK: Final = "ClusterOperator network is Available"


@dataclass(frozen=True)
class RemovalStep:
    what: str
    """`konnectivity`, `kube-proxy`."""
    stage: int
    after: str
    """Condition that must hold before."""
    namespace: str = ""
    """Namespace to delete without waiting; it may be gone already. Empty: none."""
    files: tuple[tuple[str, str], ...] = ()
    """Node id, path: files of static pods to delete."""
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Node id, words: commands to run on a node after its file is deleted."""


def removals(inputs: Inputs) -> list[RemovalStep]:
    return [*_tunnel_removal(inputs), *_kube_proxy_removal(inputs)]


def write_removals(steps: list[RemovalStep]) -> bytes:
    return (json.dumps([asdict(step) for step in steps], indent=2) + "\n").encode()


def read_removals(content: bytes) -> list[RemovalStep]:
    """Read the artifact of `write_removals`. Raises ValueError: it has another form."""
    try:
        return [_removal(one) for one in json.loads(content)]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"it is not a list of removals: {error}") from None


def _removal(value: Any) -> RemovalStep:
    return RemovalStep(
        what=str(value["what"]),
        stage=int(value["stage"]),
        after=str(value["after"]),
        namespace=str(value["namespace"]),
        files=tuple((str(node), str(path)) for node, path in value["files"]),
        commands=tuple((str(node), tuple(map(str, words))) for node, words in value["commands"]),
    )


def _tunnel_removal(inputs: Inputs) -> Iterator[RemovalStep]:
    if inputs.has_tunnel:
        path = f"{layout.NODE_MANIFESTS}/{TUNNEL_FILE}"
        files = ((inputs.cluster.bootstrap.id, path),)
        yield RemovalStep(TUNNEL, PIVOT_STAGE, AFTER_MEMBER_REMOVAL, tunnel_spec(inputs).namespace, files)


def _kube_proxy_removal(inputs: Inputs) -> Iterator[RemovalStep]:
    """In OpenShift only: kube-proxy and the network plugin would overwrite each other's rules."""
    cluster = inputs.cluster
    if cluster.is_openshift and cluster.has_kube_proxy:
        path = f"{layout.NODE_MANIFESTS}/{KUBE_PROXY_FILE}"
        image = PodPlacement(inputs, cluster.bootstrap).image(KUBE_PROXY)
        # kube-proxy's rules stay in the kernel after it has ended.
        cleanup = (
            *("podman", "run", "--rm", "--privileged", "--net=host"),
            *(f"--authfile={layout.PULL_SECRET}", f"--entrypoint=/usr/bin/{KUBE_PROXY}", image, "--cleanup"),
        )
        yield RemovalStep(
            KUBE_PROXY,
            CONVERGENCE_STAGE,
            AFTER_NETWORK,
            files=tuple((node.id, path) for node in cluster.members),
            commands=tuple((node.id, cleanup) for node in cluster.members),
        )


def render_static_pods(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Render static pods and their configuration files; `made` is not needed, pods refer to files by path."""
    tree = AssetTree()
    for node in inputs.cluster.nodes:
        for file in files_of(inputs, node):
            tree.add_yaml(file.artifact(node), file.make(PodPlacement(inputs, node)), PUBLIC_MODE)
    tree.add(REMOVALS_PATH, write_removals(removals(inputs)), PUBLIC_MODE)
    return tree
