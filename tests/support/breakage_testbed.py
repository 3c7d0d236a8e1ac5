"""A testbed with a lab in memory that records what breakages do to it."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from umbilical.bootstrap.names import AGENT_NAME, SERVER_NAME
from umbilical.fault import LabError
from umbilical.lab import scenario_run
from umbilical.lab.breakages import registry
from umbilical.lab.breakages.registry import Breakage, Speaker
from umbilical.lab.lab import CompletedCommand, Lab, ProcessStatus
from umbilical.lab.runner import ContainerStatus, LabRunner, PodStatus
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import BOOTSTRAP, Testbed, WebhookVerdict
from umbilical.lab.topology import Topology, plan_topology
from umbilical.lab.transcript import CallResult, Transcript
from umbilical.lab.tunnel_parts import ScenarioOptions


class MemoryRunner:
    """Runs nothing; a changed manifest of the server is another process of it."""

    kind = RunnerKind.PROCESS

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {SERVER_NAME: [], AGENT_NAME: []}
        self.signals: list[str] = []
        self.server_pid: int | None = 100
        self.agents_run = True

    def saw_file(self, path: str) -> None:
        if SERVER_NAME in path and "manifests" in path:
            self.server_pid = (self.server_pid or 100) + 1

    def lost_file(self, path: str) -> None:
        if SERVER_NAME in path and "manifests" in path:
            self.server_pid = None

    def pods(self, lab: object, node: str) -> list[PodStatus]:
        if node == BOOTSTRAP:
            return [] if self.server_pid is None else [_pod(SERVER_NAME, node, self.server_pid)]
        return [_pod(f"{AGENT_NAME}-x7", node, 200 if self.agents_run else None, AGENT_NAME)]

    def signal(self, lab: object, node: str, pod: str, container: str, number: signal.Signals) -> None:
        self.signals.append(f"{number.name} {node}/{pod}/{container}")

    def logs(self, lab: object, node: str, pod: str, container: str) -> str:
        return "\n".join(self.lines[container])


@dataclass
class MemoryLab:
    """The parts of `Lab` that breakages touch."""

    topology: Topology = field(default_factory=lambda: plan_topology(masters=1, workers=1))
    did: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    started: list[ProcessStatus] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes, bytes]] = field(default_factory=dict)
    """What a program on a node says, by its name."""
    broken: dict[str, object] = field(default_factory=dict)
    runner: MemoryRunner = field(default_factory=MemoryRunner)

    def exec(self, node: str, command: Sequence[str], **options: object) -> CompletedCommand:
        self.did.append(f"{node}$ {' '.join(command)}")
        return CompletedCommand(node, tuple(command), *self.answers.get(command[0], (0, b"", b"")))

    def start(self, node: str, name: str, command: Sequence[str]) -> None:
        self.did.append(f"{node}& {' '.join(command)}")
        self.started.append(ProcessStatus(node, name, 7, None))

    def log(self, node: str, name: str) -> str:
        return "listening\n"

    def stop(self, node: str, name: str, *, kill: bool = False) -> None:
        self.did.append(f"stop {node}/{name}")
        self.started = [one for one in self.started if (one.node, one.name) != (node, name)]

    def processes(self) -> list[ProcessStatus]:
        return self.started

    def write(self, node: str, path: str, content: bytes, mode: int = 0o600) -> None:
        self.did.append(f"write {node}:{path}")
        self.files[path] = content
        self.runner.saw_file(path)

    def read(self, node: str, path: str) -> bytes:
        return self.files[path]

    def remove(self, node: str, path: str) -> None:
        self.did.append(f"remove {node}:{path}")
        self.files.pop(path, None)
        self.runner.lost_file(path)

    def exists(self, node: str, path: str) -> bool:
        return path in self.files

    def set_link(self, node: str, up: bool) -> None:
        self.did.append(f"link of {node} {'up' if up else 'down'}")

    def set_default_route(self, node: str, present: bool) -> None:
        self.did.append(f"default route of {node} {'there' if present else 'gone'}")

    def add_rules(self, node: str, name: str, ruleset: str) -> None:
        self.did.append(f"rules {name} on {node}")

    def remove_rules(self, node: str, name: str) -> None:
        self.did.append(f"no rules {name} on {node}")

    def breakages(self) -> dict[str, object]:
        return dict(self.broken)

    def set_breakages(self, breakages: Mapping[str, object]) -> None:
        self.broken = dict(breakages)


def _pod(name: str, node: str, pid: int | None, container: str = "") -> PodStatus:
    status = ContainerStatus(container or name, "localhost/umbilical:lab", pid, 0, True)
    return PodStatus("kube-system", name, node, "10.91.0.10", (status,))


class MemoryTestbed(Testbed):
    """Calls end as `verdict` says; everybody is connected unless `trouble` says what is wrong."""

    def __init__(
        self, lab: MemoryLab | None = None, options: ScenarioOptions | None = None, transcript: Transcript | None = None
    ) -> None:
        self.memory = lab or MemoryLab()
        super().__init__(cast(Lab, self.memory), options or ScenarioOptions(), transcript or Transcript("breakages"))
        self.verdict = WebhookVerdict(CallResult.ALLOWED, "created")
        self.trouble = ""
        self.calls = 0

    @property
    def scripted(self) -> MemoryRunner:
        return self.memory.runner

    @property
    def runner(self) -> LabRunner:
        return cast(LabRunner, self.memory.runner)

    def lay(self) -> "MemoryTestbed":
        """Lay a tunnel: real certificates and real files, in memory."""
        self.make_tunnel()
        self.write_files(BOOTSTRAP, self.tunnel.files)
        self.memory.did.clear()
        return self

    def save(self) -> None: ...

    def call_webhook(self, verdict: str, *, production: bool = False) -> WebhookVerdict:
        self.calls += 1
        return self.verdict

    def call_times(self, count: int) -> list[float]:
        self.calls += count
        return [0.01] * count

    def server_socket(self) -> str:
        if self.trouble:
            raise LabError("UMB850", "waited in vain for the server", self.trouble, "look")
        return "there"

    def connected_agents(self) -> list[str]:
        return [node.name for node in self.members]

    has_production = False
    caller = "nobody"
    cutter = "nobody"

    def start_control_plane(self) -> None: ...
    def start_nodes(self) -> None: ...
    def start_webhook(self) -> str:
        return "worker-0"

    def start_production(self) -> None: ...
    def use_tunnel(self) -> None: ...
    def start_agents(self) -> None: ...
    def teardown(self) -> str:
        return ""

    def leftovers(self) -> list[str]:
        return []

    def retire_bootstrap(self) -> None: ...


def breakage(
    name: str = "agent-kill", *, code: str = "UMB302", speaker: Speaker = Speaker.SERVER, **more: Any
) -> Breakage:
    """A breakage that says its line as it breaks, and writes both ends down."""

    def break_(testbed: Testbed) -> dict[str, Any]:
        assert isinstance(testbed, MemoryTestbed)
        testbed.memory.did.append(f"broke {name}")
        who = SERVER_NAME if speaker is Speaker.SERVER else AGENT_NAME
        testbed.scripted.lines[who].append(f"W1115 {code} {name}")
        return {"number": 1}

    def mend(testbed: Testbed, memory: dict[str, Any]) -> None:
        assert isinstance(testbed, MemoryTestbed)
        testbed.memory.did.append(f"mended {name} with {memory}")

    return Breakage(name, "it breaks", "nothing works", code, speaker, break_, mend, **more)


def open_everywhere(monkeypatch: pytest.MonkeyPatch) -> MemoryTestbed:
    """Lay a tunnel in memory: whoever opens a lab finds this one, and in it a breakage of any name."""
    testbed = MemoryTestbed().lay()

    def load(lab: object, transcript: Transcript) -> MemoryTestbed:
        testbed.transcript = transcript
        return testbed

    monkeypatch.setattr(Lab, "open", lambda path: testbed.lab)
    monkeypatch.setattr(scenario_run, "load_testbed", load)
    monkeypatch.setattr(registry, "find", breakage)
    return testbed
