"""Stage 05: keys and certificates, every one of them from one table."""

from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.artifact_stage import ArtifactStage

STAGE: Final[Stage] = ArtifactStage(5, "pki", "make keys and certificates", groups=("PKI",))
TOPICS: Final = (
    Topic(
        TopicKind.STAGE,
        "05",
        5,
        "Writes every signer, certificate and key pair of the cluster below tls/. Each signer signs itself and has one "
        "purpose, so that trust in one of them is trust in nothing else. Keys stay as they are until `stage rotate`.",
        "etcd, kube-apiserver, the other control-plane programs, kubelets and administrators; and the operators, which "
        "take some signers over.",
        "etcd refuses its peers (`tls: bad certificate`), kubelets and tokens are unknown to the masters after the "
        "pivot, or a program calls an address that no certificate names.",
        "openssl verify -purpose sslserver -CAfile artifacts/tls/etcd-signer.crt "
        "artifacts/tls/etcd-serving-bootstrap.crt",
        "Makes the same signers in memory, writes them into bootstrap.ign and keeps them in its state file.",
    ),
)
