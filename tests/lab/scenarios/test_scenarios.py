"""Scenarios and their parts; test_scenario_runs.py runs them."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from umbilical.fault import LabError
from umbilical.lab import testbed as testbeds
from umbilical.lab.kubernetes_testbed import KubernetesTestbed
from umbilical.lab.lab import CompletedCommand
from umbilical.lab.scenarios import hosted_losses, kubelet_traffic, patched_ignition
from umbilical.lab.scenarios import scenario as registry
from umbilical.lab.scenarios.kubelet_traffic import NAME, pod
from umbilical.lab.scenarios.service_scenarios import calls, real
from umbilical.lab.state import RunnerKind
from umbilical.lab.through_proxies import ProxiedCall, StreamEvent
from umbilical.lab.topology import Topology
from umbilical.lab.transcript import Transcript
from umbilical.lab.tunnel_parts import UPSTREAM


def test_a_listed_scenario_is_found_under_its_own_name() -> None:
    found = {name: registry.find(name) for name in registry.names()}
    assert [name for name, one in found.items() if one.name != name or not one.summary or not one.runners] == []


def test_a_wrong_name_gets_the_nearest_or_the_list() -> None:
    with pytest.raises(LabError, match=r"(?s)UMB852.*why: .*webhook-through-tunnel"):
        registry.find("webhook-trough-tunnel")
    with pytest.raises(LabError) as caught:
        registry.find("?")
    assert all(name in caught.value.why for name in registry.names())


def test_with_both_ip_families_one_worker_is_dialled_at_each() -> None:
    plan = registry.find("dual-stack").plan
    assert plan is not None
    planned = plan()
    addresses = [planned.node(name).address for name in ("bootstrap", "worker-0", "worker-1")]
    assert addresses == ["10.91.0.10", "10.91.0.21", "fd91::22"]
    assert {len(node.addresses) for node in planned.nodes} == {2}
    assert [network.version for network in planned.node("worker-1").pod_networks] == [6, 4]
    assert Topology.from_json(planned.to_json()) == planned, "the order of a node's addresses is kept"


class _Testbed:
    """As much of a testbed as the counters need."""

    def __init__(self, address: str, answer: str | None) -> None:
        self._address = address
        self._answer = answer
        self.asked: list[tuple[str, str]] = []

    def endpoint(self) -> str:
        return self._address

    def fetch(self, node: str, url: str) -> str | None:
        self.asked.append((node, url))
        return self._answer


def test_the_pod_is_asked_on_its_own_node_and_no_answer_is_no_call() -> None:
    for address, url in (
        ("10.92.3.2", "https://10.92.3.2:8443/calls"),
        ("fd92:0:0:3::2", "https://[fd92:0:0:3::2]:8443/calls"),
    ):
        testbed = _Testbed(address, '{"/convert": 3}')
        assert calls(cast(KubernetesTestbed, testbed), "worker-0") == {"/convert": 3}
        assert testbed.asked == [("worker-0", url)]
    assert calls(cast(KubernetesTestbed, _Testbed("10.92.3.2", None)), "worker-0") == {}
    with pytest.raises(AssertionError, match="has_stand_in"):
        real(cast(testbeds.Testbed, _Testbed("", None)))


KILLED_AT = 100.0
DOOMED, SPARED = {"connect-0", "plain-0"}, {"socks5-0"}


class _Stage:
    """Of a stage only what was told on it."""

    def __init__(self, calls: list[ProxiedCall] | None = None, told: list[StreamEvent] | None = None) -> None:
        self.transcript = Transcript("test")
        self._calls = calls or []
        self.told = told or []

    def calls(self, name: str) -> list[ProxiedCall]:
        return self._calls


def _judge(judgement: Callable[[Any], None], stage: _Stage) -> str:
    """Return the complaint, or nothing."""
    with stage.transcript.step("judgement"):
        try:
            judgement(stage)
        except LabError as fault:
            return f"{fault.what}: {fault.why}"
    return ""


def _call(began: float, ended: float, failure: str = "", way: str = "plain") -> ProxiedCall:
    return ProxiedCall(way, began, ended, failure)


def _later(calls: list[ProxiedCall]) -> str:
    return _judge(lambda stage: hosted_losses._check_later_calls(stage, KILLED_AT), _Stage(calls))


def test_a_call_that_was_under_way_may_fail_and_no_other() -> None:
    assert _later([_call(99.9, 100.1, "reset"), _call(100.2, 100.3)]) == ""
    assert "not running" in _later([_call(100.1, 100.2, "reset")])
    assert "not running" in _later([_call(99.0, 99.9, "reset")])


def test_no_call_may_fail_while_a_server_is_stopped_or_renewed() -> None:
    good = [_call(1.0, 1.5, way=way) for way in ("socks5", "connect", "plain")]
    stage = _Stage()
    assert _judge(lambda stage: hosted_losses._check_no_failure(stage, good), stage) == ""
    assert stage.transcript.figures == {"calls through proxies": "3", "calls that failed": "0"}
    bad = [*good, _call(2.0, 2.5, "Refused: 503")]
    assert "1 of 4 calls through proxies failed: plain after 0.500 s: Refused: 503" in _judge(
        lambda stage: hosted_losses._check_no_failure(stage, bad), _Stage()
    )


def _ends(*ends: tuple[str, float]) -> str:
    told = [StreamEvent(stream, "ended", at, "reset") for stream, at in ends]
    return _judge(lambda stage: hosted_losses._check_ends(stage, KILLED_AT, told, DOOMED), _Stage())


def test_exactly_the_streams_through_the_killed_server_end_and_after_it() -> None:
    assert _ends(("connect-0", 100.1), ("plain-0", 100.2)) == ""
    assert "socks5-0" in _ends(("connect-0", 100.1), ("plain-0", 100.2), ("socks5-0", 100.2))
    assert "plain-0" in _ends(("connect-0", 100.1), ("connect-0", 100.2))
    assert "before its server was killed: connect-0" in _ends(("connect-0", 99.0), ("plain-0", 100.2))


@pytest.mark.parametrize(("heard_at", "complaint"), [(100.5, ""), (99.5, "was lost: socks5-0")])
def test_a_stream_counts_as_alive_only_if_it_was_heard_after_the_kill(
    heard_at: float, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = _Stage(told=[StreamEvent("socks5-0", "lived", heard_at)])
    monkeypatch.setattr(hosted_losses, "_events", lambda of, moment: of.told)
    found = _judge(lambda stage: hosted_losses._check_spared(stage, KILLED_AT, SPARED), stage)
    assert complaint in found
    assert bool(found) is bool(complaint)


def test_streams_are_held_through_both_proxies() -> None:
    doomed, spared = hosted_losses._held_ways()
    assert len(doomed) == 2 * hosted_losses.HELD_EACH
    assert len(spared) == hosted_losses.HELD_EACH
    assert not doomed.keys() & spared.keys()


def test_the_kubelets_scenario_is_told_with_the_kubelet_and_the_payload_s_programs_play_in_the_patched_one() -> None:
    (scenario,) = kubelet_traffic.SCENARIOS
    assert scenario.name == NAME
    assert scenario.runners == (RunnerKind.KUBELET,)
    assert not scenario.has_stand_in
    (scenario,) = patched_ignition.SCENARIOS
    assert (scenario.options.server_image, scenario.options.agent_image) == (UPSTREAM, UPSTREAM)
    assert scenario.programs == ("proxy-server", "proxy-agent")
    assert not scenario.has_stand_in


def test_the_pod_has_no_privilege_and_nothing_is_pulled_for_it() -> None:
    spec = pod()["spec"]
    assert "nodeName" not in spec, "the scheduler chooses"
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in spec["containers"]:
        assert container["imagePullPolicy"] == "Never"
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def done(exit_code: int, stdout: bytes = b"", stderr: bytes = b"") -> CompletedCommand:
    return CompletedCommand("bootstrap", ("kubectl", "logs"), exit_code, stdout, stderr)


def test_what_is_not_the_pods_or_comes_without_the_tunnel_fails_the_scenario() -> None:
    assert kubelet_traffic._answer(done(0, b"one\nrun as 1 in talker\n"), "in talker") == "run as 1 in talker"
    with pytest.raises(LabError, match=r"(?s)UMB848.*why: .*run as 1 elsewhere"):
        kubelet_traffic._answer(done(0, b"run as 1 elsewhere\n"), "in talker")
    assert kubelet_traffic._refusal(done(1, stderr=b"connection refused\n")) == "connection refused"
    with pytest.raises(LabError, match="UMB848"):
        kubelet_traffic._refusal(done(0, b"talker talks\n"))
