import json
from dataclasses import replace

import pytest
from tests.support.fault_scene import MemoryScene, fault

from umbilical.lab.cast import UPSTREAM, Cast
from umbilical.lab.errors import LabError
from umbilical.lab.faults import registry, repair
from umbilical.lab.faults.fault import Fault, Speaker
from umbilical.lab.faults.repair import break_fault, broken_faults, mend_fault
from umbilical.lab.scene import Verdict
from umbilical.lab.story import Call


@pytest.fixture
def scene() -> MemoryScene:
    return MemoryScene().lay()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fault]:
    """Faults that the registry finds."""
    faults = {name: fault(name) for name in ("first", "second")}
    monkeypatch.setattr(registry, "find", faults.__getitem__)
    return faults


def test_a_fault_is_remembered_and_recognised(scene: MemoryScene) -> None:
    scene.verdict = Verdict(Call.UNREACHABLE, "No agent available")
    broken = break_fault(scene, fault())
    assert broken.verdict == scene.verdict
    assert broken.line == "bootstrap/konnectivity-server: W1115 UMB302 agent-kill"
    assert broken_faults(scene.lab) == ["agent-kill"]
    json.dumps(scene.memory.broken)


def test_it_is_written_down_before_it_breaks(scene: MemoryScene) -> None:
    """An interrupt in the middle must leave something to mend by."""
    seen: list[list[str]] = []

    def break_(_: object) -> dict[str, object]:
        seen.append(broken_faults(scene.lab))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_fault(scene, replace(fault(), break_=break_))
    assert seen == [["agent-kill"]]
    assert broken_faults(scene.lab) == ["agent-kill"]


def test_the_last_is_mended_first_however_the_state_file_sorts(scene: MemoryScene, known: dict[str, Fault]) -> None:
    break_fault(scene, known["second"])
    break_fault(scene, known["first"])
    scene.memory.broken = dict(sorted(scene.memory.broken.items()))
    assert broken_faults(scene.lab) == ["second", "first"]


@pytest.mark.usefixtures("known")
def test_mending_gets_what_breaking_left_and_shows_that_all_is_well(scene: MemoryScene) -> None:
    break_fault(scene, fault("first"))
    assert mend_fault(scene, "first").call is Call.ALLOWED
    assert scene.memory.did[-1] == "mended first with {'number': 1}"
    assert broken_faults(scene.lab) == []


@pytest.mark.usefixtures("known")
def test_while_something_else_is_broken_calls_need_not_come_through(scene: MemoryScene) -> None:
    break_fault(scene, fault("first"))
    break_fault(scene, fault("second"))
    scene.verdict = Verdict(Call.UNREACHABLE, "still not")
    assert mend_fault(scene, "second").call is Call.UNREACHABLE
    assert broken_faults(scene.lab) == ["first"]


@pytest.mark.usefixtures("known")
def test_what_does_not_work_again_is_told(scene: MemoryScene) -> None:
    break_fault(scene, fault("first"))
    scene.trouble = "port 8091 is closed"
    with pytest.raises(LabError) as caught:
        mend_fault(scene, "first")
    assert (caught.value.code, caught.value.why) == ("UMB864", "port 8091 is closed")
    assert broken_faults(scene.lab) == [], "it was taken back all the same"


def test_what_is_not_broken_is_not_mended(scene: MemoryScene) -> None:
    with pytest.raises(LabError, match="UMB863"):
        mend_fault(scene, "agent-kill")


def test_the_same_fault_twice_is_refused(scene: MemoryScene) -> None:
    break_fault(scene, fault())
    with pytest.raises(LabError, match="UMB862 agent-kill is broken already"):
        break_fault(scene, fault())


@pytest.mark.parametrize(
    ("cast", "speaker"),
    [(Cast(server_image=UPSTREAM), Speaker.SERVER), (Cast(agent_image=UPSTREAM), Speaker.AGENTS)],
)
def test_programs_that_know_no_codes_are_not_waited_for(cast: Cast, speaker: Speaker) -> None:
    scene = MemoryScene(cast_=cast).lay()
    with pytest.raises(LabError, match="UMB862"):
        break_fault(scene, fault(speaker=speaker))
    assert scene.memory.did == []
    other = Speaker.AGENTS if speaker is Speaker.SERVER else Speaker.SERVER
    break_fault(scene, fault(speaker=other))


def test_without_a_tunnel_nothing_is_broken() -> None:
    with pytest.raises(LabError, match="UMB851"):
        break_fault(MemoryScene(), fault())


def test_a_tunnel_that_was_torn_down_is_not_broken(scene: MemoryScene) -> None:
    scene.scripted.server_pid = None
    with pytest.raises(LabError, match="UMB862 there is no tunnel to break"):
        break_fault(scene, fault())
    assert scene.memory.broken == {}


def test_a_line_that_does_not_come_is_a_fault_of_ours_and_can_be_mended(scene: MemoryScene) -> None:
    silent = replace(fault(), break_=lambda scene: {}, seconds=0.1)
    with pytest.raises(LabError) as caught:
        break_fault(scene, silent)
    assert caught.value.code == "UMB861"
    assert "umbilical lab mend agent-kill" in caught.value.remedy
    assert broken_faults(scene.lab) == ["agent-kill"]


def test_a_command_is_asked_for_its_words(scene: MemoryScene) -> None:
    asked = fault(code="UMB112", speaker=Speaker.COMMAND, ask=lambda scene: "well\nUMB112 no address\n  why: two")
    assert repair.break_fault(scene, asked).line == "UMB112 no address"
