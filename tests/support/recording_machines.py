"""Machines that only record commands, and return what a test has prepared."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from umbilical.fault import Fault
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.machines.interface import BackendServer, Done, InfraProbe, Power, Survey

Responder = Callable[[str, tuple[str, ...], bytes], Done | None]
"""Node, command and standard input -> an answer, or None where it is somebody else's."""


class RecordingMachines:
    def __init__(self, kind: str = "lab") -> None:
        self._kind = kind
        self.calls: list[str] = []
        self.machine_survey = Survey(16, 65536, 500, {})
        self.probes: list[InfraProbe] = []
        self.files: dict[tuple[str, str], bytes] = {}
        self.answers: dict[tuple[str, ...], Done] = {}
        self.responders: list[Responder] = []
        """Asked in order, where no answer stands ready."""
        self.powers: dict[str, Power] = {}
        self.installed: dict[str, bytes] = {}
        self.failed: dict[str, list[str]] = {}
        """Node -> services that should run and do not."""
        self.balancer_config = b""
        self.images: list[str] = []
        """Names in every archive."""
        self.servers: list[BackendServer] = []
        self.failing: dict[str, Fault] = {}
        """Name of a call -> what it raises."""

    @property
    def kind(self) -> str:
        return self._kind

    def survey(self, cluster: Cluster) -> Survey:
        self._asked("survey")
        return self.machine_survey

    def build(self, cluster: Cluster, infrastructure: Mapping[str, bytes]) -> None:
        self._asked("build", *sorted(infrastructure))

    def inspect(self, cluster: Cluster) -> list[InfraProbe]:
        self._asked("inspect")
        return self.probes

    def enter(self) -> None:
        self._asked("enter")

    def power(self, node_id: str) -> Power:
        return self.powers.get(node_id, Power.ABSENT)

    def install(self, node_id: str, ignition: bytes) -> None:
        self._asked("install", node_id)
        self.installed[node_id], self.powers[node_id] = ignition, Power.ON

    def is_installed(self, node_id: str, ignition: bytes) -> bool:
        return self.installed.get(node_id) == ignition

    def start(self, node_id: str) -> None:
        self._asked("start", node_id)
        self.powers[node_id] = Power.ON
        self.failed.pop(node_id, None)

    def failed_services(self, node_id: str) -> list[str]:
        return self.failed.get(node_id, [])

    def stop(self, node_id: str) -> None:
        self._asked("stop", node_id)
        self.powers[node_id] = Power.OFF

    def remove(self, node_id: str) -> None:
        self._asked("remove", node_id)
        self.powers.pop(node_id, None)
        self.installed.pop(node_id, None)

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        self._asked("run", node_id, *command)
        if (node_id, *command) in self.answers:
            return self.answers[node_id, *command]
        answers = (respond(node_id, tuple(command), stdin or b"") for respond in self.responders)
        return next((one for one in answers if one is not None), Done(127, b"", b"no such program"))

    def shell(self, node_id: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def load_image(self, node_id: str, archive: Path) -> list[str]:
        self._asked("load_image", node_id, str(archive))
        return self.images

    def read(self, node_id: str, path: str) -> bytes | None:
        return self.files.get((node_id, path))

    def write(self, node_id: str, path: str, content: bytes, mode: int = 0o600) -> None:
        self._asked("write", node_id, path, f"{mode:04o}")
        self.files[node_id, path] = content

    def set_balancer(self, config: bytes) -> None:
        self._asked("set_balancer")
        self.balancer_config = config

    def balancer(self) -> list[BackendServer]:
        self._fail("balancer")
        return self.servers

    def destroy(self) -> None:
        self._asked("destroy")
        self.powers.clear()
        self.installed.clear()

    def _asked(self, name: str, *values: str) -> None:
        self.calls.append(" ".join((name, *values)))
        self._fail(name)

    def _fail(self, name: str) -> None:
        if name in self.failing:
            raise self.failing[name]


class LocalMachines(RecordingMachines):
    """Commands run for real on this machine, with a node's paths below a folder."""

    def __init__(self, root: str = "") -> None:
        super().__init__()
        self._root = root

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        words = [f"{self._root}{word}" if word.startswith("/") else word for word in command]
        done = subprocess.run(words, capture_output=True, timeout=timeout_seconds, check=False)
        return Done(done.returncode, done.stdout, done.stderr)
