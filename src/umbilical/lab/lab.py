"""A lab from outside: start it, run programs on its nodes, write their files, change their network, remove it.

All of it goes through the keeper, the only process that creates namespaces.
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

# For the keeper's own work, in addition to the program's timeout.
EXEC_MARGIN_SECONDS: Final = 15.0
LINES_SHOWN: Final = 3
_FROM_TERMINAL: Final = ("TERM", "COLORTERM", "LANG", "LC_ALL", "NO_COLOR")


@dataclass(frozen=True)
class UpRequest:
    directory: Path
    name: str
    topology: Topology
    runner: RunnerKind = RunnerKind.PROCESS
    binaries: Mapping[str, Path] = field(default_factory=dict)
    """Program name -> its path on this machine. Every node has it at the same path and on its PATH."""
    image: Path | None = None
    """Archive of an image for server and agents; only the kubelet runner can run it."""
    with_parent: bool = False
    """Whether the lab ends with the process that started it."""


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
        """Return itself if the program succeeded. Raises LabError: it failed; the last lines are in the message."""
        if self.exit_code == 0:
            return self
        lines = (self.stderr or self.stdout).decode(errors="replace").strip().splitlines()[-LINES_SHOWN:]
        shown = " ".join(self.command)
        raise LabError(
            "UMB816",
            f"{self.command[0]} failed on {self.node}",
            " | ".join(lines) or f"it exited with {self.exit_code} and printed nothing",
            f"umbilical lab shell {self.node} -- {shown}",
        )


@dataclass(frozen=True)
class ProcessStatus:
    node: str
    name: str
    pid: int
    """In the lab's PID namespace."""
    exit_code: int | None
    """None while it runs; negative: the signal that ended it."""


class Lab:
    """A lab that is up."""

    def __init__(self, directory: LabDirectory, state: LabState) -> None:
        self.directory = directory
        self.state = state

    @classmethod
    def open(cls, path: Path) -> "Lab":
        """Open a lab that is up. Raises LabError: there is none, or its keeper has ended (UMB815)."""
        directory = LabDirectory(path)
        state = read_state(directory)
        if state is None:
            why = "it has no state file of a lab" if directory.path.is_dir() else "the directory does not exist"
            raise LabError("UMB815", f"no lab in {directory.path}", why, _where_else())
        if not state.is_alive():
            why = "its keeper has ended: it was killed, or the machine was restarted"
            remedy = f"umbilical lab down --dir {directory.path}, then umbilical lab up"
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

        Raises LabError: unknown node, timeout, or too much output. For a failed program see `CompletedCommand.check`.
        """
        arguments = {**_program(node, command, environment), "timeout_seconds": timeout_seconds}
        arguments["has_stdin"] = stdin is not None
        answer = self._ask("exec", arguments, stdin or b"", timeout_seconds + EXEC_MARGIN_SECONDS)
        return _completed(node, command, answer, timeout_seconds)

    def shell(self, node: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a program on a node with the caller's terminal; by default a shell.

        First the keeper's namespaces, then those of the node's anchor, whose pid is valid only there. Of the caller's
        environment only what describes the terminal is passed on.
        """
        nsenter = isolation.find_program("nsenter") or "/usr/bin/nsenter"
        user = ["--user", "--preserve-credentials"] if self.state.is_rootless else []
        outer = [nsenter, f"--target={self.state.keeper_pid}", *user, "--mount", "--pid", "--"]
        inner = [nsenter, f"--target={self.anchor(node)}", "--mount", "--uts", "--net", "--"]
        terminal = {name: os.environ[name] for name in _FROM_TERMINAL if name in os.environ}
        prompt = f"[{self.state.name}] \\u@\\h:\\w\\$ "
        environment = {**terminal, **node_root.environment(node), "PS1": prompt}
        settings = [f"{name}={value}" for name, value in environment.items()]
        return ["env", "-i", *settings, *outer, *inner, *(command or ("bash", "-i"))]

    def start(
        self,
        node: str,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        restarts: bool = False,
    ) -> None:
        """Start a program in the background; see `log`. `restarts`: it starts again when it ends by itself.

        Raises LabError: the name is in use there (UMB817).
        """
        self._ask("start", {**_program(node, command, environment), "name": name, "restarts": restarts})

    def stop(self, node: str, name: str, *, kill: bool = False) -> None:
        """End a program of `start`: SIGTERM, then SIGKILL after five seconds; with `kill` SIGKILL at once."""
        self._ask("stop", {"node": node, "name": name, "kill": kill})

    def processes(self) -> list[ProcessStatus]:
        """Return the programs of `start`, ended ones included."""
        return [ProcessStatus(*row) for row in self._ask("processes", {}).fields["processes"]]

    def process(self, node: str, name: str) -> ProcessStatus:
        """Return the last program of that name on a node."""
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
        """Count the bytes of a TCP port of a node from now on; `remove_rules` with this name ends it."""
        self._change_network("count_port", node, name, port)

    def counted_bytes(self, node: str, name: str) -> int:
        return int(self._ask("counted", {"node": node, "name": name}).fields["bytes"])

    def describe_network(self) -> dict[str, Any]:
        network = self._ask("describe", {}).fields["network"]
        assert isinstance(network, dict)
        return network

    def anchor(self, node: str) -> int:
        """Return the pid, in the lab, of the process that holds the node's namespaces."""
        self.topology.node(node)
        return int(self._ask("anchors", {}).fields["anchors"][node])

    def set_breakages(self, breakages: Mapping[str, object]) -> None:
        """Save the current breakages, for repair from any terminal."""
        self.state = change_state(self.directory, lambda state: replace(state, faults=dict(breakages)))

    def breakages(self) -> dict[str, object]:
        """Read the current breakages; another terminal may have changed them."""
        state = read_state(self.directory)
        return {} if state is None else dict(state.faults)

    def set_cgroup(self, name: str) -> None:
        """Save the control group that `down` has to remove: it outlives its processes."""
        self.state = change_state(self.directory, lambda state: replace(state, cgroup=name))

    def stay(self) -> None:
        """Let the lab outlive this process."""
        keeper_launch.let_go(self.directory)

    def down(self) -> None:
        """Remove the lab; safe to call twice."""
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
    return f"existing labs (--name): {', '.join(others)}" if others else "umbilical lab up"


def up(request: UpRequest) -> Lab:
    """Create a lab: networks and nodes, with nothing running on them.

    Raises LabError: the machine does not allow it (UMB820 and up), the directory is in use (UMB813), or the keeper
    did not start (UMB814). Nothing is left behind then.
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
        image=os.path.abspath(request.image) if request.image else None,
    )
    return Lab(directory, keeper_launch.begin(directory, state, kind, with_parent=request.with_parent))


def down(path: Path) -> bool:
    """Remove the lab in a directory; return whether there was one. Safe to call twice.

    Raises LabError: the directory contains something else (UMB813), or the keeper does not end (UMB819).
    """
    was_there = removal.down(path)
    keeper_launch.reap_keeper(LabDirectory(path))
    return was_there


def _program(node: str, command: Sequence[str], environment: Mapping[str, str] | None) -> dict[str, Any]:
    return {"node": node, "command": [os.fspath(part) for part in command], "environment": dict(environment or {})}


def _completed(node: str, command: Sequence[str], answer: Message, timeout_seconds: float) -> CompletedCommand:
    exit_code, size = answer.fields["exit_code"], answer.fields["stdout_bytes"]
    shown = f"{command[0]} on {node}"
    if not answer.fields["is_whole"]:
        why = f"it printed more than {control.MAX_PAYLOAD_BYTES // 2} bytes and was killed"
        raise LabError("UMB816", f"{shown} printed too much", why, "redirect its output to a file on the node")
    if exit_code is None:
        why = f"it was still running after {timeout_seconds:g} s and was killed with its children"
        raise LabError("UMB816", f"{shown} timed out", why, f"umbilical lab shell {node}")
    return CompletedCommand(node, tuple(command), exit_code, answer.payload[:size], answer.payload[size:])
