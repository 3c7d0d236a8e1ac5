"""`umbilical lab run`, `break`, `mend` and `list`, and their common functions."""

from pathlib import Path

import pytest
from tests.support.breakage_testbed import MemoryTestbed, breakage, open_everywhere
from tests.support.commands import Run
from tests.support.fixture_types import Captured, Patch

from umbilical.cli.lab.options import chosen_directory, chosen_name
from umbilical.cli.lab.run import check_report, play, print_kept
from umbilical.codes import USAGE
from umbilical.fault import LabError
from umbilical.lab import scenario_run
from umbilical.lab.breakages import registry as breakages
from umbilical.lab.breakages.repair import make_breakage
from umbilical.lab.lab import down
from umbilical.lab.scenario_run import ScenarioRun
from umbilical.lab.scenarios import scenario
from umbilical.lab.scenarios import scenario as scenarios
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import WebhookVerdict
from umbilical.lab.transcript import CallResult, Transcript

NAME = "webhook-through-tunnel"


def test_an_unknown_scenario_is_refused_in_three_lines(tmp_path: Path, umbilical: Run) -> None:
    said = umbilical("lab", "run", "webhook-trough-tunnel", "--dir", tmp_path / "lab", status=3).err
    assert said.startswith("UMB852 ")
    assert "did you mean webhook-through-tunnel?" in said
    assert not (tmp_path / "lab").exists()


def test_a_missing_binary_names_the_remedy_and_changes_nothing(
    tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", "/nowhere")
    said = umbilical("lab", "run", NAME, "--dir", tmp_path / "lab", status=4).err
    assert said.startswith("UMB824 ")
    assert "make peers GROUP=kubernetes" in said
    assert not (tmp_path / "lab").exists()


def test_a_directory_of_programs_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    for command in (["run", NAME], ["demo"], ["up"]):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        said = umbilical("lab", *command, "--bin-dir", tmp_path / "absent", status=USAGE).err
        assert said.startswith("UMB001 ")
        assert "absent" in said
        assert not (tmp_path / "state").exists()


@pytest.mark.real("unshare", "nsenter", "nft", "ss")
@pytest.mark.timeout(300)
def test_a_scenario_is_told_kept_and_reported_and_the_lab_is_then_taken(tmp_path: Path, umbilical: Run) -> None:
    place, report = tmp_path / "lab", tmp_path / "report.html"
    command = ["lab", "run", NAME, "--stand-in", "--keep", "--dir", str(place)]
    try:
        said = umbilical(*command, "--report", report).out
        assert "the webhook in the cluster says no" in said
        assert f"lab break --dir {place} agent-kill" in said
        assert f"lab down --dir {place}" in said
        assert "the cut" not in said
        assert "<svg" in report.read_text()
        assert umbilical(*command, status=3).err.startswith("UMB854 ")
    finally:
        down(place)


@pytest.fixture
def testbed(monkeypatch: Patch) -> MemoryTestbed:
    return open_everywhere(monkeypatch)


def test_it_tells_what_a_user_sees_who_says_it_and_how_to_mend_it(
    testbed: MemoryTestbed, tmp_path: Path, umbilical: Run
) -> None:
    testbed.verdict = WebhookVerdict(CallResult.UNREACHABLE, "No agent available")
    output = umbilical("lab", "break", "--dir", tmp_path, "agent-kill").out
    assert "agent-kill: it breaks" in output
    assert "what a user sees: nothing works" in output
    assert "the call is unreachable: No agent available" in output
    assert "reported with UMB302: " in output
    assert output.endswith(f"\nto repair it: umbilical lab mend --dir {tmp_path} agent-kill\n")


def test_what_cannot_be_broken_is_refused_before_a_scenario_begins(testbed: MemoryTestbed, umbilical: Run) -> None:
    testbed.memory.broken = {"agent-kill": {"number": 1, "memory": {}}}
    output = umbilical("lab", "break", "agent-kill", status=4)
    assert output.out == ""
    assert output.err.startswith("UMB862 agent-kill was not made again\n")


def test_without_a_lab_or_a_breakage_there_is_nothing_to_break(tmp_path: Path, umbilical: Run) -> None:
    for name, status, code in ((["agent-kil"], 3, "UMB860"), (["agent-kill"], 4, "UMB815"), ([], 2, "UMB001")):
        output = umbilical("lab", "break", "--dir", tmp_path / "none", *name, status=status)
        assert output.err.startswith(code)


@pytest.fixture
def broken(monkeypatch: Patch) -> MemoryTestbed:
    """A lab in which two things are broken."""
    broken = open_everywhere(monkeypatch)
    for name in ("zzz-first", "aaa-second"):
        make_breakage(broken, breakage(name))
    return broken


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_everything_is_mended_the_last_first(broken: MemoryTestbed, more: list[str], umbilical: Run) -> None:
    output = umbilical("lab", "mend", *more).out
    assert output.index("repair aaa-second") < output.index("repair zzz-first")
    assert broken.memory.broken == {}
    assert umbilical("lab", "mend").out == "nothing is broken\n"


def test_one_breakage_is_mended_by_its_name(broken: MemoryTestbed, umbilical: Run) -> None:
    assert "remaining breakages: aaa-second" in umbilical("lab", "mend", "zzz-first").out
    assert list(broken.memory.broken) == ["aaa-second"]
    assert umbilical("lab", "mend", "zzz-first", status=3).err.startswith("UMB863")


def test_what_cannot_be_mended_is_refused(tmp_path: Path, umbilical: Run) -> None:
    assert umbilical("lab", "mend", "--all", "agent-kill", status=2).err.startswith("UMB001")
    assert umbilical("lab", "mend", "--dir", tmp_path / "none", status=4).err.startswith("UMB815")


def test_every_scenario_and_breakage_is_listed_also_as_json(umbilical: Run) -> None:
    shown = umbilical("lab", "list").out
    assert all(f"  {name} " in shown for name in (*scenarios.names(), *breakages.names()))
    lists = umbilical("lab", "list", "-o", "json").json()
    assert [each["name"] for each in lists["scenarios"]] == scenarios.names()
    assert [each["name"] for each in lists["faults"]] == breakages.names()


def test_a_name_means_the_default_place_and_a_directory_wins(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert chosen_directory("other", None) == tmp_path / "umbilical/labs/other"
    assert chosen_name("other", None) == "other"
    monkeypatch.chdir(tmp_path)
    assert chosen_directory("lab", Path("here")) == tmp_path / "here"
    assert chosen_name("lab", Path("here")) == "here"
    with pytest.raises(LabError, match="UMB810"):
        chosen_directory("../elsewhere", None)


def _wanted(directory: Path | None = None) -> ScenarioRun:
    return ScenarioRun(scenario.find("webhook-through-tunnel"), RunnerKind.PROCESS, directory=directory)


def test_a_report_may_lie_in_a_directory_that_is_yet_to_be_made(tmp_path: Path) -> None:
    assert check_report(tmp_path / "a/b/report.html") == tmp_path / "a/b/report.html"
    assert not (tmp_path / "a").exists()


def test_only_a_lab_with_a_tunnel_is_offered_for_breaking(capsys: Captured) -> None:
    print_kept("--name one", has_tunnel=False)
    assert "lab break" not in capsys.readouterr().out
    print_kept("--dir two", has_tunnel=True)
    shown = capsys.readouterr().out
    assert "lab break --dir two agent-kill" in shown
    assert "lab down --dir two" in shown


def test_a_scratch_directory_goes_with_the_scenario_however_it_ends(tmp_path: Path, monkeypatch: Patch) -> None:
    seen: list[Path] = []

    def fail(wanted: ScenarioRun, transcript: Transcript) -> None:
        assert wanted.directory is not None
        seen.append(wanted.directory)
        raise LabError("UMB850", "timed out waiting for something", "for this test", "none")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scenario_run, "run_scenario", fail)
    with pytest.raises(LabError):
        play(_wanted(), Transcript("a test"))
    assert seen[0].is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_named_is_removed_by_the_scenario_run(tmp_path: Path, monkeypatch: Patch) -> None:
    def interrupt(wanted: ScenarioRun, transcript: Transcript) -> None:
        raise KeyboardInterrupt

    (tmp_path / "thesis.txt").write_text("years of output")
    monkeypatch.setattr(scenario_run, "run_scenario", interrupt)
    with pytest.raises(KeyboardInterrupt):
        play(_wanted(tmp_path), Transcript("a test"))
    assert (tmp_path / "thesis.txt").exists()
