"""Diagnoses of `stage doctor`, and those of artifacts and of the record."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.checks.check import Finding, Outcome
from umbilical.hardway.explain.library import stage_of
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lint.catalogue import RULES, judge
from umbilical.hardway.lint.facts import LintFacts
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage
from umbilical.hardway.stages.artifact_stages import is_swept
from umbilical.hardway.state import RunState, StageStatus
from umbilical.hardway.validators.exposure import exposed
from umbilical.hardway.waiting import KnownFailure
from umbilical.manifests.tree import Asset


@dataclass(frozen=True)
class Diagnosis:
    id: str
    """Id of a rule, a check, an error code or a signal."""
    hop: str
    """Where the problem is: a file, the load balancer, etcd of a node."""
    what: str
    why: str
    """The evidence."""
    remedy: str
    lesson: str = ""
    """Lesson with the same symptom."""

    def __str__(self) -> str:
        known = f" (same symptom as lesson {self.lesson}: umbilical explain {self.lesson})" if self.lesson else ""
        return f"{self.id} {self.hop}: {self.what}\n  why: {self.why}\n  next: {self.remedy}{known}"


def lesson_of(rule: str, evidence: str) -> str:
    """Return the lesson that matches the evidence of a lint rule; empty if none."""
    found = (one.id for one in LESSONS if rule in one.rules and re.search(one.sign, evidence))
    return next(found, "")


def lesson_live(evidence: str) -> str:
    """The same for evidence from machines."""
    found = (one.id for one in LESSONS if one.live is not None and re.search(one.live.sign, evidence))
    return next(found, "")


def hinted(evidence: str, remedy: str, known_failures: Iterable[KnownFailure]) -> str:
    """Put the hint of a known failure before the usual remedy."""
    hints: Sequence[str] = [one.hint for one in known_failures if re.search(one.pattern, evidence)]
    return f"{hints[0]}; then {remedy}" if hints else remedy


def examine_record(
    stages: Sequence[Stage],
    state: RunState,
    known_failures: Callable[[Stage], Sequence[KnownFailure]],
    *,
    is_locked: bool,
) -> Iterator[Diagnosis]:
    """Diagnose failed and killed stages. `is_locked`: a run is in progress, so a running stage was not killed."""
    for stage in stages:
        record = state.stage(stage.number)
        if record.status is StageStatus.FAILED and record.failure is not None:
            yield _failed(stage, record.failure, known_failures(stage))
        elif record.status is StageStatus.INTERRUPTED or (record.status is StageStatus.RUNNING and not is_locked):
            what, why = "the stage was interrupted", "the record has its start and no result"
            yield Diagnosis(record.status.value, stage_hop(stage), what, why, "umbilical stage run resumes it")


def _failed(stage: Stage, failure: Mapping[str, str], known_failures: Sequence[KnownFailure]) -> Diagnosis:
    why, what = failure.get("why", ""), failure.get("what", "the stage failed")
    remedy = hinted(why, failure.get("next", f"umbilical stage retry {stage.number}"), known_failures)
    return Diagnosis(failure.get("code", ""), stage_hop(stage), what, why, remedy, lesson_live(why))


def stage_hop(stage: Stage) -> str:
    return f"stage {stage.number:02} {stage.name}"


MAX_NAMED: Final = 3
HOP: Final = "artifacts"
DRIFT: Final = "ART"


def examine_artifacts(site: Site, on_disk: Mapping[str, Asset]) -> list[Diagnosis]:
    """Check the files on disk; files that no stage has written yet are not reported."""
    if not on_disk:
        return []
    assets = files_to_check(site, on_disk)
    facts = LintFacts(site.cluster, assets, site.now(), site.has_tunnel, exposed(site.folder, site.cluster, assets))
    rules = [rule for rule in RULES if site.cluster.profile in rule.profiles]
    found = [_diagnosis(finding) for finding in judge(facts, rules) if finding.outcome is Outcome.FAILED]
    # Known failures first: they often cause the others.
    found.sort(key=lambda one: not one.lesson)
    return found or list(_drift(site, assets, on_disk))


def files_to_check(site: Site, on_disk: Mapping[str, Asset]) -> dict[str, Asset]:
    """Return the files on disk, and the rendered files of stages that have written none yet."""
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
    return Diagnosis(finding.id, hop, f"check failed: {finding.title}", finding.evidence, finding.fix, lesson)


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
        what = "files differ from what the config renders, and no lint rule reports an error in them"
        remedy = "umbilical stage plan shows the differences, umbilical stage run corrects them"
        yield Diagnosis(DRIFT, HOP, what, "; ".join(told), remedy)


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more
