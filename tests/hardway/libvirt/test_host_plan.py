"""The host's plan: only what is missing is done, and only what was done is undone."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway
from tests.support.recording_host import RecordingHost

from umbilical.assets.hardway.infrastructure.host_plan import Action, host_actions, plan_json
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.libvirt.host_plan import HostPlan, read_plan

ACTIONS = [Action(name, f"why {name}", f"check {name}", f"do {name}", f"undo {name}") for name in ("a", "b", "c")]


def _plan(folder: Path, host: RecordingHost) -> HostPlan:
    return HostPlan(host, folder / ".umbilical" / "host-plan.json")


def test_what_the_artifact_says_comes_back() -> None:
    cluster = hardway.cluster()
    assert cluster.libvirt is not None
    wanted = [one.id for one in host_actions(cluster, cluster.libvirt)]
    assert [one.id for one in read_plan(plan_json(cluster))] == wanted


def test_only_what_is_missing_is_done(tmp_path: Path) -> None:
    host = RecordingHost()
    host.held = {"b"}
    _plan(tmp_path, host).apply(ACTIONS)
    assert [line for line in host.lines if "'do" in line] == ["bash -c 'do a'", "bash -c 'do c'"]


def test_only_what_was_done_is_undone_the_last_first(tmp_path: Path) -> None:
    host = RecordingHost()
    host.held = {"b"}
    _plan(tmp_path, host).apply(ACTIONS)
    _plan(tmp_path, host).undo()
    assert [line for line in host.lines if "undo" in line] == ["bash -c 'undo c'", "bash -c 'undo a'"]
    assert host.held == {"b"}
    before = len(host.lines)
    _plan(tmp_path, host).undo()
    assert len(host.lines) == before


def test_it_is_on_record_before_it_is_done(tmp_path: Path) -> None:
    host = RecordingHost()
    record = tmp_path / ".umbilical" / "host-plan.json"
    seen: list[list[str]] = []

    class Looking(RecordingHost):
        # What it returns is passed on as it is.
        def _shell(self, text: str) -> object:  # type: ignore[override]
            if text.startswith("do "):
                seen.append([one["id"] for one in json.loads(record.read_bytes())["actions"]])
            return super()._shell(text)

    host = Looking()
    _plan(tmp_path, host).apply(ACTIONS)
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_what_is_away_already_is_not_taken_away_again(tmp_path: Path) -> None:
    host = RecordingHost()
    _plan(tmp_path, host).apply(ACTIONS)
    host.held.discard("b")
    host.lines.clear()
    _plan(tmp_path, host).undo()
    assert [line for line in host.lines if "undo" in line] == ["bash -c 'undo c'", "bash -c 'undo a'"]


def test_probes_say_why_something_missing_matters(tmp_path: Path) -> None:
    host = RecordingHost()
    host.held = {"a"}
    probes = _plan(tmp_path, host).probes(ACTIONS[:2])
    assert [(one.id, one.is_right, one.seen, one.fix) for one in probes] == [
        ("a", True, "there", "do a"),
        ("b", False, "why b", "do b"),
    ]


@given(st.binary(max_size=80))
def test_whatever_lies_there_is_a_plan_or_a_told_fault(content: bytes) -> None:
    with pytest.raises(HardwayError, match="UMB733"):
        read_plan(b"!" + content)
