"""The cluster-version operator on the bootstrap node: held back until CRDs and FeatureGate are there."""

from typing import Any, Final

from umbilical.hardway.artifacts.static_pods.placement import VERBOSITY, FlagRow, PodPlacement, ProgramFlags, kubeconfig
from umbilical.hardway.config.cluster import API_PORT
from umbilical.manifests.static_pod import Component, HostFile, Place, static_pod

PROGRAM: Final = "cluster-version-operator"
CLUSTER_PROFILE: Final = "self-managed-high-availability"
_KUBECONFIG: Final = kubeconfig("localhost")
_TRUSTED: Final = "/etc/ssl/certs"
_GRACE_SECONDS: Final = 130

CLUSTER_VERSION_OPERATOR: Final = ProgramFlags(
    PROGRAM,
    (
        FlagRow(
            "release-image",
            lambda placement: placement.inputs.payload.image,
            "which release is to be installed; by digest, and the same as the pod's own image",
            "by tag, it reports another desired image than the operator in the cluster, which then updates itself",
        ),
        FlagRow(
            "enable-auto-update", "false", "nobody updates while nothing is installed", "it may choose a new release"
        ),
        FlagRow(
            "kubeconfig", _KUBECONFIG, "how it asks the API: by localhost", "it looks for a service account's token"
        ),
        FlagRow(
            "listen",
            "",
            "empty: no metrics. The port would need a certificate that does not exist yet",
            "it exits: --listen was not set empty, so --serving-cert-file must be set",
        ),
        VERBOSITY,
    ),
    "the operator's own render command writes the pod into bootstrap-manifests; cluster-bootstrap puts it beside the "
    "others at once, and its retries make up for the order",
    (
        FlagRow(
            "KUBERNETES_SERVICE_HOST",
            "127.0.0.1",
            "where client libraries look that are given no kubeconfig: no cluster IP works on this node",
            "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST must be defined",
        ),
        FlagRow(
            "KUBERNETES_SERVICE_PORT",
            str(API_PORT),
            "the port to KUBERNETES_SERVICE_HOST",
            "unable to load in-cluster configuration, KUBERNETES_SERVICE_PORT must be defined",
        ),
        FlagRow(
            "NODE_NAME",
            lambda placement: placement.node.id,
            "where it runs, for what it writes about itself",
            "a static pod of a standalone kubelet has no other way to know",
        ),
        FlagRow(
            "CLUSTER_PROFILE",
            CLUSTER_PROFILE,
            "which of a release's manifests apply: each names its profiles in an annotation",
            "it exits, or applies those of another kind of cluster",
        ),
    ),
)


def cluster_version_operator_pod(placement: PodPlacement) -> dict[str, Any]:
    image = placement.inputs.payload.image
    component = Component(
        name=PROGRAM,
        image=image,
        flags=("start", *CLUSTER_VERSION_OPERATOR.command_line(placement)),
        files=(HostFile("kubeconfig", _KUBECONFIG), HostFile("ssl-certs", _TRUSTED, "Directory")),
        probes={},
        cpu="20m",
        memory="50Mi",
        grace_seconds=_GRACE_SECONDS,
        # The release image begins with the operator.
        command=(),
        environment=CLUSTER_VERSION_OPERATOR.variables(placement),
        is_privileged=True,
    )
    place = Place(f"{PROGRAM}-bootstrap", "openshift-cluster-version", {"k8s-app": PROGRAM})
    return static_pod(component, place=place)
