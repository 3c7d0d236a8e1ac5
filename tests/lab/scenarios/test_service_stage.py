"""The stage that stories about the lab's service share."""

from typing import cast

import pytest

from umbilical.lab.kubernetes_scene import KubernetesScene
from umbilical.lab.scenarios.service_stage import calls, real
from umbilical.lab.scene import Scene


class _Scene:
    """As much of a scene as the counters need."""

    def __init__(self, address: str, answer: str | None) -> None:
        self._address = address
        self._answer = answer
        self.asked: list[tuple[str, str]] = []

    def endpoint(self) -> str:
        return self._address

    def fetch(self, node: str, url: str) -> str | None:
        self.asked.append((node, url))
        return self._answer


@pytest.mark.parametrize(
    ("address", "url"),
    [("10.92.3.2", "https://10.92.3.2:8443/calls"), ("fd92:0:0:3::2", "https://[fd92:0:0:3::2]:8443/calls")],
)
def test_the_pod_is_asked_on_its_own_node(address: str, url: str) -> None:
    scene = _Scene(address, '{"/convert": 3}')
    assert calls(cast(KubernetesScene, scene), "worker-0") == {"/convert": 3}
    assert scene.asked == [("worker-0", url)]


def test_no_answer_is_no_call() -> None:
    assert calls(cast(KubernetesScene, _Scene("10.92.3.2", None)), "worker-0") == {}


def test_nothing_stands_in_here() -> None:
    with pytest.raises(AssertionError, match="has_stand_in"):
        real(cast(Scene, _Scene("", None)))
