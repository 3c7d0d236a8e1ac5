"""Stage 07: static pods, which kubelets run without an API, and the objects that the API is given once it answers."""

from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.artifact_stage import ArtifactStage

STAGE: Final[Stage] = ArtifactStage(
    7,
    "manifests",
    "write static pods and cluster manifests",
    groups=("CVO", "CRD", "FG", "ETC", "KP", "KN", "INF", "NET", "CC", "EE", "DNS", "ING", "MAN", "HO"),
    needs=(4, 5, 6),
    rules=("BK-03",),
)
TOPICS: Final = (
    Topic(
        TopicKind.STAGE,
        "07",
        7,
        "Writes the static pods of every node and, in the order in which they are applied, the first objects: "
        "namespaces, rights, CRDs, configuration, and all that operators take over from the bootstrap node.",
        "Kubelets read static pods from a directory; the apply engine of stage 10 reads the manifests.",
        "Without a FeatureGate that names the version the cluster-version operator restarts for ever; without the "
        "hand-off objects operators make signers of their own, and nobody trusts anybody.",
        "kubectl apply --dry-run=client -f artifacts/manifests/",
        "Runs the `render` command of each operator on the bootstrap node, and cluster-bootstrap applies what they "
        "print.",
    ),
)
