"""What a lab is, on disk: enough to find its keeper from another terminal, and to clear up after a crash."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Final

from umbilical.fault import LabError
from umbilical.host.files import write_file
from umbilical.lab.paths import LabDirectory
from umbilical.lab.runner import RunnerKind
from umbilical.lab.topology import Topology

FORMAT: Final = 1
# proc_pid_stat(5): field 22, counted from after the command's name, which may hold blanks and brackets itself.
_START_TIME: Final = 19
_STATE: Final = 0


@dataclass(frozen=True)
class LabState:
    name: str
    topology: Topology
    runner: RunnerKind
    is_rootless: bool
    version: str
    """Of umbilical, when the lab was made."""
    binaries: Mapping[str, str] = field(default_factory=dict)
    """Name of a program -> its path on this machine, and on every node."""
    keeper_pid: int | None = None
    """As this machine sees it; None until the lab is up."""
    keeper_start: int | None = None
    """Clock ticks after boot: another process that is given the same number later began at another time."""
    cgroup: str | None = None
    """Only the kubelet's pods have one."""
    faults: Mapping[str, object] = field(default_factory=dict)
    """What is broken now, with what it takes to mend it."""

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
        """Read what `to_json` said.

        Raises:
            LabError: it is something else.
        """
        try:
            return _state(json.loads(content))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _unreadable(f"{type(error).__name__}: {error}") from error


def start_time(pid: int) -> int | None:
    """When a process began, in clock ticks after boot; None if there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_START_TIME])


def read_state(directory: LabDirectory) -> LabState | None:
    """Return None where there is no lab.

    Raises:
        LabError: there is something that cannot be read as one.
    """
    try:
        return LabState.from_json(directory.state_file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        why = error.strerror or str(error)
        raise LabError("UMB815", f"cannot look into {directory.path}", why, "run it as the lab's owner") from error


def write_state(directory: LabDirectory, state: LabState) -> LabState:
    write_file(directory.state_file, state.to_json(), overwrite=True)
    return state


def change_state(directory: LabDirectory, change: Callable[[LabState], LabState]) -> LabState:
    """Read, change and write it with nobody in between: faults may be made from two terminals at once.

    Raises:
        LabError: there is no lab any more.
    """
    with _locked(directory.state_lock):
        state = read_state(directory)
        if state is None:
            raise LabError("UMB815", f"no lab in {directory.path}", "it was taken down", "run `umbilical lab up`")
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
        "keeper_pid": (int, NoneType),
        "keeper_start": (int, NoneType),
    }
    wrong = [name for name, allowed in kinds.items() if type(getattr(state, name)) not in allowed]
    if wrong or not all(isinstance(path, str) for path in state.binaries.values()):
        raise ValueError(f"of the wrong type: {', '.join(wrong) or 'binaries'}")


def _unreadable(why: str) -> LabError:
    remedy = "run `umbilical lab down`, which removes the lab whatever its state file says"
    return LabError("UMB815", "the lab's state cannot be read", why, remedy)
