"""The process that holds a lab: `unshare ... -- python -m umbilical.lab.keeper DIRECTORY`.

It is two processes. The first is PID 1 of the lab: it reaps orphans, and when it ends the kernel ends all others. The
second builds networks and nodes, then answers on the control socket. Standard input is the leash: if it closes before
`STAY` arrives, the lab ends. Standard output gets one line that reports the start.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.host.files import make_directory
from umbilical.host.namespaces import MountFlag
from umbilical.lab import node_root, removal
from umbilical.lab.binaries import install_programs
from umbilical.lab.keeper_launch import STAY
from umbilical.lab.keeper_service import KeeperService
from umbilical.lab.network import LabNetwork
from umbilical.lab.state import LabDirectory, LabState, read_state
from umbilical.lab.topology import Topology

LEASH: Final = 0
REPORT: Final = 1


class StopReason(Enum):
    ORDERED = "ordered"
    ABANDONED = "abandoned"


def main() -> int:
    directory = LabDirectory(Path(sys.argv[1]))
    # The old /proc still has our pid outside; the next mount replaces it.
    host_pid = int(os.readlink("/proc/self"))
    _forget_our_parent()
    namespaces.mount("proc", "/proc", "proc", MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC)
    namespaces.mount("tmpfs", directory.run, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEVICES, "mode=0755")
    child = os.fork()
    if child:
        return _adopt_orphans(child)
    return _keep(directory, host_pid)


def _forget_our_parent() -> None:
    """Reset what programs on nodes would inherit: umask, signals, and the directory's lock."""
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)


def _adopt_orphans(keeper: int) -> int:
    """Act as PID 1: forward stop signals, reap processes, and end with the keeper."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(keeper, signal.SIGTERM))
    # Only the keeper may hold the pipes: closing them is a message.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, LEASH)
    os.dup2(nowhere, REPORT)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == keeper:
            return os.waitstatus_to_exitcode(status)


def _keep(directory: LabDirectory, host_pid: int) -> int:
    try:
        state = read_state(directory)
        assert state is not None, f"no state in {directory.path}"
        # Before the event loop: libraries with their own loop cannot run inside another.
        network = LabNetwork(state.topology, make_directory(directory.network_namespaces, 0o755))
        network.build()
        anchors = _start_nodes(directory, state, network)
        reason = asyncio.run(_serve(KeeperService(directory, state.topology, network, anchors), directory, host_pid))
        if reason is StopReason.ABANDONED:
            _leave_nothing(directory)
    except LabError as fault:
        _report({"fault": [fault.code, fault.what, fault.why, fault.remedy]})
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


async def _serve(service: KeeperService, directory: LabDirectory, host_pid: int) -> StopReason:
    stop = _stop_requests()
    server = await asyncio.start_unix_server(service.answer, sock=_listen(directory), limit=service.LINE_LIMIT_BYTES)
    _report({"host_pid": host_pid})
    reason = await stop
    # Not `async with`: it waits for open connections.
    server.close()
    if reason is StopReason.ORDERED:
        await service.stop()
    return reason


def _stop_requests() -> "asyncio.Future[StopReason]":
    """Return a future with the reason to stop: a signal, or the leash was closed."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[StopReason] = loop.create_future()

    def end(reason: StopReason) -> None:
        if not stop.done():
            stop.set_result(reason)

    def read_leash() -> None:
        loop.remove_reader(LEASH)
        if os.read(LEASH, len(STAY)) != STAY:
            end(StopReason.ABANDONED)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, StopReason.ORDERED)
    loop.add_reader(LEASH, read_leash)
    return stop


def _leave_nothing(directory: LabDirectory) -> None:
    """Remove the lab: the process that started it is gone."""
    with contextlib.suppress(ProcessLookupError):
        # All but PID 1 and this process.
        os.kill(-1, signal.SIGKILL)
    os.chdir("/")
    namespaces.unmount(directory.run, is_lazy=True)
    removal.remove_remains(directory)


def _listen(directory: LabDirectory) -> socket.socket:
    # A relative name: the absolute path may be too long for a socket address.
    os.chdir(directory.path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    listener.bind(directory.control_socket.name)
    os.umask(old)
    return listener


def _start_nodes(directory: LabDirectory, state: LabState, network: LabNetwork) -> dict[str, int]:
    binaries = list(state.binaries.values())
    install_programs(make_directory(directory.bin, 0o755), {name: Path(path) for name, path in state.binaries.items()})
    shared = node_root.shared_directories(binaries)
    anchors: dict[str, int] = {}
    for node in state.topology.nodes:
        root = directory.node_root(node.name)
        node_root.build(root, node.name, _hosts(state.topology), directory.bin, binaries, shared)
        make_directory(directory.logs / node.name)
        anchors[node.name] = _anchor(root, node.name, network.namespace(node.name), binaries, shared)
    return anchors


def _anchor(root: Path, name: str, network: Path, binaries: list[str], shared: list[str]) -> int:
    """Start the process that holds the node's namespaces; return its pid when the node is ready."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _become_anchor(root, name, network, binaries, shared, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        refusal = stream.read().decode(errors="replace")
    if refusal:
        what = f"the node {name} was not set up"
        raise LabError("UMB814", what, refusal, "inside a container, try on the machine itself")
    return child


def _become_anchor(
    root: Path, name: str, network: Path, binaries: list[str], shared: list[str], refusal: int
) -> NoReturn:
    # The pipe closes on exec: an empty pipe means success.
    try:
        os.setsid()
        node_root.enter(root, name, network, binaries, shared)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, LEASH)
        os.dup2(nowhere, REPORT)
        node_root.anchor(name)
    except BaseException as error:
        os.write(refusal, str(error).encode()[:4096] or b"unknown")
    os._exit(1)


def _hosts(topology: Topology) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    lines += [f"{address.ip} {node.name}" for node in topology.nodes for address in node.addresses]
    return "\n".join(lines) + "\n"


def _report(content: dict[str, object]) -> None:
    with os.fdopen(os.dup(REPORT), "wb") as stream:
        stream.write(json.dumps(content).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
