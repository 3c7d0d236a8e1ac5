from tests.support.fault_scene import MemoryScene

from umbilical.assets.names import AGENT_NAME, SERVER_NAME
from umbilical.lab.faults.fault import Speaker
from umbilical.lab.faults.log_watch import LogWatch


def test_only_a_new_line_with_the_code_counts() -> None:
    scene = MemoryScene()
    lines = scene.scripted.lines[SERVER_NAME]
    lines += ["W1115 10:00:00.000001 UMB302 agent gone", "I1115 other"]
    watch = LogWatch(scene, Speaker.SERVER, "UMB302")
    assert watch.fresh() is None
    lines += ["I1115 10:00:01.000001 nothing", "W1115 10:00:01.000002 UMB302 agent gone"]
    assert watch.fresh() == "bootstrap/konnectivity-server: W1115 10:00:01.000002 UMB302 agent gone"


def test_logs_that_were_deleted_since_do_no_harm() -> None:
    scene = MemoryScene()
    lines = scene.scripted.lines[SERVER_NAME]
    lines += ["W1 UMB302 a", "W2 UMB302 b"]
    watch = LogWatch(scene, Speaker.SERVER, "UMB302")
    lines[:] = ["W3 UMB302 c"]
    assert watch.fresh() == "bootstrap/konnectivity-server: W3 UMB302 c"


def test_agents_are_heard_on_every_node_and_commands_nowhere() -> None:
    scene = MemoryScene()
    watch = LogWatch(scene, Speaker.AGENTS, "UMB311")
    scene.scripted.lines[AGENT_NAME].append("W1 UMB311 refused")
    assert watch.fresh() == "master-0/konnectivity-agent: W1 UMB311 refused"
    assert LogWatch(scene, Speaker.COMMAND, "UMB112").fresh() is None
