"""Faults at the server's own socket: a file on which nobody listens, and a client that never reads."""

import sys
from typing import Final

from umbilical.bootstrap.names import SERVER_NAME, STATIC_POD
from umbilical.bootstrap.spec import Mode
from umbilical.lab.faults.certificates import wait_for_another_server
from umbilical.lab.faults.endless_source import READY
from umbilical.lab.faults.fault import Fault, Memory, Speaker
from umbilical.lab.scene import BOOTSTRAP, SERVER_SECONDS, Scene
from umbilical.lab.waiting import NotYet

SOURCE: Final = "endless-source"
SOURCE_PORT: Final = 7777
SOURCE_SECONDS: Final = 30.0
READER: Final = "slow-reader"
_BIND: Final = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"


def _leave_dead_socket(scene: Scene) -> Memory:
    """Take the server away, put a socket file in its place on which nobody listens, and let it start again."""
    manifest = scene.lab.read(BOOTSTRAP, STATIC_POD)
    path = scene.tunnel.spec.socket_on_host
    scene.lab.remove(BOOTSTRAP, STATIC_POD)
    scene.wait("the server to end", lambda: _look_for_no_server(scene), SERVER_SECONDS)
    scene.lab.exec(BOOTSTRAP, ["rm", "-f", path]).check()
    scene.lab.exec(BOOTSTRAP, [sys.executable, "-c", _BIND, path]).check()
    verdict = scene.judge("allow")
    scene.lab.write(BOOTSTRAP, STATIC_POD, manifest)
    wait_for_another_server(scene, None)
    return {"seen": verdict.text}


def _look_for_no_server(scene: Scene) -> None:
    if any(pod.name.startswith(SERVER_NAME) for pod in scene.runner.pods(scene.lab, BOOTSTRAP)):
        raise NotYet("its pod is still there")


def _put_server_back(scene: Scene, memory: Memory) -> None:
    """Our server has replaced the file; only a break that was interrupted leaves something to do."""
    if not scene.lab.exists(BOOTSTRAP, STATIC_POD):
        scene.lab.write(BOOTSTRAP, STATIC_POD, scene.tunnel.files[STATIC_POD].content)


def _read_nothing(scene: Scene) -> Memory:
    node = scene.members[-1]
    address = f"[{node.address}]" if ":" in node.address else node.address
    source = [sys.executable, "-m", "umbilical.lab.faults.endless_source", node.address, str(SOURCE_PORT)]
    scene.lab.start(node.name, SOURCE, source)
    scene.wait("the source", lambda: _look_for_source(scene, node.name), SOURCE_SECONDS)
    mode = "grpc" if scene.tunnel.spec.mode is Mode.GRPC else "http-connect"
    reader = [sys.executable, "-m", "umbilical.cli.lab.slow_reader", mode, scene.tunnel.spec.socket_on_host]
    scene.lab.start(BOOTSTRAP, READER, [*reader, f"{address}:{SOURCE_PORT}"])
    return {"node": node.name}


def _look_for_source(scene: Scene, node: str) -> None:
    said = scene.lab.log(node, SOURCE)
    if READY not in said:
        raise NotYet(said.strip() or "it does not listen yet")


def _end_reader(scene: Scene, memory: Memory) -> None:
    ours = [(BOOTSTRAP, READER), (scene.members[-1].name, SOURCE)]
    for process in scene.lab.processes():
        if (process.node, process.name) in ours and process.exit_code is None:
            scene.lab.stop(process.node, process.name, kill=True)


FAULTS: Final = (
    Fault(
        "stale-socket",
        "a socket file on which nobody listens lies where the server's belongs",
        "calls end in `context deadline exceeded`: the socket is there and refuses, until a server replaces the file",
        "UMB410",
        Speaker.SERVER,
        _leave_dead_socket,
        _put_server_back,
    ),
    Fault(
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
