"""The cast decides which scene is played."""

from types import SimpleNamespace
from typing import Any

import pytest

from umbilical.lab.cast import Cast
from umbilical.lab.kubernetes_scene import KubernetesScene
from umbilical.lab.scenes import make_scene
from umbilical.lab.stand_in_scene import StandInScene
from umbilical.lab.story import Story
from umbilical.lab.topology import plan_topology


@pytest.fixture
def lab() -> Any:
    return SimpleNamespace(runner=None, topology=plan_topology())


def test_a_cast_without_a_stand_in_plays_with_the_real_kube_apiserver(lab: Any) -> None:
    assert isinstance(make_scene(lab, Cast(), Story("a test")), KubernetesScene)


def test_a_stand_in_has_no_production_beside_it(lab: Any) -> None:
    scene = make_scene(lab, Cast(is_stand_in=True), Story("a test"))
    assert isinstance(scene, StandInScene)
    assert not scene.has_production
