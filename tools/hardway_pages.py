"""The pages of docs/hardway/: one for each stage, and one that leads to them.

The texts stand beside the code, and `umbilical explain` tells the same ones; pages add headings only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.explain.entry import Explanation, ExplanationKind, body, prose, sentence
from umbilical.hardway.explain.library import stage_of
from umbilical.hardway.explaining import entries
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.lesson import Lesson
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, Step
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.waiting import KnownFailure

INDEX: Final = "README.md"
NOTE: Final = "<!-- Made by `python tools/hardway_docs.py` from the texts that stand beside the code. -->"
_AT_LENGTH: Final = {
    ExplanationKind.FILE: "Files",
    ExplanationKind.CERTIFICATE: "Certificates",
    ExplanationKind.CONDITION: "Conditions",
}


@dataclass(frozen=True)
class Book:
    stages: Sequence[Stage]
    sites: Mapping[str, Site]
    """Profile -> a site that only exists on paper: steps and checks are made from it, and never asked."""

    def files(self) -> dict[str, str]:
        """Make every page, by file name."""
        return {INDEX: self._index(), **{file_name(stage): self._page(stage) for stage in self.stages}}

    def _index(self) -> str:
        lines = [NOTE, "", "# The hard way, stage by stage", "", _ABOUT, ""]
        for stage in self.stages:
            entry = _entry(stage)
            lines.append(f"- [{stage.number:02} {stage.name}]({file_name(stage)}): {prose(entry.what)}")
        lines += ["", "## Lessons", "", _LESSONS, "", *(_lesson(one) for one in LESSONS)]
        return "\n".join(lines) + "\n"

    def _page(self, stage: Stage) -> str:
        parts = [
            f"{NOTE}\n\n# {stage.number:02} {stage.name}: {stage.title}\n\n{self._ways(stage)}\n",
            body(_entry(stage)),
            *self._steps(stage),
            *self._checks(stage),
            *_told(stage),
            *self._failures(stage),
            *_lessons(stage),
        ]
        return "\n".join(part.rstrip("\n") + "\n" for part in parts)

    def _ways(self, stage: Stage) -> str:
        """Links to the neighbours."""
        by_number = {one.number: one for one in self.stages}
        near = [by_number.get(stage.number - 1), None, by_number.get(stage.number + 1)]
        links = [f"[{one.number:02} {one.name}]({file_name(one)})" for one in near if one is not None]
        return " · ".join(
            [links[0], f"[all]({INDEX})", *links[1:]] if stage.number > 1 else [f"[all]({INDEX})", *links]
        )

    def _steps(self, stage: Stage) -> Iterator[str]:
        found = {profile: stage.steps(site) for profile, site in self.sites.items()}
        titles = [[(step.title, step.command) for step in steps] for steps in found.values()]
        is_alike = all(one == titles[0] for one in titles)
        for profile, steps in found.items():
            if steps:
                yield f"## Steps{'' if is_alike else f' in the {profile} profile'}\n\n{_listed(steps)}"
            if is_alike:
                return

    def _checks(self, stage: Stage) -> Iterator[str]:
        if not isinstance(stage, LiveStage):
            return
        known: dict[str, tuple[str, list[str]]] = {}
        for profile, site in self.sites.items():
            for condition in stage.make_conditions(site):
                told = f"{sentence(condition.title)} {sentence(condition.why)}"
                known.setdefault(condition.id, (told, []))[1].append(profile)
        lines = [f"- `{name}`{_only(profiles, self.sites)}: {prose(text)}" for name, (text, profiles) in known.items()]
        yield "## Done means\n\n" + "\n".join(lines)

    def _failures(self, stage: Stage) -> Iterator[str]:
        if not isinstance(stage, LiveStage):
            return
        conditions = [condition for site in self.sites.values() for condition in stage.make_conditions(site)]
        found: list[KnownFailure] = list(dict.fromkeys(one for condition in conditions for one in condition.signatures))
        if found:
            lines = [f"- seen `{one.pattern}`: {prose(one.hint)}" for one in found]
            yield "## Failures that are known\n\n" + "\n".join(lines)


_ABOUT: Final = (
    "One page for each stage: what it does, its steps with what one would type for them, what must hold when it is "
    "done, and every file, certificate, flag and rule that belongs to it. `umbilical explain NAME` tells the same; "
    "with `--dir DIR` the lines have the addresses and names of that cluster."
)
_LESSONS: Final = (
    "`umbilical stage break LESSON --dir DIR` puts one of these faults in; `umbilical stage doctor` recognises it, and "
    "`umbilical stage break --mend` puts everything back. What is wrong is told by `umbilical explain LESSON`."
)


def file_name(stage: Stage) -> str:
    return f"{stage.number:02}-{stage.name}.md"


def _entry(stage: Stage) -> Explanation:
    name = f"{stage.number:02}"
    return next(one for one in entries() if one.kind is ExplanationKind.STAGE and one.name == name)


def _told(stage: Stage) -> Iterator[str]:
    """Say everything that stands in a stage's page: files and certificates at length, flags and rules briefly."""
    mine = [one for one in entries() if one.stage == stage.number]
    for kind, heading in _AT_LENGTH.items():
        chosen = [one for one in mine if one.kind is kind]
        if chosen:
            yield f"## {heading}\n\n" + "\n".join(f"### `{one.name}`\n\n{body(one)}" for one in chosen)
    yield from _flags([one for one in mine if one.kind is ExplanationKind.FLAG])
    yield from _rules([one for one in mine if one.kind is ExplanationKind.RULE])


def _flags(entries: Sequence[Explanation]) -> Iterator[str]:
    if entries:
        lines = (
            f"- **`{one.name}`** ({prose(one.readers.rstrip('.'))}): {prose(one.what)} *Without:* {prose(one.without)}"
            for one in entries
        )
        yield f"## Flags\n\nOne of them by hand:\n\n```console\n$ {entries[0].by_hand}\n```\n\n" + "\n".join(lines)


def _rules(entries: Sequence[Explanation]) -> Iterator[str]:
    if entries:
        told = (
            f"### {one.name}\n\n{prose(one.what)} *({one.scope})*\n\n{prose(one.without)}\n\n"
            f"Fix: {prose(one.fix)}\n\n```console\n$ {one.by_hand}\n```\n"
            for one in entries
        )
        yield "## Rules of the lint\n\n" + "\n".join(told)


def _lessons(stage: Stage) -> Iterator[str]:
    mine = [one for one in LESSONS if stage_of(one.rules[0]) == stage.number]
    if mine:
        yield "## Lessons\n\n" + "\n".join(map(_lesson, mine))


def _lesson(lesson: Lesson) -> str:
    return f"- `{lesson.id}`: {prose(lesson.story)}"


def _listed(steps: Iterable[Step]) -> str:
    return "\n".join(f"1. {prose(step.title)}\n\n   ```console\n   $ {step.command}\n   ```\n" for step in steps)


def _only(profiles: Sequence[str], sites: Mapping[str, Site]) -> str:
    return "" if len(profiles) == len(sites) else f" ({', '.join(profiles)})"
