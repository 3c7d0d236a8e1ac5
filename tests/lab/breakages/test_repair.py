"""Breakages are broken, recognised in logs and calls, remembered, told and mended."""

import json
import threading
import time
from dataclasses import replace

import pytest
from tests.support.breakage_testbed import MemoryTestbed, breakage

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME
from umbilical.fault import LabError
from umbilical.lab.breakages import registry, repair
from umbilical.lab.breakages.registry import Breakage, Speaker
from umbilical.lab.breakages.repair import LogWatch, WebhookCalls, active_breakages, make_breakage, mend_breakage
from umbilical.lab.scenarios import webhook_through_tunnel
from umbilical.lab.testbed import WebhookVerdict
from umbilical.lab.transcript import CallResult
from umbilical.lab.tunnel_parts import UPSTREAM, ScenarioOptions


def test_only_a_new_line_with_the_code_counts_also_after_logs_were_deleted() -> None:
    testbed = MemoryTestbed()
    lines = testbed.scripted.lines[SERVER_NAME]
    lines += ["W1115 10:00:00.000001 UMB302 agent gone", "I1115 other"]
    watch = LogWatch(testbed, Speaker.SERVER, "UMB302")
    assert watch.fresh() is None
    lines += ["I1115 10:00:01.000001 nothing", "W1115 10:00:01.000002 UMB302 agent gone"]
    assert watch.fresh() == "bootstrap/konnectivity-server: W1115 10:00:01.000002 UMB302 agent gone"
    testbed = MemoryTestbed()
    lines = testbed.scripted.lines[SERVER_NAME]
    lines += ["W1 UMB302 a", "W2 UMB302 b"]
    watch = LogWatch(testbed, Speaker.SERVER, "UMB302")
    lines[:] = ["W3 UMB302 c"]
    assert watch.fresh() == "bootstrap/konnectivity-server: W3 UMB302 c"
    testbed = MemoryTestbed()
    watch = LogWatch(testbed, Speaker.AGENTS, "UMB311")
    testbed.scripted.lines[AGENT_NAME].append("W1 UMB311 refused")
    assert watch.fresh() == "master-0/konnectivity-agent: W1 UMB311 refused"
    assert LogWatch(testbed, Speaker.COMMAND, "UMB112").fresh() is None


def test_one_call_is_made_unless_something_was_seen_or_a_command_tells() -> None:
    testbed = MemoryTestbed()
    with WebhookCalls(testbed, breakage(), {}) as made:
        assert made.first() == testbed.verdict
    assert testbed.calls == 1
    testbed = MemoryTestbed()
    with WebhookCalls(testbed, breakage(), {"seen": "connection refused"}) as made:
        assert made.first() == WebhookVerdict(CallResult.UNREACHABLE, "connection refused")
    assert testbed.calls == 0
    testbed = MemoryTestbed()
    with WebhookCalls(testbed, breakage(speaker=Speaker.COMMAND), {}) as made:
        assert made.first() is None
    assert testbed.calls == 0


def test_a_call_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "FIRST_SECONDS", 0.05)
    testbed, free = MemoryTestbed(), threading.Event()

    def hang(verdict: str) -> WebhookVerdict:
        free.wait(10)
        return testbed.verdict

    monkeypatch.setattr(testbed, "call_webhook", hang)
    with WebhookCalls(testbed, breakage(), {}) as made:
        assert made.first() is None
    free.set()


def test_traffic_goes_on_until_the_line_is_there_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = MemoryTestbed()
    rounds: list[int] = []

    def call_times(count: int) -> list[float]:
        rounds.append(count)
        raise LabError("UMB855", "one failed", "as can be expected", "go on")

    monkeypatch.setattr(testbed, "call_times", call_times)
    with WebhookCalls(testbed, breakage(needs_traffic=True), {}) as made:
        deadline = time.monotonic() + 10
        while len(rounds) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert made.first() is not None
    assert len(rounds) >= 2


@pytest.fixture
def testbed() -> MemoryTestbed:
    return MemoryTestbed().lay()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Breakage]:
    """Breakages that the registry finds."""
    breakages = {name: breakage(name) for name in ("first", "second")}
    monkeypatch.setattr(registry, "find", breakages.__getitem__)
    return breakages


def test_a_breakage_is_remembered_and_recognised_in_a_log_or_a_commands_words(testbed: MemoryTestbed) -> None:
    testbed.verdict = WebhookVerdict(CallResult.UNREACHABLE, "No agent available")
    broken = make_breakage(testbed, breakage())
    assert broken.verdict == testbed.verdict
    assert broken.line == "bootstrap/konnectivity-server: W1115 UMB302 agent-kill"
    assert active_breakages(testbed.lab) == ["agent-kill"]
    json.dumps(testbed.memory.broken)
    asked = breakage(
        "asked", code="UMB112", speaker=Speaker.COMMAND, ask=lambda testbed: "well\nUMB112 no address\n  why: two"
    )
    assert repair.make_breakage(testbed, asked).line == "UMB112 no address"


def test_it_is_written_down_before_it_breaks(testbed: MemoryTestbed) -> None:
    """An interrupt in the middle must leave something to mend by."""
    seen: list[list[str]] = []

    def break_(_: object) -> dict[str, object]:
        seen.append(active_breakages(testbed.lab))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_breakage(testbed, replace(breakage(), break_=break_))
    assert seen == [["agent-kill"]]
    assert active_breakages(testbed.lab) == ["agent-kill"]


def test_the_last_is_mended_first_however_the_state_file_sorts(
    testbed: MemoryTestbed, known: dict[str, Breakage]
) -> None:
    make_breakage(testbed, known["second"])
    make_breakage(testbed, known["first"])
    testbed.memory.broken = dict(sorted(testbed.memory.broken.items()))
    assert active_breakages(testbed.lab) == ["second", "first"]


@pytest.mark.usefixtures("known")
def test_mending_shows_that_all_is_well_unless_something_else_is_broken(testbed: MemoryTestbed) -> None:
    well = testbed.verdict
    make_breakage(testbed, breakage("first"))
    make_breakage(testbed, breakage("second"))
    testbed.verdict = WebhookVerdict(CallResult.UNREACHABLE, "still not")
    assert mend_breakage(testbed, "second").call is CallResult.UNREACHABLE
    assert active_breakages(testbed.lab) == ["first"]
    testbed.verdict = well
    assert mend_breakage(testbed, "first").call is CallResult.ALLOWED
    assert testbed.memory.did[-1] == "mended first with {'number': 1}"
    assert active_breakages(testbed.lab) == []


@pytest.mark.usefixtures("known")
def test_what_does_not_work_again_is_told(testbed: MemoryTestbed) -> None:
    make_breakage(testbed, breakage("first"))
    testbed.trouble = "port 8091 is closed"
    with pytest.raises(LabError) as caught:
        mend_breakage(testbed, "first")
    assert (caught.value.code, caught.value.why) == ("UMB864", "port 8091 is closed")
    assert active_breakages(testbed.lab) == [], "it was taken back all the same"


def test_what_is_broken_is_not_broken_twice_and_what_is_whole_not_mended(testbed: MemoryTestbed) -> None:
    with pytest.raises(LabError, match="UMB863"):
        mend_breakage(testbed, "agent-kill")
    make_breakage(testbed, breakage())
    with pytest.raises(LabError, match="UMB862 agent-kill was not made again"):
        make_breakage(testbed, breakage())


@pytest.mark.parametrize(
    ("options", "speaker"),
    [(ScenarioOptions(server_image=UPSTREAM), Speaker.SERVER), (ScenarioOptions(agent_image=UPSTREAM), Speaker.AGENTS)],
)
def test_programs_that_know_no_codes_are_not_waited_for(options: ScenarioOptions, speaker: Speaker) -> None:
    testbed = MemoryTestbed(options=options).lay()
    with pytest.raises(LabError, match="UMB862"):
        make_breakage(testbed, breakage(speaker=speaker))
    assert testbed.memory.did == []
    other = Speaker.AGENTS if speaker is Speaker.SERVER else Speaker.SERVER
    make_breakage(testbed, breakage(speaker=other))


def test_without_a_tunnel_nothing_is_broken(testbed: MemoryTestbed) -> None:
    testbed.scripted.server_pid = None
    with pytest.raises(LabError, match="UMB862 agent-kill was not made"):
        make_breakage(testbed, breakage())
    assert testbed.memory.broken == {}
    with pytest.raises(LabError, match="UMB851"):
        make_breakage(MemoryTestbed(), breakage())


def test_a_line_that_does_not_come_is_a_fault_of_ours_and_can_be_mended(testbed: MemoryTestbed) -> None:
    silent = replace(breakage(), break_=lambda testbed: {}, seconds=0.1)
    with pytest.raises(LabError, match=r"(?s)UMB861.*next: .*umbilical lab mend agent-kill"):
        make_breakage(testbed, silent)
    assert active_breakages(testbed.lab) == ["agent-kill"]


@pytest.fixture
def any_breakage_testbed(monkeypatch: pytest.MonkeyPatch) -> MemoryTestbed:
    monkeypatch.setattr(registry, "find", breakage)
    return MemoryTestbed().lay()


def test_a_break_tells_what_is_done_seen_and_said(any_breakage_testbed: MemoryTestbed) -> None:
    any_breakage_testbed.verdict = WebhookVerdict(CallResult.UNREACHABLE, "No agent available")
    repair.show_break(any_breakage_testbed, breakage())
    (step,) = any_breakage_testbed.transcript.steps
    assert step.title == "agent-kill: it breaks"
    assert step.evidence == [
        "what a user sees: nothing works",
        "the call is unreachable: No agent available",
        "reported with UMB302: bootstrap/konnectivity-server: W1115 UMB302 agent-kill",
    ]
    assert any_breakage_testbed.transcript.picture.call is CallResult.UNREACHABLE


def test_a_call_that_hangs_is_told_as_such(
    any_breakage_testbed: MemoryTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair.WebhookCalls, "first", lambda self: None)
    repair.show_break(any_breakage_testbed, breakage())
    assert "the call hangs" in any_breakage_testbed.transcript.steps[0].evidence


def test_a_mend_tells_what_is_still_broken(any_breakage_testbed: MemoryTestbed) -> None:
    repair.show_break(any_breakage_testbed, breakage("first"))
    repair.show_break(any_breakage_testbed, breakage("second"))
    repair.show_mend(any_breakage_testbed, "second")
    assert any_breakage_testbed.transcript.steps[-1].title == "repair second"
    assert any_breakage_testbed.transcript.steps[-1].evidence == [
        "the call is allowed: created",
        "remaining breakages: first",
    ]


def test_a_scenario_of_a_breakage_begins_with_everything_well_and_ends_so(
    any_breakage_testbed: MemoryTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(webhook_through_tunnel, "prepare", lambda any_breakage_testbed: order.append("stage"))
    monkeypatch.setattr(webhook_through_tunnel, "set_up_tunnel", lambda any_breakage_testbed: order.append("tunnel"))
    repair.run_breakage(any_breakage_testbed, "agent-kill")
    assert order == ["stage", "tunnel"]
    assert [step.title for step in any_breakage_testbed.transcript.steps] == [
        "through the tunnel the webhook allows a request",
        "agent-kill: it breaks",
        "repair agent-kill",
    ]
    assert any_breakage_testbed.transcript.picture.call is CallResult.ALLOWED
