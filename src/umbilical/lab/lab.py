"""The lab's face: bring one up, run programs on its nodes, write their files, cut their links, take it down.

Everything here runs outside the lab and asks its keeper. Namespaces are made in no process but the keeper.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import umbilical
from umbilical.fault import LabError
from umbilical.lab import control, isolation, keeper_launch, node_root, removal
from umbilical.lab.control import Message
from umbilical.lab.state import LabDirectory, LabState, RunnerKind, change_state, list_labs, read_state, tidy_name
from umbilical.lab.topology import Topology

# For the keeper's own work, on top of the time that a program on a node is given.
EXEC_MARGIN_SECONDS: Final = 15.0
LINES_SHOWN: Final = 3


@dataclass(frozen=True)
class UpRequest:
    directory: Path
    name: str
    topology: Topology
    runner: RunnerKind = RunnerKind.PROCESS
    binaries: Mapping[str, Path] = field(default_factory=dict)
    """Name of a program -> where it lies on this machine. Every node has it, at the same path and on its PATH."""
    with_parent: bool = False
    """End the lab with the process that asked for it, however that ends."""


@dataclass(frozen=True)
class CompletedCommand:
    node: str
    command: tuple[str, ...]
    exit_code: int
    """Negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    def check(self) -> "CompletedCommand":
        """Return itself if the program succeeded. Raises LabError: it did not; its last words are in the message."""
        if self.exit_code == 0:
            return self
        lines = (self.stderr or self.stdout).decode(errors="replace").strip().splitlines()[-LINES_SHOWN:]
        shown = " ".join(self.command)
        raise LabError(
            "UMB816",
            f"{self.command[0]} failed on {self.node}",
            " | ".join(lines) or f"it exited with {self.exit_code} and said nothing",
            f"run it by hand: umbilical lab shell {self.node} -- {shown}",
        )


@dataclass(frozen=True)
class ProcessStatus:
    node: str
    name: str
    pid: int
    """As the lab's own processes see it."""
    exit_code: int | None
    """None while it runs; negative: the signal that ended it."""


class Lab:
    """A lab that is up."""

    def __init__(self, directory: LabDirectory, state: LabState) -> None:
        self.directory = directory
        self.state = state

    @classmethod
    def open(cls, path: Path) -> "Lab":
        """Find a lab that is up. Raises LabError: there is none, or its keeper has ended (UMB815)."""
        directory = LabDirectory(path)
        state = read_state(directory)
        if state is None:
            why = "there is no lab's state file" if directory.path.is_dir() else "there is no such directory"
            raise LabError("UMB815", f"no lab in {directory.path}", why, _where_else())
        if not state.is_alive():
            why = "its keeper has ended: it was killed, or the machine was started anew"
            remedy = f"clear up with `umbilical lab down --dir {directory.path}`, then `umbilical lab up`"
            raise LabError("UMB815", f"the lab in {directory.path} is not up", why, remedy)
        return cls(directory, state)

    @property
    def topology(self) -> Topology:
        return self.state.topology

    def exec(
        self,
        node: str,
        command: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> CompletedCommand:
        """Run a program on a node to its end.

        Raises LabError: no such node, no end in time, or more output than an answer can carry. That the program failed
        is no error here: see `Completed.check`.
        """
        arguments = {**_program(node, command, environment), "timeout_seconds": timeout_seconds}
        arguments["has_stdin"] = stdin is not None
        answer = self._ask("exec", arguments, stdin or b"", timeout_seconds + EXEC_MARGIN_SECONDS)
        return _completed(node, command, answer, timeout_seconds)

    def start(
        self, node: str, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a program in the background; see `log`. Raises LabError: one of that name runs there (UMB817)."""
        self._ask("start", {**_program(node, command, environment), "name": name})

    def stop(self, node: str, name: str, *, kill: bool = False) -> None:
        """End a program that `start` began: by SIGTERM, after five seconds or with `kill` at once by SIGKILL."""
        self._ask("stop", {"node": node, "name": name, "kill": kill})

    def processes(self) -> list[ProcessStatus]:
        """Return what `start` began, also what has ended since."""
        return [ProcessStatus(*row) for row in self._ask("processes", {}).fields["processes"]]

    def process(self, node: str, name: str) -> ProcessStatus:
        """Return the last of that name that was started there."""
        return [row for row in self.processes() if (row.node, row.name) == (node, name)][-1]

    def log(self, node: str, name: str) -> str:
        try:
            return self.directory.log_file(node, name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def write(self, node: str, path: str, content: bytes, mode: int = 0o600) -> None:
        node_root.write(self._root(node), path, content, mode)

    def read(self, node: str, path: str) -> bytes:
        return node_root.read(self._root(node), path)

    def remove(self, node: str, path: str) -> None:
        node_root.remove(self._root(node), path)

    def exists(self, node: str, path: str) -> bool:
        return node_root.exists(self._root(node), path)

    def write_all(self, node: str, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            self.write(node, path, content)

    def set_link(self, node: str, up: bool) -> None:
        self._change_network("set_link", node, up)

    def set_default_route(self, node: str, present: bool) -> None:
        self._change_network("set_default_route", node, present)

    def add_rules(self, node: str, name: str, ruleset: str) -> None:
        self._change_network("add_rules", node, name, ruleset)

    def remove_rules(self, node: str, name: str) -> None:
        self._change_network("remove_rules", node, name)

    def count_port(self, node: str, name: str, port: int) -> None:
        """Begin to count the bytes of a TCP port of a node, under a name; `remove_rules` ends it."""
        self._change_network("count_port", node, name, port)

    def counted_bytes(self, node: str, name: str) -> int:
        return int(self._ask("counted", {"node": node, "name": name}).fields["bytes"])

    def describe_network(self) -> dict[str, Any]:
        network = self._ask("describe", {}).fields["network"]
        assert isinstance(network, dict)
        return network

    def anchor(self, node: str) -> int:
        """Return the pid, inside the lab, of the process that holds the node's namespaces."""
        self.topology.node(node)
        return int(self._ask("anchors", {}).fields["anchors"][node])

    def set_breakages(self, breakages: Mapping[str, object]) -> None:
        """Write down what is broken now, for whoever mends it from another terminal."""
        self.state = change_state(self.directory, lambda state: replace(state, faults=dict(breakages)))

    def breakages(self) -> dict[str, object]:
        """Read what is broken now; another terminal may have changed it since."""
        state = read_state(self.directory)
        return {} if state is None else dict(state.faults)

    def set_cgroup(self, name: str) -> None:
        """Write down what `down` has to remove besides the keeper: cgroups outlive every process."""
        self.state = change_state(self.directory, lambda state: replace(state, cgroup=name))

    def stay(self) -> None:
        """Let a lab that was to end with this process live on after it."""
        keeper_launch.let_go(self.directory)

    def down(self) -> None:
        """Take it down; doing it twice is fine."""
        down(self.directory.path)

    def _root(self, node: str) -> Path:
        return self.directory.node_root(self.topology.node(node).name)

    def _change_network(self, change: str, *parameters: object) -> None:
        self._ask("network", {"change": change, "parameters": parameters})

    def _ask(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        payload: bytes = b"",
        timeout_seconds: float = control.ANSWER_SECONDS,
    ) -> Message:
        question = Message({"operation": operation, "arguments": arguments}, payload)
        return control.ask(self.directory, question, timeout_seconds)


def _where_else() -> str:
    others = [path.name for path in list_labs()]
    return f"labs that there are: {', '.join(others)} (--name)" if others else "bring one up: umbilical lab up"


def up(request: UpRequest) -> Lab:
    """Bring a lab up: networks and nodes, with nothing running on them yet.

    Raises LabError: the machine does not allow it (UMB820 and up), the directory is occupied (UMB813), or the keeper
    did not come up (UMB814). Nothing is left behind.
    """
    kind = isolation.choose()
    directory = LabDirectory(request.directory)
    state = LabState(
        name=tidy_name(request.name),
        topology=request.topology,
        runner=request.runner,
        is_rootless=kind.is_rootless,
        version=umbilical.__version__,
        binaries={name: os.path.abspath(path) for name, path in request.binaries.items()},
    )
    return Lab(directory, keeper_launch.begin(directory, state, kind, with_parent=request.with_parent))


def down(path: Path) -> bool:
    """Take down whatever lab is in a directory, and tell whether there was one. Doing it twice is fine.

    Raises LabError: the directory is not a lab's (UMB813), or its keeper does not end (UMB819).
    """
    was_there = removal.down(path)
    keeper_launch.take_note_of_end(LabDirectory(path))
    return was_there


def _program(node: str, command: Sequence[str], environment: Mapping[str, str] | None) -> dict[str, Any]:
    return {"node": node, "command": [os.fspath(part) for part in command], "environment": dict(environment or {})}


def _completed(node: str, command: Sequence[str], answer: Message, timeout_seconds: float) -> CompletedCommand:
    exit_code, size = answer.fields["exit_code"], answer.fields["stdout_bytes"]
    shown = f"{command[0]} on {node}"
    if not answer.fields["is_whole"]:
        why = f"it printed more than {control.MAX_PAYLOAD_BYTES // 2} bytes and was killed"
        raise LabError("UMB816", f"{shown} printed too much", why, "let it print into a file on the node")
    if exit_code is None:
        why = f"it still ran after {timeout_seconds:g} s and was killed with all that it had started"
        raise LabError("UMB816", f"{shown} did not end in time", why, f"try it: umbilical lab shell {node}")
    return CompletedCommand(node, tuple(command), exit_code, answer.payload[:size], answer.payload[size:])
