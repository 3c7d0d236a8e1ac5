"""A scenario is told in a lab made for it, which goes whatever happens; or in one that is up, which stays."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.labs import running

from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab import testbed as testbeds
from umbilical.lab.hosted.topology import plan_hosted
from umbilical.lab.kubelet.image_format import ImageConfig, write_archive
from umbilical.lab.lab import Lab
from umbilical.lab.lab import down as take_down
from umbilical.lab.scenario_run import ScenarioRun, run_scenario
from umbilical.lab.scenarios.scenario import Scenario, hint, load
from umbilical.lab.state import RunnerKind
from umbilical.lab.topology import Topology
from umbilical.lab.transcript import StepOutcome, Transcript
from umbilical.lab.tunnel_parts import OURS, UPSTREAM, ScenarioOptions
from umbilical.lab.waiting import wait


def test_a_wrong_name_gets_the_nearest_one_and_a_right_one_is_loaded() -> None:
    assert hint("agent-kil", ["agent-kill", "server-kill"]) == "did you mean agent-kill?"
    assert hint("?", ["agent-kill", "server-kill"]) == "known names: agent-kill, server-kill"
    found = load("umbilical.lab.scenarios", {"ipv6": "webhook_through_tunnel"}, "SCENARIOS", "ipv6")
    assert found.name == "ipv6"
    with pytest.raises(StopIteration):
        load("umbilical.lab.scenarios", {"ipv6": "service_scenarios"}, "SCENARIOS", "ipv6")


def test_what_is_seen_at_last_is_returned() -> None:
    answers = iter(["no", "no", "yes"])

    def look() -> str:
        answer = next(answers)
        if answer == "no":
            raise NotYet(answer)
        return answer

    assert wait("a yes", look, seconds=10, poll_seconds=0.001) == "yes"
    assert wait("anything", lambda: 1, seconds=0) == 1


def test_a_wait_ends_with_the_last_look_or_another_error() -> None:
    def look() -> None:
        raise NotYet("0 of 5 agents")

    with pytest.raises(LabError, match="UMB850") as caught:
        wait("5 agents", look, seconds=0.01, poll_seconds=0.001)
    assert "timed out waiting for 5 agents" in caught.value.what
    assert "0 of 5 agents" in caught.value.why

    def stumble() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wait("anything", stumble, seconds=10)


REAL = pytest.mark.real("unshare", "nsenter", "nft")


def _scenario(run: Callable[[testbeds.Testbed], None], **changes: object) -> Scenario:
    return Scenario("a-test", "a test", run, has_stand_in=True, masters=1, workers=0, **changes)  # type: ignore[arg-type]


def _scenario_run(run: Callable[[testbeds.Testbed], None], folder: Path, *, keep: bool = False) -> ScenarioRun:
    return ScenarioRun(_scenario(run), RunnerKind.PROCESS, stand_in=True, directory=folder, keep=keep)


def _two_networks() -> Topology:
    return plan_hosted(management=1, workers=0, openings={6443: ("bootstrap",)})


def _say_hello(testbed: testbeds.Testbed) -> None:
    with testbed.transcript.step("hello"):
        testbed.transcript.saw(testbed.lab.exec("bootstrap", ["hostname"]).check().text.strip())


def _fail(testbed: testbeds.Testbed) -> None:
    with testbed.transcript.step("a step that fails"):
        raise LabError("UMB850", "timed out waiting for something", "for this test", "none")


def _interrupt(testbed: testbeds.Testbed) -> None:
    raise KeyboardInterrupt


@REAL
def test_a_scenario_is_told_in_its_own_networks_and_the_lab_is_gone_after_it(tmp_path: Path) -> None:
    def look(testbed: testbeds.Testbed) -> None:
        assert testbed.lab.topology == _two_networks()
        _say_hello(testbed)

    transcript = Transcript("a test")
    scenario = _scenario(look, plan=_two_networks)
    wanted = ScenarioRun(scenario, RunnerKind.PROCESS, stand_in=True, directory=tmp_path / "lab")
    assert run_scenario(wanted, transcript) is None
    assert [step.outcome for step in transcript.steps] == [StepOutcome.DONE, StepOutcome.DONE]
    assert transcript.steps[1].evidence == ["bootstrap"]
    assert not (tmp_path / "lab").exists()


@REAL
def test_the_lab_is_gone_after_a_step_that_failed(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="timed out waiting for"):
        run_scenario(_scenario_run(_fail, tmp_path / "lab"), Transcript("a test"))
    assert not (tmp_path / "lab").exists()


@REAL
def test_a_lab_that_is_to_be_kept_stays_up_for_a_look_at_what_failed(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="timed out waiting for"):
        run_scenario(_scenario_run(_fail, tmp_path / "lab", keep=True), Transcript("a test"))
    assert Lab.open(tmp_path / "lab").exec("bootstrap", ["true"]).exit_code == 0
    take_down(tmp_path / "lab")


@REAL
def test_an_interrupt_takes_even_a_kept_lab_down(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_scenario(_scenario_run(_interrupt, tmp_path / "lab", keep=True), Transcript("a test"))
    assert not (tmp_path / "lab").exists()


@REAL
def test_a_lab_that_is_up_is_used_if_it_fits_and_stays(tmp_path: Path) -> None:
    with running(tmp_path / "lab") as lab:
        transcript = Transcript("a test")
        used = run_scenario(_scenario_run(_say_hello, tmp_path / "lab"), transcript)
        assert used is not None
        assert [step.title for step in transcript.steps] == ["hello"]
        lacks_a_program = ScenarioRun(_scenario(_say_hello), RunnerKind.PROCESS, directory=tmp_path / "lab")
        with pytest.raises(LabError, match=r"(?s)UMB854.*kube-apiserver"):
            run_scenario(lacks_a_program, Transcript("a test"))
        wanted = _scenario(_say_hello, plan=_two_networks)
        with pytest.raises(LabError, match=r"(?s)UMB854.*needs networks of its own"):
            run_scenario(
                ScenarioRun(wanted, RunnerKind.PROCESS, stand_in=True, directory=tmp_path / "lab"), Transcript("a test")
            )
        lab.directory.testbed_file.write_text("{}")
        with pytest.raises(LabError, match="UMB854"):
            run_scenario(_scenario_run(_say_hello, tmp_path / "lab"), Transcript("a test"))
        assert lab.exec("bootstrap", ["true"]).exit_code == 0


def test_what_is_somebody_elses_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(LabError, match="UMB813"):
        run_scenario(_scenario_run(_say_hello, tmp_path), Transcript("a test"))
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_our_server_and_agents_run_from_the_image_that_is_given_and_others_from_theirs(tmp_path: Path) -> None:
    archive = tmp_path / "ours.tar"
    write_archive(archive, ["registry.example/ours:1"], [], ImageConfig("amd64"))
    mixed = Scenario("mixed", "a test", _say_hello, options=ScenarioOptions(server_image=UPSTREAM))
    options = ScenarioRun(mixed, RunnerKind.KUBELET).options(str(archive))
    assert (options.server_image, options.agent_image) == (UPSTREAM, "registry.example/ours:1")
    assert ScenarioRun(mixed, RunnerKind.KUBELET).options(None).agent_image == OURS


def test_an_image_needs_the_kubelet_runner_a_name_and_a_lab_that_has_it(tmp_path: Path) -> None:
    archive, nameless = tmp_path / "ours.tar", tmp_path / "nameless.tar"
    write_archive(archive, ["localhost/ours:1"], [], ImageConfig("amd64"))
    write_archive(nameless, [], [], ImageConfig("amd64"))
    told = Scenario("a-test", "a test", _say_hello)
    for runner, image, code in (
        (RunnerKind.PROCESS, archive, "UMB853"),
        (RunnerKind.KUBELET, nameless, "UMB849"),
        (RunnerKind.KUBELET, tmp_path / "missing.tar", "UMB849"),
    ):
        with pytest.raises(LabError, match=code):
            run_scenario(ScenarioRun(told, runner, directory=tmp_path / "lab", image=image), Transcript("a test"))
        assert not (tmp_path / "lab").exists()
    needing = Scenario("a-test", "a test", _say_hello, runners=(RunnerKind.KUBELET,), needs_image=True)
    with pytest.raises(LabError, match=r"UMB853(.|\n)*next: .*--runner kubelet --image"):
        run_scenario(ScenarioRun(needing, RunnerKind.KUBELET, directory=tmp_path / "lab"), Transcript("a test"))
    assert not (tmp_path / "lab").exists()
    with running(tmp_path / "lab", runner=RunnerKind.KUBELET):
        wanted = ScenarioRun(told, RunnerKind.KUBELET, directory=tmp_path / "lab", image=archive)
        with pytest.raises(LabError, match=r"UMB854(.|\n)*without the image"):
            run_scenario(wanted, Transcript("a test"))


def test_what_a_scenario_cannot_be_told_with_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    other_runner = _scenario(_say_hello, runners=(RunnerKind.KUBELET,))
    for wanted in (
        ScenarioRun(other_runner, RunnerKind.PROCESS, directory=tmp_path / "lab"),
        ScenarioRun(
            Scenario("a-test", "a test", _say_hello), RunnerKind.PROCESS, stand_in=True, directory=tmp_path / "lab"
        ),
    ):
        with pytest.raises(LabError, match="UMB853"):
            run_scenario(wanted, Transcript("a test"))
        assert not (tmp_path / "lab").exists()
