"""What the doctor says of one thing that is wrong, and what it finds in artifacts and in the record."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.checks.check import Finding, Outcome
from umbilical.hardway.explain.library import stage_of
from umbilical.hardway.judges.exposure import exposed
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lint.catalogue import RULES, judge
from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.artifact_stages import is_swept
from umbilical.hardway.state import PipelineState, StageStatus
from umbilical.hardway.waiting import KnownFailure
from umbilical.manifests.tree import Asset


@dataclass(frozen=True)
class Diagnosis:
    id: str
    """Of a rule, a check, a code or a signal."""
    hop: str
    """Where on the way it is: a file, the load balancer, etcd of a node."""
    what: str
    why: str
    """What was seen."""
    remedy: str
    lesson: str = ""
    """The lesson whose fault looks like this."""

    def __str__(self) -> str:
        known = f" (known as {self.lesson}: umbilical explain {self.lesson})" if self.lesson else ""
        return f"{self.id} {self.hop}: {self.what}\n  why: {self.why}\n  next: {self.remedy}{known}"


def lesson_of(rule: str, evidence: str) -> str:
    """Name the lesson that a rule's complaint reminds of; empty if none."""
    found = (one.id for one in LESSONS if rule in one.rules and re.search(one.sign, evidence))
    return next(found, "")


def lesson_live(evidence: str) -> str:
    """The same for what was seen on machines."""
    found = (one.id for one in LESSONS if one.live is not None and re.search(one.live.sign, evidence))
    return next(found, "")


def hinted(evidence: str, remedy: str, signatures: Iterable[KnownFailure]) -> str:
    """Put what is known of such a failure before the usual remedy."""
    hints: Sequence[str] = [one.hint for one in signatures if re.search(one.pattern, evidence)]
    return f"{hints[0]}; then {remedy}" if hints else remedy


def examine_record(
    stages: Sequence[Stage], state: PipelineState, signatures: Sequence[KnownFailure], *, is_locked: bool
) -> Iterator[Diagnosis]:
    """Tell of stages that ended badly. `is_locked`: somebody works on it, so that nothing was killed."""
    for stage in stages:
        record = state.stage(stage.number)
        if record.status is StageStatus.FAILED and record.failure is not None:
            yield _failed(stage, record.failure, signatures)
        elif record.status is StageStatus.INTERRUPTED or (record.status is StageStatus.RUNNING and not is_locked):
            what, why = "it was ended before its end", "the record says that it began, and not what it came to"
            yield Diagnosis(record.status.value, stage_hop(stage), what, why, "umbilical stage run goes on from there")


def _failed(stage: Stage, failure: Mapping[str, str], signatures: Sequence[KnownFailure]) -> Diagnosis:
    why = failure.get("why", "")
    remedy = hinted(why, failure.get("next", f"umbilical stage retry {stage.number}"), signatures)
    return Diagnosis(
        failure.get("code", ""), stage_hop(stage), failure.get("what", "it failed"), why, remedy, lesson_live(why)
    )


def stage_hop(stage: Stage) -> str:
    return f"stage {stage.number:02} {stage.name}"


MAX_NAMED: Final = 3
HOP: Final = "artifacts"
DRIFT: Final = "ART"


def examine_artifacts(site: Site, on_disk: Mapping[str, Asset]) -> list[Diagnosis]:
    """Judge what lies on disk; nothing is wrong with what no stage has written yet."""
    if not on_disk:
        return []
    assets = judged(site, on_disk)
    facts = Facts(site.cluster, assets, site.now(), site.has_tunnel, exposed(site.folder, site.cluster, assets))
    rules = [rule for rule in RULES if site.cluster.profile in rule.profiles]
    found = [_diagnosis(finding) for finding in judge(facts, rules) if finding.outcome is Outcome.FAILED]
    # What is known by name comes first: often it is the cause of the others.
    found.sort(key=lambda one: not one.lesson)
    return found or list(_drift(site, assets, on_disk))


def judged(site: Site, on_disk: Mapping[str, Asset]) -> dict[str, Asset]:
    """Take files as they lie there; of stages that wrote none yet, as they would be."""
    unwritten = {
        path: site.assets[path]
        for paths in site.files.values()
        if not any(path in on_disk for path in paths)
        for path in paths
    }
    return {**unwritten, **{path: on_disk[path] for path in on_disk if path in site.assets or is_swept(path)}}


def _diagnosis(finding: Finding) -> Diagnosis:
    lesson = lesson_of(finding.id, finding.evidence)
    hop = f"{HOP} of stage {stage_of(finding.id):02}"
    return Diagnosis(finding.id, hop, f"not so: {finding.title}", finding.evidence, finding.fix, lesson)


def _drift(site: Site, assets: Mapping[str, Asset], on_disk: Mapping[str, Asset]) -> Iterator[Diagnosis]:
    changed = [path for path in sorted(site.assets) if path in on_disk and on_disk[path] != site.assets[path]]
    missing = [path for path in sorted(site.assets) if path not in assets]
    left = [path for path in sorted(on_disk) if path not in site.assets and is_swept(path)]
    told = [
        f"{_listed(paths)} {word}"
        for paths, word in ((changed, "changed"), (missing, "missing"), (left, "left over"))
        if paths
    ]
    if told:
        what = "files are not as the config and the keys render them, and no rule says which way is right"
        yield Diagnosis(
            DRIFT, HOP, what, "; ".join(told), "umbilical stage plan shows it, umbilical stage run mends it"
        )


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more
