"""A lab on disk: one directory, with the state that other terminals and the clean-up after a crash need."""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Final

from umbilical.fault import LabError
from umbilical.host.files import write_file
from umbilical.lab.topology import Topology

DEFAULT_NAME: Final = "lab"
# It is also the name of a directory and of cgroups.
LAB_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
LONGEST_NAME: Final = 40
STATE: Final = "state.json"
LOCK: Final = "lock"
# In the order in which `down` deletes. The state file is last, so that the rest is still recognised as a lab.
CONTENT: Final = ("nodes", "run", "logs", "bin", "images", "scene.json", "control.sock", "state.lock", LOCK, STATE)


class LabDirectory:
    """Paths in a lab's directory. Does not access the disk."""

    def __init__(self, path: Path) -> None:
        # The real path, because a keeper is found by the path on its command line.
        self.path = Path(os.path.realpath(path))

    @property
    def state_file(self) -> Path:
        return self.path / STATE

    @property
    def state_lock(self) -> Path:
        """Held while the state is changed."""
        return self.path / "state.lock"

    @property
    def lock_file(self) -> Path:
        """Held by the process that creates the lab, then by its keeper."""
        return self.path / LOCK

    @property
    def control_socket(self) -> Path:
        return self.path / "control.sock"

    @property
    def nodes(self) -> Path:
        return self.path / "nodes"

    def node_root(self, name: str) -> Path:
        """Directory of a node's own files. The machine's files are mounted, visible only inside the node."""
        return self.nodes / name

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log_file(self, node: str, name: str) -> Path:
        return self.logs / node / f"{name}.log"

    @property
    def keeper_log(self) -> Path:
        return self.logs / "keeper.log"

    @property
    def bin(self) -> Path:
        """Programs that every node has in /usr/local/bin."""
        return self.path / "bin"

    @property
    def run(self) -> Path:
        """A tmpfs in the keeper's namespace; outside it is empty."""
        return self.path / "run"

    @property
    def network_namespaces(self) -> Path:
        return self.run / "netns"

    @property
    def testbed_file(self) -> Path:
        return self.path / "scene.json"

    @property
    def images(self) -> Path:
        return self.path / "images"


def labs_root() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "umbilical" / "labs"


def default_directory(name: str = DEFAULT_NAME) -> Path:
    """Return the default directory of a lab. Raises LabError: the name is not valid (UMB810)."""
    if not LAB_NAME.fullmatch(name):
        why = "a lab's name has at most 40 lower-case letters, digits and hyphens, and no hyphen at the start or end"
        raise LabError("UMB810", f"{name!r} is not a valid name for a lab", why, "choose another --name")
    return labs_root() / name


def tidy_name(text: str) -> str:
    """Make a valid lab name from any directory name."""
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_NAME].strip("-")
    return kept or DEFAULT_NAME


def list_labs() -> list[Path]:
    """Return the labs in the default directory, up or not."""
    root = labs_root()
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


FORMAT: Final = 1
# proc_pid_stat(5): field 22, counted after the command's name, which may contain spaces and brackets.
_START_TIME: Final = 19
_STATE: Final = 0


class RunnerKind(Enum):
    PROCESS = "process"
    """Containers as processes with mounts of their own; works without root."""
    KUBELET = "kubelet"
    """The real kubelet and containerd; needs root."""


@dataclass(frozen=True)
class LabState:
    name: str
    topology: Topology
    runner: RunnerKind
    is_rootless: bool
    version: str
    """Version of umbilical that created the lab."""
    binaries: Mapping[str, str] = field(default_factory=dict)
    """Program name -> its path on this machine and on every node."""
    keeper_pid: int | None = None
    """In this machine's PID namespace; None until the lab is up."""
    keeper_start: int | None = None
    """Start time in clock ticks after boot, to recognise a reused pid."""
    cgroup: str | None = None
    """Only with the kubelet runner."""
    image: str | None = None
    """Archive of an image that every node has; server and agents run from it."""
    faults: Mapping[str, object] = field(default_factory=dict)
    """Current breakages by name, with the data for their repair."""

    def is_alive(self) -> bool:
        return self.keeper_pid is not None and start_time(self.keeper_pid) == self.keeper_start

    def to_json(self) -> bytes:
        content = {
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "format": FORMAT,
            "topology": self.topology.to_json(),
            "runner": self.runner.value,
            "binaries": dict(self.binaries),
        }
        return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> "LabState":
        """Decode the result of `to_json`. Raises LabError: it is not valid (UMB815)."""
        try:
            return _state(json.loads(content))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _unreadable(f"{type(error).__name__}: {error}") from error


def start_time(pid: int) -> int | None:
    """Return the start time in clock ticks after boot; None if the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_START_TIME])


def read_state(directory: LabDirectory) -> LabState | None:
    """Return the state; None without a lab. Raises LabError: the file is unreadable or not valid (UMB815)."""
    try:
        return LabState.from_json(directory.state_file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        why = error.strerror or str(error)
        raise LabError(
            "UMB815", f"no permission to read {directory.path}", why, "run the command as the lab's owner"
        ) from error


def write_state(directory: LabDirectory, state: LabState) -> LabState:
    write_file(directory.state_file, state.to_json(), overwrite=True)
    return state


def change_state(directory: LabDirectory, change: Callable[[LabState], LabState]) -> LabState:
    """Read, change and write the state under a lock. Raises LabError: there is no lab (UMB815)."""
    with _locked(directory.state_lock):
        state = read_state(directory)
        if state is None:
            raise LabError("UMB815", f"no lab in {directory.path}", "it was removed", "umbilical lab up")
        return write_state(directory, change(state))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state(content: object) -> LabState:
    if not isinstance(content, dict) or content.pop("format") != FORMAT:
        raise ValueError(f"not a lab's state of format {FORMAT}")
    topology, runner = Topology.from_json(content.pop("topology")), RunnerKind(content.pop("runner"))
    state = LabState(topology=topology, runner=runner, **content)
    _check_types(state)
    return state


def _check_types(state: LabState) -> None:
    kinds: dict[str, tuple[type, ...]] = {
        "name": (str,),
        "version": (str,),
        "is_rootless": (bool,),
        "binaries": (dict,),
        "faults": (dict,),
        "cgroup": (str, NoneType),
        "image": (str, NoneType),
        "keeper_pid": (int, NoneType),
        "keeper_start": (int, NoneType),
    }
    wrong = [name for name, allowed in kinds.items() if type(getattr(state, name)) not in allowed]
    if wrong or not all(isinstance(path, str) for path in state.binaries.values()):
        raise ValueError(f"wrong type: {', '.join(wrong) or 'binaries'}")


def _unreadable(why: str) -> LabError:
    remedy = "umbilical lab down; it also removes a lab with an invalid state file"
    return LabError("UMB815", "the lab's state was not read", why, remedy)
