"""The cluster-version operator on the bootstrap node, which starts after CRDs and FeatureGate exist."""

from typing import Any, Final

from umbilical.hardway.artifacts.static_pods.placement import VERBOSITY, FlagRow, PodPlacement, ProgramFlags, kubeconfig
from umbilical.hardway.config.cluster import API_PORT
from umbilical.manifests.static_pod import HostFile, PodComponent, PodMetadata, static_pod

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
            "release to install, by digest; the same as the pod's image",
            "with a tag, it reports another desired image than the operator in the cluster, which then updates itself",
        ),
        FlagRow("enable-auto-update", "false", "no update during the installation", "it may choose a new release"),
        FlagRow(
            "kubeconfig", _KUBECONFIG, "how it connects to the API: by localhost", "it needs a service account token"
        ),
        FlagRow(
            "listen",
            "",
            "empty: no metrics port, because its certificate does not exist yet",
            "it exits: --listen was not set empty, so --serving-cert-file must be set",
        ),
        VERBOSITY,
    ),
    "the operator's own render command writes the pod to bootstrap-manifests; cluster-bootstrap starts it with the "
    "others, and it retries until the CRDs exist",
    (
        FlagRow(
            "KUBERNETES_SERVICE_HOST",
            "127.0.0.1",
            "API address for client libraries without a kubeconfig: no cluster IP works on this node",
            "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST must be defined",
        ),
        FlagRow(
            "KUBERNETES_SERVICE_PORT",
            str(API_PORT),
            "API port for KUBERNETES_SERVICE_HOST",
            "unable to load in-cluster configuration, KUBERNETES_SERVICE_PORT must be defined",
        ),
        FlagRow(
            "NODE_NAME",
            lambda placement: placement.node.id,
            "name of its node, for its events and status",
            "it cannot find its node's name, because its standalone kubelet has no Node object",
        ),
        FlagRow(
            "CLUSTER_PROFILE",
            CLUSTER_PROFILE,
            "selects the manifests of the release, which name their profiles in an annotation",
            "it exits, or applies manifests for other cluster profiles",
        ),
    ),
)


def cluster_version_operator_pod(placement: PodPlacement) -> dict[str, Any]:
    image = placement.inputs.payload.image
    component = PodComponent(
        name=PROGRAM,
        image=image,
        flags=("start", *CLUSTER_VERSION_OPERATOR.command_line(placement)),
        files=(HostFile("kubeconfig", _KUBECONFIG), HostFile("ssl-certs", _TRUSTED, "Directory")),
        probes={},
        cpu="20m",
        memory="50Mi",
        grace_seconds=_GRACE_SECONDS,
        # The release image's entrypoint is the operator.
        command=(),
        environment=CLUSTER_VERSION_OPERATOR.variables(placement),
        is_privileged=True,
    )
    place = PodMetadata(f"{PROGRAM}-bootstrap", "openshift-cluster-version", {"k8s-app": PROGRAM})
    return static_pod(component, place=place)
