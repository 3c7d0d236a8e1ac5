"""Stage 09: the bootstrap machine gets its operating system and its Ignition config."""

from collections.abc import Sequence
from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.looking import Sight
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.stages.live import PassingStage, install_step, installed_sight

TOPIC: Final = Topic(
    TopicKind.STAGE,
    "09",
    9,
    "Puts the operating system and bootstrap.ign onto the bootstrap machine and boots it. Masters follow when its API "
    "is healthy (11), workers after the pivot (14): a node that boots too early only waits.",
    "Ignition, once, in the first boot.",
    "Everything: without a bootstrap node there is no API that masters could register with.",
    "ssh core@BOOTSTRAP cat /etc/.ignition-result.json; journalctl -u ignition-files",
    "The installer uploads bootstrap.ign to where the cloud's machine fetches it from; on bare metal it makes a "
    "virtual machine of its own for it.",
)


def _steps(site: Site) -> Sequence[Step]:
    return [install_step(site, site.cluster.bootstrap)]


def _sights(site: Site) -> Sequence[Sight]:
    return [installed_sight(site.cluster.bootstrap)]


STAGE: Final = PassingStage(
    number=9,
    name="install",
    title="boot the bootstrap machine",
    needs=(2, 8),
    topic=TOPIC,
    make_steps=_steps,
    make_sights=_sights,
    nodes=lambda site: (site.cluster.bootstrap,),
)
