from pathlib import Path

import pytest
from tests.support.fault_scene import MemoryScene, fault, open_everywhere

from umbilical.cli import main
from umbilical.lab.faults.repair import break_fault


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> MemoryScene:
    """A lab in which two things are broken."""
    scene = open_everywhere(monkeypatch)
    for name in ("zzz-first", "aaa-second"):
        break_fault(scene, fault(name))
    return scene


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_everything_is_mended_the_last_first(
    scene: MemoryScene, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["lab", "mend", *more]) == 0
    told = capsys.readouterr().out
    assert told.index("aaa-second is mended") < told.index("zzz-first is mended")
    assert scene.memory.broken == {}
    assert main.run(["lab", "mend"]) == 0
    assert capsys.readouterr().out == "nothing is broken\n"


def test_one_fault_is_mended_by_its_name(scene: MemoryScene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "mend", "zzz-first"]) == 0
    assert "still broken: aaa-second" in capsys.readouterr().out
    assert list(scene.memory.broken) == ["aaa-second"]
    assert main.run(["lab", "mend", "zzz-first"]) != 0
    assert capsys.readouterr().err.startswith("UMB863")


def test_a_name_and_all_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "mend", "--all", "agent-kill"]) == 2
    assert capsys.readouterr().err.startswith("UMB001")


def test_without_a_lab_there_is_nothing_to_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "mend", "--dir", str(tmp_path / "none")]) != 0
    assert capsys.readouterr().err.startswith("UMB815")
