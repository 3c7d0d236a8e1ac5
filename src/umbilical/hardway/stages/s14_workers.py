"""Stage 14: workers boot, against a cluster that stands on its own."""

from collections.abc import Sequence
from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.looking import Sight
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.stages.live import LiveStage, install_step, installed_sight

TOPIC: Final = Topic(
    TopicKind.STAGE,
    "14",
    14,
    "Boots the workers. They come after the pivot, so that nothing they hold on to goes away under them.",
    "Ignition on each worker; then its kubelet, which asks for a certificate.",
    "Ingress and most workloads have no place to run.",
    "kubectl get csr -w; ssh core@WORKER journalctl -u kubelet",
    "Machine sets make workers through the cloud's API; on platform none people boot them themselves.",
)


def _steps(site: Site) -> Sequence[Step]:
    return [install_step(site, node) for node in site.cluster.workers]


def _sights(site: Site) -> Sequence[Sight]:
    return [installed_sight(node) for node in site.cluster.workers]


STAGE: Final = LiveStage(
    number=14,
    name="workers",
    title="boot the workers",
    needs=(8, 13),
    topic=TOPIC,
    make_steps=_steps,
    make_sights=_sights,
    nodes=lambda site: site.cluster.workers,
)
