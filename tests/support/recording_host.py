"""A virtualisation host that is only a record: writes down each command line, and keeps as much state as they need."""

import shlex
from collections.abc import Sequence

from umbilical.hardway.machines.host import WRITE
from umbilical.host.commands import CommandResult
from umbilical.host.machine_records import Done

OK = Done(0, b"", b"")
NO = Done(1, b"", b"error: not found")


class RecordingHost:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.files: dict[str, bytes] = {}
        self.domains: dict[str, str] = {}
        self.networks: dict[str, str] = {}
        self.pools: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self.held: set[str] = set()
        """Checks of the host's plan that succeed."""
        self.answers: dict[str, Done] = {}
        """Command line -> answer, before anything else is looked at."""

    def run(self, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 120.0) -> Done:
        line = "write " + " ".join(command[4:]) if command[2:3] == (WRITE,) else shlex.join(command)
        self.lines.append(line)
        if line in self.answers:
            return self.answers[line]
        if line.startswith("write "):
            self.files[command[-1]] = stdin or b""
            return OK
        if command[0] == "virsh":
            return self._virsh(list(command[1:]), stdin or b"")
        return self._plain(list(command))

    def changes(self) -> list[str]:
        """The lines that change something."""
        asked = ("virsh domstate", "virsh net-info", "virsh pool-info", "virsh net-dumpxml", "test ", "cmp ", "cat ")
        return [line for line in self.lines if not line.startswith(asked)]

    def _plain(self, command: list[str]) -> Done:
        match command:
            case ["test", "-e", path]:
                return OK if path in self.files else NO
            case ["test", "-s", path]:
                return OK if self.files.get(path) else NO
            case ["cmp", "--silent", one, other]:
                return OK if self.files.get(one) == self.files.get(other) else NO
            case ["cat", path]:
                return Done(0, self.files[path], b"") if path in self.files else NO
            case ["mv", "-f", "--", source, target]:
                self.files[target] = self.files.pop(source)
            case ["rm", "-f", "--", *paths]:
                for path in paths:
                    self.files.pop(path, None)
            case ["qemu-img", "create", *_, path, _]:
                self.files[path] = b"qcow2"
            case ["bash", "-c", text]:
                return self._shell(text)
        return OK

    def _shell(self, text: str) -> Done:
        if text.startswith("check "):
            return OK if text.removeprefix("check ") in self.held else NO
        if text.startswith("do "):
            self.held.add(text.removeprefix("do "))
        if text.startswith("undo "):
            self.held.discard(text.removeprefix("undo "))
        return OK

    def _virsh(self, command: list[str], stdin: bytes) -> Done:
        name = command[-1]
        match command[0]:
            case "domstate":
                return Done(0, f"{self.domains[name]}\n\n".encode(), b"") if name in self.domains else NO
            case "define":
                found = stdin.decode().split("<name>")[1].split("</name>")[0]
                self.domains.setdefault(found, "shut off")
            case "start":
                self.domains[name] = "running"
            case "destroy" | "shutdown":
                self.domains[name] = "shut off"
            case "undefine":
                del self.domains[command[1]]
            case "net-info":
                return _told(self.networks, name, "Active")
            case "pool-info":
                return _told(self.pools, name, "State")
            case "net-dumpxml":
                return Done(0, self.definitions[name].encode(), b"") if name in self.definitions else NO
            case "net-define":
                found = stdin.decode().split("<name>")[1].split("</name>")[0]
                self.definitions[found] = stdin.decode()
                self.networks.setdefault(found, "no")
            case "net-start" | "net-destroy":
                self.networks[name] = "yes" if command[0] == "net-start" else "no"
            case "net-undefine":
                del self.networks[name], self.definitions[name]
            case "pool-define-as":
                self.pools[command[1]] = "inactive"
            case "pool-start" | "pool-destroy":
                self.pools[name] = "running" if command[0] == "pool-start" else "inactive"
            case "pool-undefine":
                del self.pools[name]
        return OK


def _told(known: dict[str, str], name: str, field: str) -> Done:
    return Done(0, f"Name:           {name}\n{field}:         {known[name]}\n".encode(), b"") if name in known else NO


class RecordingRunner:
    """A node behind ssh."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.answers: list[CommandResult] = []
        """In order; the last one stays."""

    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        self.lines.append(shlex.join(command))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
