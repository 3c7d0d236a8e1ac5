import pytest
from tests.support.fault_scene import MemoryScene

from umbilical.lab.errors import LabError
from umbilical.lab.faults import registry


@pytest.mark.parametrize(("name", "number"), [("agent-kill", "SIGKILL"), ("agent-freeze", "SIGSTOP")])
def test_every_agent_gets_the_signal(name: str, number: str) -> None:
    scene = MemoryScene()
    assert registry.find(name).break_(scene) == {"nodes": ["master-0", "worker-0"]}
    assert scene.scripted.signals == [
        f"{number} {node}/konnectivity-agent-x7/konnectivity-agent" for node in ("master-0", "worker-0")
    ]


def test_frozen_agents_go_on_and_killed_ones_are_the_runners_business() -> None:
    scene = MemoryScene()
    registry.find("agent-freeze").mend(scene, {})
    assert [line.split()[0] for line in scene.scripted.signals] == ["SIGCONT"] * 2
    scene.scripted.signals.clear()
    registry.find("agent-kill").mend(scene, {})
    registry.find("server-kill").mend(scene, {})
    assert scene.scripted.signals == []


def test_the_server_is_killed() -> None:
    scene = MemoryScene()
    registry.find("server-kill").break_(scene)
    assert scene.scripted.signals == ["SIGKILL bootstrap/konnectivity-server/konnectivity-server"]


def test_without_agents_there_is_nobody_to_kill() -> None:
    scene = MemoryScene()
    scene.scripted.agents_run = False
    with pytest.raises(LabError, match="UMB862"):
        registry.find("agent-kill").break_(scene)
