"""A scene without Kubernetes, on the smallest lab: the parts of the story that the story's own test does not part."""

from collections.abc import Iterator

import pytest
from tests.support.labs import running

from umbilical.lab.cast import Cast
from umbilical.lab.errors import LabError
from umbilical.lab.scenes import make_scene
from umbilical.lab.stand_in_scene import StandInScene
from umbilical.lab.story import Call, Story

pytestmark = pytest.mark.real("unshare", "nsenter", "nft", "ss")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInScene]:
    story = Story("a test")
    with running(tmp_path_factory.mktemp("stand-in") / "lab") as lab, story.step("a test"):
        scene = make_scene(lab, Cast(is_stand_in=True), story)
        assert isinstance(scene, StandInScene)
        scene.start_control_plane()
        scene.start_nodes()
        assert scene.start_webhook() == "master-0"
        yield scene


def test_without_the_tunnel_the_bootstrap_node_has_no_way_to_a_pod(scene: StandInScene) -> None:
    verdict = scene.judge("allow")
    assert verdict.call is Call.UNREACHABLE
    assert "network is unreachable" in verdict.text


def test_calls_that_fail_have_no_times(scene: StandInScene) -> None:
    with pytest.raises(LabError) as caught:
        scene.call_times(2)
    assert caught.value.code == "UMB855"


def test_it_says_that_it_stands_in(scene: StandInScene) -> None:
    assert any("stands in for kube-apiserver" in line for line in scene.story.steps[0].evidence)
