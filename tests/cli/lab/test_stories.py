"""`umbilical lab run`, `break`, `mend` and `list`, and what stories on the command line share."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fault_scene import MemoryScene, fault, open_everywhere
from tests.support.fixture_types import Captured, Patch

from umbilical.cli import main
from umbilical.cli.lab.options import chosen_directory, chosen_name
from umbilical.cli.lab.run import check_report, play, tell_kept
from umbilical.codes import USAGE
from umbilical.fault import LabError
from umbilical.lab import rehearsal
from umbilical.lab.faults import registry as faults
from umbilical.lab.faults.repair import break_fault
from umbilical.lab.lab import down
from umbilical.lab.rehearsal import Rehearsal
from umbilical.lab.scenarios import scenario
from umbilical.lab.scenarios import scenario as scenarios
from umbilical.lab.scene import Verdict
from umbilical.lab.state import RunnerKind
from umbilical.lab.story import Call, Story

NAME = "webhook-through-tunnel"


def test_an_unknown_scenario_is_refused_in_three_lines(capsys: Captured, tmp_path: Path) -> None:
    assert main.run(["lab", "run", "webhook-trough-tunnel", "--dir", str(tmp_path / "lab")]) != 0
    said = capsys.readouterr().err
    assert said.startswith("UMB852 ")
    assert "did you mean webhook-through-tunnel?" in said
    assert not (tmp_path / "lab").exists()


def test_a_missing_binary_names_the_remedy_and_changes_nothing(
    capsys: Captured, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.run(["lab", "run", NAME, "--dir", str(tmp_path / "lab")]) != 0
    said = capsys.readouterr().err
    assert said.startswith("UMB824 ")
    assert "make peers GROUP=kubernetes" in said
    assert not (tmp_path / "lab").exists()


def test_a_directory_of_programs_that_is_not_there_is_refused(
    capsys: Captured, tmp_path: Path, monkeypatch: Patch
) -> None:
    for command in (["run", NAME], ["demo"], ["up"]):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert main.run(["lab", *command, "--bin-dir", str(tmp_path / "absent")]) == USAGE
        said = capsys.readouterr().err
        assert said.startswith("UMB001 ")
        assert "absent" in said
        assert not (tmp_path / "state").exists()


@pytest.mark.alone
@pytest.mark.real("unshare", "nsenter", "nft", "ss")
@pytest.mark.timeout(300)
def test_a_story_is_told_kept_and_reported_and_the_lab_is_then_taken(capfd: Captured, tmp_path: Path) -> None:
    place, report = tmp_path / "lab", tmp_path / "report.html"
    command = ["lab", "run", NAME, "--stand-in", "--keep", "--dir", str(place)]
    try:
        assert main.run([*command, "--report", str(report)]) == 0
        said = capfd.readouterr().out
        assert "the webhook in the cluster says no" in said
        assert f"lab break --dir {place} agent-kill" in said
        assert f"lab down --dir {place}" in said
        assert "the cut" not in said
        assert "<svg" in report.read_text()
        assert main.run(command) != 0
        assert capfd.readouterr().err.startswith("UMB854 ")
    finally:
        down(place)


@pytest.fixture
def scene(monkeypatch: Patch) -> MemoryScene:
    return open_everywhere(monkeypatch)


def test_it_tells_what_a_user_sees_who_says_it_and_how_to_mend_it(
    scene: MemoryScene, tmp_path: Path, capsys: Captured
) -> None:
    scene.verdict = Verdict(Call.UNREACHABLE, "No agent available")
    assert main.run(["lab", "break", "--dir", str(tmp_path), "agent-kill"]) == 0
    told = capsys.readouterr().out
    assert "agent-kill: it breaks" in told
    assert "a user would see: nothing works" in told
    assert "the call is unreachable: No agent available" in told
    assert "recognised by UMB302: " in told
    assert told.endswith(f"\nmend it with: umbilical lab mend --dir {tmp_path} agent-kill\n")


def test_what_cannot_be_broken_is_refused_before_a_story_begins(scene: MemoryScene, capsys: Captured) -> None:
    scene.memory.broken = {"agent-kill": {"number": 1, "memory": {}}}
    assert main.run(["lab", "break", "agent-kill"]) != 0
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("UMB862 agent-kill is broken already\n")


def test_without_a_lab_or_a_fault_there_is_nothing_to_break(tmp_path: Path, capsys: Captured) -> None:
    for arguments, code in ((["agent-kil"], "UMB860"), (["agent-kill"], "UMB815"), ([], "UMB001")):
        where: list[Any] = ["--dir", str(tmp_path / "none")]
        assert main.run(["lab", "break", *where, *arguments]) != 0
        assert capsys.readouterr().err.startswith(code)


@pytest.fixture
def broken(monkeypatch: Patch) -> MemoryScene:
    """A lab in which two things are broken."""
    broken = open_everywhere(monkeypatch)
    for name in ("zzz-first", "aaa-second"):
        break_fault(broken, fault(name))
    return broken


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_everything_is_mended_the_last_first(broken: MemoryScene, more: list[str], capsys: Captured) -> None:
    assert main.run(["lab", "mend", *more]) == 0
    told = capsys.readouterr().out
    assert told.index("aaa-second is mended") < told.index("zzz-first is mended")
    assert broken.memory.broken == {}
    assert main.run(["lab", "mend"]) == 0
    assert capsys.readouterr().out == "nothing is broken\n"


def test_one_fault_is_mended_by_its_name(broken: MemoryScene, capsys: Captured) -> None:
    assert main.run(["lab", "mend", "zzz-first"]) == 0
    assert "still broken: aaa-second" in capsys.readouterr().out
    assert list(broken.memory.broken) == ["aaa-second"]
    assert main.run(["lab", "mend", "zzz-first"]) != 0
    assert capsys.readouterr().err.startswith("UMB863")


def test_what_cannot_be_mended_is_refused(tmp_path: Path, capsys: Captured) -> None:
    for arguments, code in ((["--all", "agent-kill"], "UMB001"), (["--dir", str(tmp_path / "none")], "UMB815")):
        assert main.run(["lab", "mend", *arguments]) != 0
        assert capsys.readouterr().err.startswith(code)


def test_every_scenario_and_fault_is_listed_also_as_json(capsys: Captured) -> None:
    assert main.run(["lab", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in (*scenarios.names(), *faults.names()))
    assert main.run(["lab", "list", "-o", "json"]) == 0
    lists = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in lists["scenarios"]] == scenarios.names()
    assert [each["name"] for each in lists["faults"]] == faults.names()


def test_a_name_means_the_default_place_and_a_directory_wins(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert chosen_directory("other", None) == tmp_path / "umbilical/labs/other"
    assert chosen_name("other", None) == "other"
    monkeypatch.chdir(tmp_path)
    assert chosen_directory("lab", Path("here")) == tmp_path / "here"
    assert chosen_name("lab", Path("here")) == "here"
    with pytest.raises(LabError) as refused:
        chosen_directory("../elsewhere", None)
    assert refused.value.code == "UMB810"


def _wanted(directory: Path | None = None) -> Rehearsal:
    return Rehearsal(scenario.find("webhook-through-tunnel"), RunnerKind.PROCESS, directory=directory)


def test_a_report_may_lie_in_a_directory_that_is_yet_to_be_made(tmp_path: Path) -> None:
    assert check_report(tmp_path / "a/b/report.html") == tmp_path / "a/b/report.html"
    assert not (tmp_path / "a").exists()


def test_only_a_lab_with_a_tunnel_is_offered_for_breaking(capsys: Captured) -> None:
    tell_kept("--name one", has_tunnel=False)
    assert "lab break" not in capsys.readouterr().out
    tell_kept("--dir two", has_tunnel=True)
    shown = capsys.readouterr().out
    assert "lab break --dir two agent-kill" in shown
    assert "lab down --dir two" in shown


def test_a_scratch_directory_goes_with_the_story_however_it_ends(tmp_path: Path, monkeypatch: Patch) -> None:
    seen: list[Path] = []

    def fail(wanted: Rehearsal, story: Story) -> None:
        assert wanted.directory is not None
        seen.append(wanted.directory)
        raise LabError("UMB850", "waited in vain", "for this test", "none")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(rehearsal, "rehearse", fail)
    with pytest.raises(LabError):
        play(_wanted(), Story("a test"))
    assert seen[0].is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_named_is_the_rehearsals_to_remove(tmp_path: Path, monkeypatch: Patch) -> None:
    def interrupt(wanted: Rehearsal, story: Story) -> None:
        raise KeyboardInterrupt

    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(rehearsal, "rehearse", interrupt)
    with pytest.raises(KeyboardInterrupt):
        play(_wanted(tmp_path), Story("a test"))
    assert (tmp_path / "thesis.txt").exists()
