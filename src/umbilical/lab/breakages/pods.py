"""Breakages of processes and of the server's socket."""

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
    """Send a signal to every running agent; return their nodes."""
    reached = []
    for node in testbed.members:
        pod = testbed.agent_pod(node.name)
        if pod is not None and pod.is_running:
            testbed.runner.signal(testbed.lab, node.name, pod.name, AGENT_NAME, number)
            reached.append(node.name)
    if not reached:
        why = "no agent runs on any node"
        raise LabError("UMB862", "the breakage was not made", why, "wait for the agents: umbilical lab status")
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
            raise NotYet("it is not running" if now is None else "the old process is still running")

    testbed.wait("another server", look, SERVER_SECONDS)


def _kill_server(testbed: Testbed) -> Memory:
    signal_server(testbed, signal.SIGKILL)
    return {}


def _continue_agents(testbed: Testbed, memory: Memory) -> None:
    """Agents that were restarted after a failed liveness probe ignore the signal."""
    signal_agents(testbed, signal.SIGCONT)


def _wait_for_restart(testbed: Testbed, memory: Memory) -> None:
    """Nothing to undo: the runner restarts the container, as a kubelet does."""


PROGRAM: Final = "umbilical.lab.breakages.slow_reader"
SOURCE: Final = "endless-source"
SOURCE_PORT: Final = 7777
SOURCE_SECONDS: Final = 30.0
READER: Final = "slow-reader"
_BIND: Final = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"


def _leave_dead_socket(testbed: Testbed) -> Memory:
    """Stop the server, create a socket file without a listener, and start the server again."""
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
        raise NotYet("its pod still exists")


def _put_server_back(testbed: Testbed, memory: Memory) -> None:
    """The server has replaced the file already; after an interrupted break, write the manifest again."""
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
        "every agent is killed at once (SIGKILL)",
        "calls fail with `No agent available` until the kubelet has started the agents again",
        "UMB302",
        Speaker.SERVER,
        lambda testbed: {"nodes": signal_agents(testbed, signal.SIGKILL)},
        _wait_for_restart,
    ),
    Breakage(
        "server-kill",
        "the server is killed (SIGKILL) and leaves its socket file",
        "calls fail: first nothing listens on the socket, then `No agent available` until the agents reconnect",
        "UMB341",
        Speaker.AGENTS,
        _kill_server,
        _wait_for_restart,
    ),
    Breakage(
        "agent-freeze",
        "every agent is stopped (SIGSTOP) and stays connected",
        "calls time out (`context deadline exceeded`) while all agents look connected",
        "UMB406",
        Speaker.SERVER,
        lambda testbed: {"nodes": signal_agents(testbed, signal.SIGSTOP)},
        _continue_agents,
    ),
    Breakage(
        "stale-socket",
        "a socket file without a listener has the path of the server's socket",
        "calls fail with `context deadline exceeded` until a server replaces the socket file",
        "UMB410",
        Speaker.SERVER,
        _leave_dead_socket,
        _put_server_back,
    ),
    Breakage(
        "slow-reader",
        "a client reads nothing from an endpoint that sends without end",
        "nothing: all other calls work as before",
        "UMB403",
        Speaker.SERVER,
        _read_nothing,
        _end_reader,
        stops_calls=False,
    ),
)
