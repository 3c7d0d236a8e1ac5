"""All explanations of the hard way, and the pages that are made of them.

The texts stand beside the code: artifacts, rules, stages, conditions of the pivot, lessons. Pages add headings only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from umbilical.checks.check import Check
from umbilical.hardway.artifacts.infrastructure.places import SERVICE_PLACES
from umbilical.hardway.explain import library
from umbilical.hardway.explain.entry import Entry, EntryKind, body, from_topic, prose, sentence
from umbilical.hardway.explain.library import stage_of
from umbilical.hardway.judges.bench import Bench
from umbilical.hardway.judges.catalogue import JUDGES
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.catalogue import entries as lessons
from umbilical.hardway.lessons.lesson import Lesson
from umbilical.hardway.pivot_conditions import CONDITIONS
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Sight, Stage, Step
from umbilical.hardway.stages import catalogue
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.waiting import Signature

PIVOT: Final = 13
_LINES: Final = {
    "P1": "kubectl get nodes -o wide",
    "P2": "etcdctl member list -w table; etcdctl endpoint health --cluster",
    "P3": "kubectl --server=https://MASTER:6443 get --raw '/readyz?verbose'",
    "P4": "kubectl --server=https://MASTER:6443 -n kube-system get configmap umbilical-nonce -o jsonpath={.data.nonce}",
    "P5": "kubectl --server=https://BOOTSTRAP:6443 create token default; kubectl "
    "--server=https://MASTER:6443 --token=TOKEN auth whoami",
    "P6": "kubectl --server=https://MASTER:6443 auth whoami; on a master: kubectl "
    "--kubeconfig=/var/lib/kubelet/kubeconfig --server=https://MASTER:6443 get nodes",
    "P7": f"echo 'show stat' | socat - {SERVICE_PLACES.stats_socket} | cut -d, -f1,2,18,37",
    "P8": "kubectl --server=https://MASTER:6443 create --dry-run=server -f OBJECT-OF-THE-WEBHOOK",
}
_RECORD: Final = (
    Entry(
        EntryKind.FILE,
        "cluster.yaml",
        "The one file that a person writes: profile, names, networks, nodes, release. All else follows from it.",
        stage=1,
        readers="Every command of `umbilical stage` and `umbilical config`.",
        without="UMB701: there is no cluster.yaml in the directory.",
        by_hand="umbilical config view --origin --dir DIR",
        installer="install-config.yaml, which the installer consumes: it is gone afterwards, unless a copy was kept.",
    ),
    Entry(
        EntryKind.FILE,
        "state.json",
        "How far a cluster is: every stage with its status, the hashes of what it was made from, what its checks saw, "
        "and the inverse of every side effect. No secrets.",
        stage=1,
        readers="Stage run, which goes on from it; stage list, status, rollback and doctor.",
        without="It is made again from the journal beside it; without both nothing tells what was made (UMB722).",
        by_hand="jq '.stages | map_values(.status)' .umbilical/state.json",
        installer=".openshift_install_state.json, with every asset in it; it knows no stages and no inverses.",
    ),
    Entry(
        EntryKind.FILE,
        "events.jsonl",
        "Everything that happened, one line each, written before it is done. Only ever added to.",
        stage=1,
        readers="Whoever resumes after a kill; umbilical stage watch.",
        without="A killed run could not say which of its side effects were made.",
        by_hand="tail -n 20 .umbilical/events.jsonl | jq -c .",
        installer=".openshift_install.log is for people; nothing is read back from it.",
    ),
    Entry(
        EntryKind.FILE,
        "identity.json",
        "What was drawn at random once for this cluster: its id, its infrastructure name, the first password.",
        stage=1,
        readers="Whatever renders artifacts: the same every time.",
        without="A cluster rendered anew would be another one, with another id and another password.",
        by_hand="stat -c '%a %n' .umbilical/identity.json",
        installer="The same values lie in .openshift_install_state.json.",
    ),
)


@cache
def entries() -> tuple[Entry, ...]:
    """List everything that can be explained, apart from the codes of errors, which belong to the command line."""
    return (
        *_stages(),
        *library.entries(),
        *map(_judge, JUDGES),
        *_RECORD,
        *map(_condition, CONDITIONS),
        *lessons(),
    )


def _stages() -> list[Entry]:
    named = {f"{stage.number:02}": stage for stage in catalogue.stages()}
    return [from_topic(topic, _names(named[topic.name])) for topic in catalogue.topics() if topic.name in named]


def _names(stage: Stage) -> tuple[str, ...]:
    return (str(stage.number), stage.name, f"stage {stage.number:02}", f"stage {stage.number}")


def _judge(check: Check[Bench]) -> Entry:
    """A rule that another program knows."""
    return Entry(
        EntryKind.RULE,
        check.id,
        sentence(check.title),
        scope="if the program is there",
        readers="umbilical stage lint, unless --no-judges is given.",
        without=sentence(check.why),
        by_hand=f"umbilical stage lint --only {check.id} --dir DIR",
        fix=check.fix,
    )


def _condition(sight: Sight) -> Entry:
    return Entry(
        EntryKind.CONDITION,
        sight.id,
        sentence(sight.title),
        stage=PIVOT,
        scope="before the pivot, twice",
        readers="stage 13: with one that does not hold nothing is changed (UMB745).",
        without=sentence(sight.why),
        by_hand=_LINES[sight.id],
        installer="It waits for conditions of the etcd operator and for revisions of static pods, which is less.",
        fix=sight.fix,
    )


INDEX: Final = "README.md"
NOTE: Final = "<!-- Made by `python tools/hardway_docs.py` from the texts that stand beside the code. -->"
_AT_LENGTH: Final = {EntryKind.FILE: "Files", EntryKind.CERTIFICATE: "Certificates", EntryKind.CONDITION: "Conditions"}


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
            for sight in stage.make_sights(site):
                told = f"{sentence(sight.title)} {sentence(sight.why)}"
                known.setdefault(sight.id, (told, []))[1].append(profile)
        lines = [f"- `{name}`{_only(profiles, self.sites)}: {prose(text)}" for name, (text, profiles) in known.items()]
        yield "## Done means\n\n" + "\n".join(lines)

    def _failures(self, stage: Stage) -> Iterator[str]:
        if not isinstance(stage, LiveStage):
            return
        sights = [sight for site in self.sites.values() for sight in stage.make_sights(site)]
        found: list[Signature] = list(dict.fromkeys(one for sight in sights for one in sight.signatures))
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


def _entry(stage: Stage) -> Entry:
    name = f"{stage.number:02}"
    return next(one for one in entries() if one.kind is EntryKind.STAGE and one.name == name)


def _told(stage: Stage) -> Iterator[str]:
    """Say everything that stands in a stage's page: files and certificates at length, flags and rules briefly."""
    mine = [one for one in entries() if one.stage == stage.number]
    for kind, heading in _AT_LENGTH.items():
        chosen = [one for one in mine if one.kind is kind]
        if chosen:
            yield f"## {heading}\n\n" + "\n".join(f"### `{one.name}`\n\n{body(one)}" for one in chosen)
    yield from _flags([one for one in mine if one.kind is EntryKind.FLAG])
    yield from _rules([one for one in mine if one.kind is EntryKind.RULE])


def _flags(entries: Sequence[Entry]) -> Iterator[str]:
    if entries:
        lines = (
            f"- **`{one.name}`** ({prose(one.readers.rstrip('.'))}): {prose(one.what)} *Without:* {prose(one.without)}"
            for one in entries
        )
        yield f"## Flags\n\nOne of them by hand:\n\n```console\n$ {entries[0].by_hand}\n```\n\n" + "\n".join(lines)


def _rules(entries: Sequence[Entry]) -> Iterator[str]:
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
