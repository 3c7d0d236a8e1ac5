"""Stage 06: kubeconfigs, by which programs and people find the API and say who they are."""

from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.artifact_stage import ArtifactStage

STAGE: Final[Stage] = ArtifactStage(6, "kubeconfigs", "write the kubeconfigs", ("KC",), needs=(5,))
TOPICS: Final = (
    Topic(
        TopicKind.STAGE,
        "06",
        6,
        "Writes the kubeconfigs below auth/: for administrators from outside, for the bootstrap node's own programs on "
        "localhost, and the one by which a new kubelet asks for its first certificate.",
        "kubectl, kube-controller-manager, kube-scheduler, the cluster-version operator, and every kubelet once.",
        "A wrong server name ends in `x509: certificate is valid for ..., not ...`; programs of the bootstrap node "
        "that ask through the load balancer wait for an API that waits for them.",
        "kubectl --kubeconfig artifacts/auth/admin.kubeconfig config view --minify",
        "Makes four: for administrators outside and inside, a loopback one, and the kubelets'.",
    ),
)
