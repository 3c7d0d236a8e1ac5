"""What artifacts have to say of themselves: the words beside every table of this room, and the rules of the lint."""

from typing import Final

from umbilical.hardway.artifacts import certificates, kubeadmin, kubeconfigs, release
from umbilical.hardway.artifacts.infrastructure import topics as infrastructure
from umbilical.hardway.artifacts.machine_config import commands, inputs_directory
from umbilical.hardway.artifacts.manifests import catalogue as manifests
from umbilical.hardway.artifacts.nodes import topics as nodes
from umbilical.hardway.artifacts.static_pods import topics as static_pods
from umbilical.hardway.explain.entry import Entry, EntryKind, from_topic, sentence
from umbilical.hardway.explain.rule_lines import BY_HAND, stage_of
from umbilical.hardway.explain.topic import Topic
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.lint.rule import Rule

TOPICS: Final[tuple[Topic, ...]] = (
    *infrastructure.TOPICS,
    *release.TOPICS,
    *commands.TOPICS,
    *inputs_directory.TOPICS,
    *certificates.TOPICS,
    *kubeconfigs.TOPICS,
    *kubeadmin.TOPICS,
    *static_pods.TOPICS,
    *manifests.TOPICS,
    *nodes.TOPICS,
)
_ALIASES: Final = {"domains": ("domains/*.xml",)}
"""Topics that tell of a whole directory."""


def entries() -> tuple[Entry, ...]:
    """List every file, certificate, flag and rule, in the order of their tables."""
    told = (from_topic(topic, _ALIASES.get(topic.name, ())) for topic in TOPICS)
    return (*told, *map(_rule, RULES))


def _rule(rule: Rule) -> Entry:
    check, stage = rule.check, stage_of(rule.id)
    profiles = " and ".join(sorted(profile.value for profile in rule.profiles))
    return Entry(
        kind=EntryKind.RULE,
        name=rule.id,
        what=sentence(check.title),
        stage=stage,
        scope=f"{rule.severity.value} for {profiles}",
        readers=f"umbilical stage lint, umbilical stage doctor, and stage {stage:02} among its checks.",
        without=sentence(check.why),
        by_hand=BY_HAND[rule.id],
        fix=check.fix,
    )
