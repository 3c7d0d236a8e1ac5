"""`umbilical lab demo` as a user sees it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.transcripts import TranscriptBuilder, until_answered

from umbilical.codes import CONFIGURATION, INFRASTRUCTURE, INTERRUPTED, TIMED_OUT
from umbilical.fault import LabError
from umbilical.lab import isolation, scenario_run
from umbilical.lab.scenario_run import ScenarioRun
from umbilical.lab.transcript import Transcript

Script = Callable[[ScenarioRun, Transcript], Any]
Play = Callable[[Script], list[ScenarioRun]]


@pytest.fixture
def played(monkeypatch: Patch, tmp_path: Path) -> Play:
    """Replace the lab with a fixed transcript, on a machine without Kubernetes; return the requested runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(isolation, "choose", lambda: isolation.Isolation.ROOT)
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    asked: list[ScenarioRun] = []

    def play(script: Script) -> list[ScenarioRun]:
        def run_scenario(wanted: ScenarioRun, transcript: Transcript) -> Any:
            asked.append(wanted)
            return script(wanted, transcript)

        monkeypatch.setattr(scenario_run, "run_scenario", run_scenario)
        return asked

    return play


def _run_all(_: ScenarioRun, transcript: Transcript) -> None:
    builder = TranscriptBuilder("", None)
    builder.transcript = transcript
    until_answered(builder)


def _run_and_keep(_: ScenarioRun, transcript: Transcript) -> Any:
    _run_all(_, transcript)
    return object()


def _fail(_: ScenarioRun, transcript: Transcript) -> None:
    with transcript.step("a server that never comes"):
        raise LabError("UMB850", "timed out waiting for the server", "no such pod", "umbilical lab status")


def _refuse(_: ScenarioRun, transcript: Transcript) -> None:
    raise LabError("UMB820", "no permission for namespaces", "EPERM", "sysctl")


def _interrupt(_: ScenarioRun, transcript: Transcript) -> None:
    with transcript.step("a step"):
        os.kill(os.getpid(), signal.SIGINT)


def test_without_kubernetes_it_says_plainly_who_stands_in(played: Play, tmp_path: Path, umbilical: Run) -> None:
    asked = played(_run_all)
    out = umbilical("lab", "demo").out
    assert asked[0].stand_in
    assert out.startswith("Running without Kubernetes: a needed program is missing: etcd, kube-apiserver, kubectl")
    assert "A program of Umbilical calls the webhook instead of kube-apiserver." in out
    assert "A stand-in replaced kube-apiserver" in out
    assert "make demo-real" in out
    assert "a stand-in replaced kube-apiserver" in (tmp_path / "out/demo/report.html").read_text()


def test_it_closes_with_the_figures_and_the_report(played: Play, umbilical: Run) -> None:
    played(_run_all)
    rows = [line.split(maxsplit=1) for line in umbilical("lab", "demo", "--stand-in").lines if line.startswith("  ")]
    figures = [["agents", "5"], ["calls", "50"], ["bytes", "1,204,331"], ["p50", "6.1 ms"]]
    assert [row for row in figures if row in rows] == figures
    assert ["report", "out/demo/report.html"] in rows


def test_with_real_it_insists(played: Play, umbilical: Run) -> None:
    asked = played(_run_all)
    assert "stand-in" not in umbilical("lab", "demo", "--real").out
    assert [wanted.stand_in for wanted in asked] == [False]


def test_a_directory_of_programs_that_lacks_them_is_no_reason_for_a_stand_in(
    played: Play, tmp_path: Path, umbilical: Run
) -> None:
    asked = played(_run_all)
    assert umbilical("lab", "demo", "--bin-dir", tmp_path, status=INFRASTRUCTURE).err.startswith("UMB824")
    assert asked == []


def test_a_kept_lab_has_a_name_and_its_commands_are_told(
    played: Play, tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    asked = played(_run_and_keep)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv/bin/umbilical")])
    out = umbilical("lab", "demo", "--keep").out
    assert asked[0].keep
    assert asked[0].directory == tmp_path / "state/umbilical/labs/demo"
    assert "  .venv/bin/umbilical lab shell --name demo bootstrap\n" in out
    assert "lab break --name demo agent-kill\n" in out
    assert "lab break --name demo agent-kill" in umbilical("lab", "demo", "--keep", "--breakage", "agent-kill").out


def test_a_lab_that_is_not_kept_lies_in_a_scratch_directory_that_goes_with_it(
    played: Play, tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asked = played(_run_all)
    umbilical("lab", "demo")
    assert (asked[0].keep, asked[0].breakage) == (False, None)
    assert asked[0].directory is not None
    assert asked[0].directory.is_relative_to(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_breakage_is_asked_for_by_its_name_and_an_unknown_one_refused(played: Play, umbilical: Run) -> None:
    asked = played(_run_all)
    assert "did you mean agent-kill?" in umbilical("lab", "demo", "--breakage", "agent-kil", status=CONFIGURATION).err
    assert asked == []
    assert "Breakage: agent-kill" in umbilical("lab", "demo", "--breakage", "agent-kill").out
    assert asked[0].breakage == "agent-kill"


def test_a_scenario_that_fails_is_reported_with_its_failed_step(played: Play, tmp_path: Path, umbilical: Run) -> None:
    played(_fail)
    captured = umbilical("lab", "demo", status=TIMED_OUT)
    assert captured.err.startswith("UMB850 timed out waiting for the server\n  why: no such pod\n  next: ")
    assert "report of the steps so far: out/demo/report.html" in captured.out
    assert "Failed</span> at step 1" in (tmp_path / "out/demo/report.html").read_text()


def test_a_scenario_that_cannot_begin_leaves_nothing(played: Play, tmp_path: Path, umbilical: Run) -> None:
    played(_refuse)
    umbilical("lab", "demo", status=INFRASTRUCTURE)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_and_the_handlers_as_they_were(
    played: Play, tmp_path: Path, umbilical: Run
) -> None:
    played(_interrupt)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    umbilical("lab", "demo", status=INTERRUPTED)
    assert list(tmp_path.iterdir()) == []
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_report_that_cannot_be_written_is_refused_before_anything_happens(
    played: Play, tmp_path: Path, umbilical: Run
) -> None:
    asked = played(_run_all)
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "report.html"):
        assert umbilical("lab", "demo", "--report", place, status=CONFIGURATION).err.startswith("UMB870")
    assert asked == []


def test_where_nothing_can_be_written_the_report_goes_to_a_scratch_directory(
    played: Play, tmp_path: Path, monkeypatch: Patch, umbilical: Run
) -> None:
    played(_run_all)
    (tmp_path / "out").write_text("in the way of the default place")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = umbilical("lab", "demo").out
    (report,) = tmp_path.glob("umbilical-demo-*/report.html")
    assert str(report) in out


PROGRAMS = ("unshare", "nft")
SECONDS = 100.0
STEP = re.compile(r"^ +\d+\.\d s  (.*)$")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "scratch").mkdir()
    places = {"TMPDIR": str(tmp_path / "scratch"), "XDG_STATE_HOME": str(tmp_path / "state")}
    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "umbilical", "lab", "demo", "--stand-in"],
        cwd=tmp_path,
        env={**environment, **places, "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=SECONDS)


def _keepers(folder: Path) -> list[str]:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    return [line.decode() for line in lines if str(folder).encode() in line]


def _left(folder: Path) -> list[Path]:
    return list((folder / "scratch").iterdir())


@pytest.mark.real(*PROGRAMS)
def test_the_stand_in_tells_the_whole_scenario_and_leaves_a_report_only(
    started: subprocess.Popen[str], tmp_path: Path
) -> None:
    out, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 0, out + err
    steps = [match[1] for line in out.splitlines() if (match := STEP.match(line))]
    assert steps[0] == "6 nodes and their networks"
    assert "network is unreachable" in out
    assert "the webhook in the cluster says no" in out
    assert re.search(r"^  agents +5$", out, re.MULTILINE)
    assert re.search(r"^  p50 +\d+\.\d ms$", out, re.MULTILINE)
    assert "✗" not in out
    assert "make demo-real" in out
    page = (tmp_path / "out" / "demo" / "report.html").read_text()
    assert page.count("<figure>") == 4
    assert _left(tmp_path) == []
    assert _keepers(tmp_path) == []


@pytest.mark.real(*PROGRAMS)
@pytest.mark.parametrize("until", ["A webhook", "6 nodes", "the server's static pod", "the tunnel is removed"])
def test_an_interrupt_at_any_moment_leaves_nothing_behind(
    started: subprocess.Popen[str], until: str, tmp_path: Path
) -> None:
    assert started.stdout is not None
    for line in started.stdout:
        if until in line:
            break
    # A terminal sends it to everybody in the foreground, and people press it twice.
    os.killpg(started.pid, signal.SIGINT)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 8, out + err
    assert _left(tmp_path) == []
    assert _keepers(tmp_path) == []
    assert not (tmp_path / "out").exists()
