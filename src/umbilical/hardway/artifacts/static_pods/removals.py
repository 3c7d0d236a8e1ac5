"""What is there for a while only, and how it is taken away: stages do what stands here, and the lint reads it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.static_pods.kube_proxy import PROGRAM as KUBE_PROXY
from umbilical.hardway.artifacts.static_pods.pods import KUBE_PROXY_FILE, TUNNEL_FILE
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.artifacts.tunnel import tunnel_spec

PATH: Final = f"{layout.STATIC_PODS}/removals.json"
TUNNEL: Final = "konnectivity"
PIVOT_STAGE: Final = 13
CONVERGENCE_STAGE: Final = 16
AFTER_MEMBER_REMOVAL: Final = "the bootstrap member has left etcd"
AFTER_NETWORK: Final = "ClusterOperator network is Available"


@dataclass(frozen=True)
class Removal:
    what: str
    """`konnectivity`, `kube-proxy`."""
    stage: int
    after: str
    """What must hold before."""
    namespace: str = ""
    """Deleted without waiting for its end; fine if it is gone. Empty: none."""
    files: tuple[tuple[str, str], ...] = ()
    """Node id, path: static pods whose files are deleted."""
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Node id, words: what is run on a node once its file is gone."""


def removals(inputs: Inputs) -> list[Removal]:
    return [*_tunnel(inputs), *_kube_proxy(inputs)]


def write_removals(steps: list[Removal]) -> bytes:
    return (json.dumps([asdict(step) for step in steps], indent=2) + "\n").encode()


def read_removals(content: bytes) -> list[Removal]:
    """Read the artifact of `write_removals`.

    Raises:
        ValueError: it is something else.
    """
    try:
        return [_removal(one) for one in json.loads(content)]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"it is no list of removals: {error}") from None


def _removal(value: Any) -> Removal:
    return Removal(
        what=str(value["what"]),
        stage=int(value["stage"]),
        after=str(value["after"]),
        namespace=str(value["namespace"]),
        files=tuple((str(node), str(path)) for node, path in value["files"]),
        commands=tuple((str(node), tuple(map(str, words))) for node, words in value["commands"]),
    )


def _tunnel(inputs: Inputs) -> Iterator[Removal]:
    if inputs.has_tunnel:
        path = f"{layout.NODE_MANIFESTS}/{TUNNEL_FILE}"
        files = ((inputs.cluster.bootstrap.id, path),)
        yield Removal(TUNNEL, PIVOT_STAGE, AFTER_MEMBER_REMOVAL, tunnel_spec(inputs).namespace, files)


def _kube_proxy(inputs: Inputs) -> Iterator[Removal]:
    """On OpenShift only: two that implement services write rules against each other."""
    cluster = inputs.cluster
    if cluster.is_openshift and cluster.has_kube_proxy:
        path = f"{layout.NODE_MANIFESTS}/{KUBE_PROXY_FILE}"
        image = Seat(inputs, cluster.bootstrap).image(KUBE_PROXY)
        # Rules outlive whoever wrote them.
        cleanup = (
            *("podman", "run", "--rm", "--privileged", "--net=host"),
            *(f"--authfile={layout.PULL_SECRET}", f"--entrypoint=/usr/bin/{KUBE_PROXY}", image, "--cleanup"),
        )
        yield Removal(
            KUBE_PROXY,
            CONVERGENCE_STAGE,
            AFTER_NETWORK,
            files=tuple((node.id, path) for node in cluster.members),
            commands=tuple((node.id, cleanup) for node in cluster.members),
        )
