"""Telling a scenario in a test, in a lab of its own, and looking at the machine before and after."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.lab.rehearsal import Rehearsal, rehearse
from umbilical.lab.runner import RunnerKind
from umbilical.lab.scenarios import registry
from umbilical.lab.story import Outcome, Story

KUBERNETES: Final = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler")
SECONDS: Final = 420
"""A story on two busy cores; the demo's own budget is a minute."""


@dataclass(frozen=True)
class Machine:
    """What a lab must leave as it was."""

    links: str
    routes: str
    mounts: str
    cgroups: frozenset[str]
    rules: str


def look_at_machine() -> Machine:
    def say(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout

    cgroups = Path("/sys/fs/cgroup")
    names = frozenset(str(path) for path in cgroups.glob("**/umbilical-*")) if cgroups.is_dir() else frozenset[str]()
    return Machine(
        links=say("ip", "-br", "link"),
        routes=say("ip", "route", "show", "table", "all"),
        mounts=Path("/proc/self/mounts").read_text(),
        cgroups=names,
        rules=say("nft", "list", "ruleset"),
    )


def tell(name: str, folder: Path, *, runner: RunnerKind = RunnerKind.PROCESS, stand_in: bool = False) -> Story:
    """Tell a scenario and return the story; every step ended well, and the machine is as it was."""
    before = look_at_machine()
    story = Story(name)
    rehearse(Rehearsal(registry.find(name), runner, stand_in=stand_in, directory=folder / "lab"), story)
    assert look_at_machine() == before
    assert [step.title for step in story.steps if step.outcome is not Outcome.DONE] == []
    return story


def evidence(story: Story) -> str:
    return "\n".join(line for step in story.steps for line in step.evidence)
