"""`umbilical stage` with made-up stages: same commands, same record, no waiting."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support import hardway_config
from tests.support.commands import Run, Told
from tests.support.made_up_stages import UNMARK, MadeUpStage, World, make_site

from umbilical.cli.stage import cluster
from umbilical.hardway.explain.entry import Topic, TopicKind
from umbilical.hardway.site import Site
from umbilical.hardway.stages import catalogue
from umbilical.hardway.undoing import UNDOERS
from umbilical.hardway.waiting import Reporter


class Commands:
    def __init__(self, folder: Path, umbilical: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.umbilical = umbilical
        (folder / "cluster.yaml").write_bytes(hardway_config.content("kubernetes"))
        self.world = World()
        self.stages: Sequence[MadeUpStage] = [
            MadeUpStage(1, self.world, ("a",)),
            MadeUpStage(2, self.world, ("b", "c"), needs=(1,)),
            MadeUpStage(3, self.world, ("d",), needs=(2,)),
        ]
        monkeypatch.setattr(catalogue, "stages", lambda: tuple(self.stages))
        monkeypatch.setattr(catalogue, "undoers", lambda: {**UNDOERS, UNMARK: self.world.unmark})
        monkeypatch.setattr(catalogue, "topics", lambda: tuple(_topic(stage) for stage in self.stages))
        monkeypatch.setattr(cluster, "load_site", self._site)

    def __call__(self, command: str, *arguments: object, status: int = 0) -> Told:
        return self.umbilical("stage", command, "--dir", self.folder, *arguments, status=status)

    def _site(self, folder: Path, reporter: Reporter) -> Site:
        return make_site(folder, reporter=reporter)


def _topic(stage: MadeUpStage) -> Topic:
    words = ("What it is.", "Its readers.", "What breaks.", "touch it", "Does the same.")
    return Topic(TopicKind.STAGE, f"{stage.number:02}", stage.number, *words)


def raising(fault: Exception) -> Callable[[str], None]:
    """For a stage's `before_act`: it fails with this."""

    def act(name: str) -> None:
        raise fault

    return act
