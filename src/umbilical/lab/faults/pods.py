"""Faults of the programs themselves: agents and server that are killed, and agents that are stopped."""

import signal
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME
from umbilical.fault import LabError
from umbilical.lab.faults.fault import Fault, Memory, Speaker
from umbilical.lab.scene import BOOTSTRAP, Scene


def signal_agents(scene: Scene, number: signal.Signals) -> list[str]:
    """Send it to every agent that runs, and return their nodes."""
    reached = []
    for node in scene.members:
        pod = scene.agent_pod(node.name)
        if pod is not None and pod.is_running:
            scene.runner.signal(scene.lab, node.name, pod.name, AGENT_NAME, number)
            reached.append(node.name)
    if not reached:
        why = "no agent runs on any node"
        raise LabError("UMB862", "this fault cannot be made now", why, "wait for the agents: umbilical lab status")
    return reached


def signal_server(scene: Scene, number: signal.Signals) -> None:
    pod = scene.find_pod(BOOTSTRAP, SERVER_NAME)
    name = SERVER_NAME if pod is None else pod.name
    scene.runner.signal(scene.lab, BOOTSTRAP, name, SERVER_NAME, number)


def server_pid(scene: Scene) -> int | None:
    pod = scene.find_pod(BOOTSTRAP, SERVER_NAME)
    return pod.containers[0].pid if pod is not None and pod.containers else None


def _kill_agents(scene: Scene) -> Memory:
    return {"nodes": signal_agents(scene, signal.SIGKILL)}


def _kill_server(scene: Scene) -> Memory:
    signal_server(scene, signal.SIGKILL)
    return {}


def _stop_agents(scene: Scene) -> Memory:
    return {"nodes": signal_agents(scene, signal.SIGSTOP)}


def _continue_agents(scene: Scene, memory: Memory) -> None:
    """Whoever was replaced since, because its liveness probe failed, runs anyway."""
    signal_agents(scene, signal.SIGCONT)


def _wait_for_restart(scene: Scene, memory: Memory) -> None:
    """Nothing to take back: the runner starts a new one, as a kubelet would."""


FAULTS: Final = (
    Fault(
        "agent-kill",
        "every agent dies at once (SIGKILL)",
        "calls fail with `No agent available` until the kubelet has started the agents again",
        "UMB302",
        Speaker.SERVER,
        _kill_agents,
        _wait_for_restart,
    ),
    Fault(
        "server-kill",
        "the server dies (SIGKILL) and leaves its socket file behind",
        "calls fail: nobody listens on the socket, then there is `No agent available` until the agents are back",
        "UMB341",
        Speaker.AGENTS,
        _kill_server,
        _wait_for_restart,
    ),
    Fault(
        "agent-freeze",
        "every agent stands still (SIGSTOP), connected as before",
        "calls hang until their timeout (`context deadline exceeded`), while all agents look connected",
        "UMB406",
        Speaker.SERVER,
        _stop_agents,
        _continue_agents,
    ),
)
