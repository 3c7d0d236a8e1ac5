from pathlib import Path
from typing import Any

import pytest
from tests.support.fault_scene import MemoryScene, open_everywhere

from umbilical.cli import main
from umbilical.lab.scene import Verdict
from umbilical.lab.story import Call


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> MemoryScene:
    return open_everywhere(monkeypatch)


def test_it_tells_what_a_user_sees_who_says_it_and_how_to_mend_it(
    scene: MemoryScene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.verdict = Verdict(Call.UNREACHABLE, "No agent available")
    assert main.run(["lab", "break", "--dir", str(tmp_path), "agent-kill"]) == 0
    told = capsys.readouterr().out
    assert "agent-kill: it breaks" in told
    assert "a user would see: nothing works" in told
    assert "the call is unreachable: No agent available" in told
    assert "recognised by UMB302: " in told
    assert told.endswith(f"\nmend it with: umbilical lab mend --dir {tmp_path} agent-kill\n")


def test_what_cannot_be_broken_is_refused_before_a_story_begins(
    scene: MemoryScene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.memory.broken = {"agent-kill": {"number": 1, "memory": {}}}
    assert main.run(["lab", "break", "agent-kill"]) != 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("UMB862 agent-kill is broken already\n")


@pytest.mark.parametrize(("arguments", "code"), [(["agent-kil"], "UMB860"), (["agent-kill"], "UMB815"), ([], "UMB001")])
def test_without_a_lab_or_a_fault_there_is_nothing_to_break(
    arguments: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where: list[Any] = ["--dir", str(tmp_path / "none")]
    assert main.run(["lab", "break", *where, *arguments]) != 0
    assert capsys.readouterr().err.startswith(code)
