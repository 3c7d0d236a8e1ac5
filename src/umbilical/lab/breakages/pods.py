"""Breakages of the programs themselves and of the server's own socket: agents and server that are killed or stopped, a
socket file on which nobody listens, and a client that never reads.
"""

import signal
import sys
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME, STATIC_POD
from umbilical.bootstrap.spec import Mode
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab.breakages.registry import Breakage, Memory, Speaker
from umbilical.lab.breakages.slow_reader import READY
from umbilical.lab.testbed import BOOTSTRAP, SERVER_SECONDS, Testbed


def signal_agents(testbed: Testbed, number: signal.Signals) -> list[str]:
    """Send it to every agent that runs, and return their nodes."""
    reached = []
    for node in testbed.members:
        pod = testbed.agent_pod(node.name)
        if pod is not None and pod.is_running:
            testbed.runner.signal(testbed.lab, node.name, pod.name, AGENT_NAME, number)
            reached.append(node.name)
    if not reached:
        why = "no agent runs on any node"
        raise LabError("UMB862", "this breakage cannot be made now", why, "wait for the agents: umbilical lab status")
    return reached


def signal_server(testbed: Testbed, number: signal.Signals) -> None:
    pod = testbed.find_pod(BOOTSTRAP, SERVER_NAME)
    name = SERVER_NAME if pod is None else pod.name
    testbed.runner.signal(testbed.lab, BOOTSTRAP, name, SERVER_NAME, number)


def server_pid(testbed: Testbed) -> int | None:
    pod = testbed.find_pod(BOOTSTRAP, SERVER_NAME)
    return pod.containers[0].pid if pod is not None and pod.containers else None


def wait_for_another_server(testbed: Testbed, before: int | None) -> None:
    def look() -> None:
        now = server_pid(testbed)
        if now is None or now == before:
            raise NotYet("it does not run" if now is None else "the old one still runs")

    testbed.wait("another server", look, SERVER_SECONDS)


def _kill_server(testbed: Testbed) -> Memory:
    signal_server(testbed, signal.SIGKILL)
    return {}


def _continue_agents(testbed: Testbed, memory: Memory) -> None:
    """Whoever was replaced since, because its liveness probe failed, runs anyway."""
    signal_agents(testbed, signal.SIGCONT)


def _wait_for_restart(testbed: Testbed, memory: Memory) -> None:
    """Nothing to take back: the runner starts a new one, as a kubelet would."""


PROGRAM: Final = "umbilical.lab.breakages.slow_reader"
SOURCE: Final = "endless-source"
SOURCE_PORT: Final = 7777
SOURCE_SECONDS: Final = 30.0
READER: Final = "slow-reader"
_BIND: Final = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"


def _leave_dead_socket(testbed: Testbed) -> Memory:
    """Take the server away, put a socket file in its place on which nobody listens, and let it start again."""
    manifest = testbed.lab.read(BOOTSTRAP, STATIC_POD)
    path = testbed.tunnel.spec.socket_on_host
    testbed.lab.remove(BOOTSTRAP, STATIC_POD)
    testbed.wait("the server to end", lambda: _look_for_no_server(testbed), SERVER_SECONDS)
    testbed.lab.exec(BOOTSTRAP, ["rm", "-f", path]).check()
    testbed.lab.exec(BOOTSTRAP, [sys.executable, "-c", _BIND, path]).check()
    verdict = testbed.call_webhook("allow")
    testbed.lab.write(BOOTSTRAP, STATIC_POD, manifest)
    wait_for_another_server(testbed, None)
    return {"seen": verdict.text}


def _look_for_no_server(testbed: Testbed) -> None:
    if any(pod.name.startswith(SERVER_NAME) for pod in testbed.runner.pods(testbed.lab, BOOTSTRAP)):
        raise NotYet("its pod is still there")


def _put_server_back(testbed: Testbed, memory: Memory) -> None:
    """Our server has replaced the file; only a break that was interrupted leaves something to do."""
    if not testbed.lab.exists(BOOTSTRAP, STATIC_POD):
        testbed.lab.write(BOOTSTRAP, STATIC_POD, testbed.tunnel.files[STATIC_POD].content)


def _read_nothing(testbed: Testbed) -> Memory:
    node = testbed.members[-1]
    address = f"[{node.address}]" if ":" in node.address else node.address
    source = [sys.executable, "-m", PROGRAM, "source", node.address, str(SOURCE_PORT)]
    testbed.lab.start(node.name, SOURCE, source)
    testbed.wait("the source", lambda: _look_for_source(testbed, node.name), SOURCE_SECONDS)
    mode = "grpc" if testbed.tunnel.spec.mode is Mode.GRPC else "http-connect"
    reader = [sys.executable, "-m", PROGRAM, mode, testbed.tunnel.spec.socket_on_host]
    testbed.lab.start(BOOTSTRAP, READER, [*reader, f"{address}:{SOURCE_PORT}"])
    return {"node": node.name}


def _look_for_source(testbed: Testbed, node: str) -> None:
    said = testbed.lab.log(node, SOURCE)
    if READY not in said:
        raise NotYet(said.strip() or "it does not listen yet")


def _end_reader(testbed: Testbed, memory: Memory) -> None:
    ours = [(BOOTSTRAP, READER), (testbed.members[-1].name, SOURCE)]
    for process in testbed.lab.processes():
        if (process.node, process.name) in ours and process.exit_code is None:
            testbed.lab.stop(process.node, process.name, kill=True)


BREAKAGES: Final = (
    Breakage(
        "agent-kill",
        "every agent dies at once (SIGKILL)",
        "calls fail with `No agent available` until the kubelet has started the agents again",
        "UMB302",
        Speaker.SERVER,
        lambda testbed: {"nodes": signal_agents(testbed, signal.SIGKILL)},
        _wait_for_restart,
    ),
    Breakage(
        "server-kill",
        "the server dies (SIGKILL) and leaves its socket file behind",
        "calls fail: nobody listens on the socket, then there is `No agent available` until the agents are back",
        "UMB341",
        Speaker.AGENTS,
        _kill_server,
        _wait_for_restart,
    ),
    Breakage(
        "agent-freeze",
        "every agent stands still (SIGSTOP), connected as before",
        "calls hang until their timeout (`context deadline exceeded`), while all agents look connected",
        "UMB406",
        Speaker.SERVER,
        lambda testbed: {"nodes": signal_agents(testbed, signal.SIGSTOP)},
        _continue_agents,
    ),
    Breakage(
        "stale-socket",
        "a socket file on which nobody listens lies where the server's belongs",
        "calls end in `context deadline exceeded`: the socket is there and refuses, until a server replaces the file",
        "UMB410",
        Speaker.SERVER,
        _leave_dead_socket,
        _put_server_back,
    ),
    Breakage(
        "slow-reader",
        "a client opens a tunnel to an endpoint that sends without end, and reads nothing",
        "nothing, and that is the point: every other call goes on as before",
        "UMB403",
        Speaker.SERVER,
        _read_nothing,
        _end_reader,
        stops_calls=False,
    ),
)
