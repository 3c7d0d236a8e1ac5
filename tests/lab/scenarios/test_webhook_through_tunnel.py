"""The whole story, with the real programs and with the stand-in, in every form that it has."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.lab.runner import RunnerKind
from umbilical.lab.scenarios.webhook_through_tunnel import CALLS
from umbilical.lab.story import Call, Story

DENIAL = "the webhook in the cluster says no"


def _assert_told(story: Story) -> None:
    """The decisive moments, in the words of kube-apiserver and of the webhook itself."""
    text = evidence(story)
    assert "network is unreachable" in text
    assert DENIAL in text
    calls = [picture.call for _, picture in story.pictures]
    decisive = [Call.UNREACHABLE, Call.ALLOWED, Call.DENIED]
    assert [call for index, call in enumerate(calls) if call in decisive and call not in calls[:index]] == decisive
    assert story.figures["calls"] == str(CALLS)
    assert not story.picture.server
    assert story.picture.agents == ()


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft")
def test_the_story_with_the_real_kube_apiserver(tmp_path: Path) -> None:
    story = tell("webhook-through-tunnel", tmp_path)
    _assert_told(story)
    assert story.figures["agents"] == "5"
    assert story.picture.production_call is Call.ALLOWED


@pytest.mark.root
@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft", "kubelet", "containerd", "runc")
def test_the_story_with_the_real_kubelet(tmp_path: Path) -> None:
    story = tell("webhook-through-tunnel", tmp_path, runner=RunnerKind.KUBELET)
    _assert_told(story)
    assert story.figures["agents"] == "5"


@pytest.mark.timeout(SECONDS)
@pytest.mark.real("nft")
def test_the_story_with_the_stand_in(tmp_path: Path) -> None:
    story = tell("webhook-through-tunnel", tmp_path, stand_in=True)
    _assert_told(story)
    assert "stands in for kube-apiserver" in evidence(story)


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft")
def test_the_story_with_the_tunnel_as_first_planned(tmp_path: Path) -> None:
    _assert_told(tell("seed-shape", tmp_path))


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft", "proxy-server", "proxy-agent")
def test_the_story_with_upstreams_server_or_agents(tmp_path: Path) -> None:
    story = tell("upstream-mix", tmp_path)
    _assert_told(story)
    assert sum("connected: " in line for step in story.steps for line in step.evidence) == 2


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft")
def test_the_story_on_ipv6_alone(tmp_path: Path) -> None:
    story = tell("ipv6", tmp_path)
    _assert_told(story)
    assert "[fd92:" in evidence(story)
