"""Stage 08: one Ignition config for each node, with all that it needs at its first boot."""

from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.artifact_stage import ArtifactStage

STAGE: Final[Stage] = ArtifactStage(
    8,
    "ignition",
    "write an Ignition config for every node",
    groups=("IGN", "CRIO", "SE", "AU"),
    needs=(4, 5, 6, 7),
    rules=("BK-01", "BK-02"),
)
TOPICS: Final = (
    Topic(
        TopicKind.STAGE,
        "08",
        8,
        "Writes ignition/<node>.ign: host name, network, keys, static pods, kubelet and their units, merged by path "
        "onto a rendered machine config, or onto a small base of our own where there is none.",
        "Ignition, in the first seconds of a machine's first boot, and never again.",
        "A path that is written twice stops the boot (`duplicate entry defined`); a missing kubelet-ca.crt stops the "
        "kubelet; a keyfile that others may read is ignored by NetworkManager.",
        "jq -r '.storage.files[].path' artifacts/ignition/bootstrap.ign | sort",
        "Writes bootstrap.ign whole; masters and workers get a pointer, and the machine-config server the rest.",
    ),
)
