"""What is wrong with the files below artifacts/, as they lie there: rules of the lint, and what differs."""

from collections.abc import Iterator, Mapping
from typing import Final

from umbilical.checks.check import Finding, Outcome
from umbilical.hardway.doctor.diagnosis import Diagnosis, lesson_of
from umbilical.hardway.explain.rule_lines import stage_of
from umbilical.hardway.judges.exposure import exposed
from umbilical.hardway.lint.catalogue import RULES, judge
from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.site import Site
from umbilical.hardway.stages.artifact_files import SWEPT
from umbilical.manifests.tree import Asset

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
    return {**unwritten, **{path: on_disk[path] for path in on_disk if path in site.assets or _is_read(path)}}


def _is_read(path: str) -> bool:
    """Files that are left over count where whoever reads the directory takes all of it."""
    return path.partition("/")[0] in SWEPT


def _diagnosis(finding: Finding) -> Diagnosis:
    lesson = lesson_of(finding.id, finding.evidence)
    hop = f"{HOP} of stage {stage_of(finding.id):02}"
    return Diagnosis(finding.id, hop, f"not so: {finding.title}", finding.evidence, finding.fix, lesson)


def _drift(site: Site, assets: Mapping[str, Asset], on_disk: Mapping[str, Asset]) -> Iterator[Diagnosis]:
    changed = [path for path in sorted(site.assets) if path in on_disk and on_disk[path] != site.assets[path]]
    missing = [path for path in sorted(site.assets) if path not in assets]
    left = [path for path in sorted(on_disk) if path not in site.assets and _is_read(path)]
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
