"""systemd units of server and agent: a service that can do little beside its work, and a socket for clients.

docs/systemd.md explains every group of lines, and lists the lines of hardening that are left out, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.manifests.tree import PUBLIC_MODE, AssetTree

SUFFIX_SERVICE: Final = ".service"
SUFFIX_SOCKET: Final = ".socket"
WATCHDOG_SECONDS: Final = 30
"""As long as a server with workers waits for one of them before it kills it."""
START_SECONDS: Final = 90
"""A server with workers gives them 60 s."""
RESTART_SECONDS: Final = 2
OPEN_FILES: Final = 524_288
"""The hard limit of systemd for services. Each tunnel takes a file, and each agent."""
LOGS: Final = "/var/log/"
WRONG_USAGE: Final = 2
"""Exit status after which a restart would fail in the same way."""
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""Directories that a unit sees empty (ProtectHome, PrivateTmp); the program must be elsewhere."""

_SANDBOX: Final = """\
# A user that exists only while the service runs; it owns no file. Implies ProtectSystem=strict, PrivateTmp,
# NoNewPrivileges, RestrictSUIDSGID and RemoveIPC.
DynamicUser=yes
UMask=0077
ProtectHome=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
"""
_NO_CAPABILITY: Final = """\
CapabilityBoundingSet=
PrivateUsers=yes
"""
_LOW_PORTS: Final = """\
# Ports below 1024; a capability over them cannot be had together with PrivateUsers.
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
AmbientCapabilities=CAP_NET_BIND_SERVICE
"""


@dataclass(frozen=True)
class UnitOption:
    """One option of the daemon's command line."""

    name: str
    """With its dashes."""
    value: str | None = None
    """None for a switch."""
    is_file: bool = False
    """The value is the path of a file that the service gets as a credential."""
    is_output: bool = False
    """The value is the path of a file that the service writes."""

    @property
    def credential(self) -> str:
        return self.name.removeprefix("--")


@dataclass(frozen=True)
class ServiceUnit:
    name: str
    """Without its suffix."""
    description: str
    command: tuple[str, ...]
    """The program by its absolute path, and its first arguments."""
    options: tuple[UnitOption, ...]
    stop_seconds: float
    """How long the daemon may take to finish its tunnels."""
    socket_path: str = ""
    """Unix socket for clients, which systemd opens; empty: the daemon opens all ports."""
    has_low_port: bool = False
    """A port below 1024 is among those that the daemon opens."""


def units(unit: ServiceUnit, made_by: str) -> AssetTree:
    """Return the files of the units; `made_by` is the command for their first line.

    Raises RenderError: a path has a character that a unit cannot contain.
    """
    tree = AssetTree()
    head = f"# Made by `{made_by}`; see docs/systemd.md of Umbilical.\n"
    tree.add(unit.name + SUFFIX_SERVICE, (head + _service(unit)).encode(), PUBLIC_MODE)
    if unit.socket_path:
        tree.add(unit.name + SUFFIX_SOCKET, (head + _socket(unit)).encode(), PUBLIC_MODE)
    return tree


def _service(unit: ServiceUnit) -> str:
    socket = unit.name + SUFFIX_SOCKET if unit.socket_path else ""
    needs = f"Requires={socket}\nAfter={socket}\n" if socket else ""
    credentials = [
        f"LoadCredential={option.credential}:{_literal(option.value or '')}\n"
        for option in unit.options
        if option.is_file
    ]
    folders = "".join(_log_folder(option.value or "") for option in unit.options if option.is_output)
    return (
        f"[Unit]\nDescription={_literal(unit.description)}\n"
        f"Wants=network-online.target\nAfter=network-online.target\n{needs}"
        "# Try again for ever: a cluster may be unreachable through this very service.\n"
        "StartLimitIntervalSec=0\n"
        "\n[Service]\nType=notify\n"
        f"ExecStart={_command_line(unit.command, unit.options)}\n"
        "ExecReload=kill -HUP $MAINPID\n"
        "# Only the main process gets SIGTERM; it stops its workers.\n"
        "KillMode=mixed\n"
        f"TimeoutStartSec={START_SECONDS}s\nTimeoutStopSec={unit.stop_seconds:g}s\nWatchdogSec={WATCHDOG_SECONDS}s\n"
        f"Restart=always\nRestartSec={RESTART_SECONDS}s\n"
        f"# Wrong usage: it would fail in the same way again.\nRestartPreventExitStatus={WRONG_USAGE}\n"
        f"LimitNOFILE={OPEN_FILES}\n"
        "# A core dump would contain private keys; the watchdog ends a process by SIGABRT.\n"
        "LimitCORE=0\n"
        "# Copies that only the service can read, below %d; root's own files stay unreadable for it.\n"
        f"{''.join(credentials)}\n"
        f"{_SANDBOX}{folders}{_LOW_PORTS if unit.has_low_port else _NO_CAPABILITY}"
        f"\n[Install]\nWantedBy=multi-user.target\n{f'Also={socket}' + chr(10) if socket else ''}"
    )


def _log_folder(path: str) -> str:
    """Let the service write a file below /var/log, whose folder systemd gives to its user. Raises RenderError."""
    folder = path.removeprefix(LOGS).rpartition("/")[0]
    if not path.startswith(LOGS) or not folder:
        why = "the service's user owns no other folder than one that systemd makes below /var/log"
        remedy = "use one like /var/log/umbilical/audit.jsonl"
        raise RenderError("UMB209", f"the service cannot write {path!r}", why, remedy)
    return f"LogsDirectory={_literal(folder)}\nLogsDirectoryMode=0700\n"


def _socket(unit: ServiceUnit) -> str:
    return (
        f"[Unit]\nDescription={_literal(unit.description)}: socket for clients\n"
        f"\n[Socket]\nListenStream={_literal(unit.socket_path)}\n"
        "# For root, as which kube-apiserver runs in a static pod; for others set SocketUser= or SocketGroup=.\n"
        "SocketMode=0660\nDirectoryMode=0755\nBacklog=4096\nRemoveOnStop=yes\n"
        "\n[Install]\nWantedBy=sockets.target\n"
    )


def _command_line(command: Sequence[str], options: Sequence[UnitOption]) -> str:
    """One option on a line."""
    program, *first = command
    start = " ".join([quoted_program(program), *(quoted(word) for word in first)])
    return " \\\n    ".join([start, *(_option(option) for option in options)])


def _option(option: UnitOption) -> str:
    if option.is_file:
        return f"{option.name} %d/{option.credential}"
    return option.name if option.value is None else f"{option.name} {quoted(option.value)}"


def quoted(word: str) -> str:
    """Return one argument in systemd.service(5)'s syntax: `%` and `$` doubled, in quotes if it needs them."""
    return quoted_program(word.replace("$", "$$"))


def quoted_program(path: str) -> str:
    """Return the program's path, in which systemd replaces no variables."""
    plain = path.replace("%", "%%")
    if plain and plain.isascii() and all(character.isalnum() or character in "-_./:=,@%$+&" for character in plain):
        return plain
    return '"' + "".join(_escaped(character) for character in plain) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else "".join(f"\\x{octet:02x}" for octet in character.encode())


def _literal(value: str) -> str:
    """A value outside a command line, where only specifiers are special. Raises RenderError."""
    if not value.isprintable() or value != value.strip():
        why = "a line of a unit cannot contain control characters, nor blanks at its ends"
        raise RenderError("UMB209", f"{value!r} cannot be written into a unit", why, "use another path")
    return value.replace("%", "%%")
