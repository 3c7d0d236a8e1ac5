"""`umbilical lab demo` where there are no namespaces: what it says first, what it refuses, and that it ends well."""

import signal
from pathlib import Path

import pytest
from tests.support.commands import Run
from tests.support.fixture_types import Patch

from umbilical.codes import INFRASTRUCTURE, INTERRUPTED
from umbilical.fault import LabError
from umbilical.lab import isolation, loopback
from umbilical.lab.transcript import CallResult, Transcript

REASON = "unshare: unshare failed: Operation not permitted"


def _refuse(*_: object) -> None:
    raise LabError("UMB820", "no permission to create the lab's namespaces", REASON, "sudo sysctl something=1")


@pytest.fixture(autouse=True)
def _no_namespaces(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(isolation, "choose", _refuse)


def _run_all(transcript: Transcript, folder: Path) -> None:
    with transcript.step("a call"):
        transcript.shows(nodes=("bootstrap", "worker-0"), apiserver=True, on_loopback=True)
        transcript.saw("no such file or directory")
        transcript.shows(call=CallResult.UNREACHABLE)


def test_the_first_line_says_what_could_not_be_had_and_what_is_not_shown(
    monkeypatch: Patch, tmp_path: Path, umbilical: Run
) -> None:
    monkeypatch.setattr(loopback, "run", _run_all)
    lines = umbilical("lab", "demo").lines
    assert lines[0].startswith(
        f"No namespaces here (no permission to create the lab's namespaces: {REASON}): the demo runs"
    )
    assert lines[0].endswith(f"on loopback and does not show {loopback.NOT_SHOWN}.")
    assert lines[1] == "To run the full demo: sudo sysctl something=1"
    report = (tmp_path / "out/demo/report.html").read_text()
    assert "Not shown: that the bootstrap node is blocked without the tunnel" in report
    assert "has no route to the pod network" not in report
    assert "no route" not in report
    assert "configured for a missing tunnel" in report


@pytest.mark.parametrize("options", [["--keep"], ["--breakage", "agent-kill"], ["--real"]])
def test_what_only_a_lab_can_show_is_refused(
    options: list[str], monkeypatch: Patch, tmp_path: Path, umbilical: Run
) -> None:
    monkeypatch.setattr(loopback, "run", _run_all)
    monkeypatch.setattr("umbilical.lab.lab.up", _refuse)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("umbilical.lab.scenario_run.binaries", lambda wanted: {})
    umbilical("lab", "demo", *options, status=INFRASTRUCTURE)


def test_a_missing_python_package_is_an_error_and_no_reason_for_loopback(monkeypatch: Patch, umbilical: Run) -> None:
    def refuse() -> isolation.Isolation:
        raise LabError("UMB826", "a Python package is missing", "it is not found", "pip install 'umbilical[lab]'")

    monkeypatch.setattr(isolation, "choose", refuse)
    umbilical("lab", "demo", status=INFRASTRUCTURE)


def test_an_interrupt_leaves_no_file(monkeypatch: Patch, tmp_path: Path, umbilical: Run) -> None:
    def interrupt(transcript: Transcript, folder: Path) -> None:
        (folder / "a key").write_text("secret")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(loopback, "run", interrupt)
    umbilical("lab", "demo", status=INTERRUPTED)
    assert list(tmp_path.iterdir()) == []
