"""The system calls behind namespaces, mounts and privileges that Python 3.11 does not have, by ctypes.

Whatever the kernel refuses is an `OSError` that names the call and the path. All of them act on the calling thread
(privileges, network and UTS namespace) or need a process with one thread only (mount, user and pid namespace).
"""

import ctypes
import os
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntFlag
from pathlib import Path
from typing import Final, TypeVar

Result = TypeVar("Result")
PathText = str | os.PathLike[str]

THREAD_NETWORK: Final = Path("/proc/thread-self/ns/net")
# linux/capability.h: a capability's number is its place here. Names as Kubernetes writes them.
CAPABILITIES: Final = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)
# linux/prctl.h
_PR_SET_PDEATHSIG: Final = 1
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_MNT_DETACH: Final = 2
# The C library wraps this one since 2022 only; the number is the same on every machine that Debian runs on.
_SYS_MOUNT_SETATTR: Final = 442
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 1

_libc: Final = ctypes.CDLL(None, use_errno=True)


class MountFlag(IntFlag):
    """MS_ flags of mount(2)."""

    NONE = 0
    NO_SUID = 2
    NO_DEVICES = 4
    NO_EXEC = 8
    BIND = 4096
    RECURSIVE = 16384
    PRIVATE = 1 << 18


class NamespaceKind(IntFlag):
    """Kinds of namespaces: CLONE_NEW flags of unshare(2) and setns(2)."""

    MOUNT = 0x00020000
    UTS = 0x04000000
    USER = 0x10000000
    PID = 0x20000000
    NETWORK = 0x40000000


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilitySets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


def mount(
    source: PathText | None,
    target: PathText,
    kind: str | None = None,
    flags: MountFlag = MountFlag.NONE,
    options: str | None = None,
) -> None:
    """Mount as mount(2) does; `kind` is a file system type, `options` are that file system's own."""
    arguments = (_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options))
    _check("mount", _libc.mount(*arguments), target)


def bind(source: PathText, target: PathText, *, is_read_only: bool = False) -> None:
    """Show `source` at `target` with all that is mounted below.

    Always recursive: in a user namespace the kernel refuses to uncover what the host had mounted over.
    """
    mount(source, target, flags=MountFlag.BIND | MountFlag.RECURSIVE)
    if is_read_only:
        make_read_only(target)


def make_read_only(target: PathText, *, is_recursive: bool = True) -> None:
    """Forbid writing below a mount, and below all mounts in it.

    By mount_setattr (Linux 5.12), which changes this alone. A remount would have to repeat every flag (nosuid, nodev,
    noexec) that the host's mount has: a user namespace may not take one of them away.
    """
    attributes = _MountAttributes(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = _AT_RECURSIVE if is_recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    number = ctypes.c_long(_SYS_MOUNT_SETATTR)
    result = _libc.syscall(number, _AT_FDCWD, _bytes(target), flags, ctypes.byref(attributes), size)
    _check("mount_setattr", result, target)


def make_private(target: PathText = "/") -> None:
    """Keep mounts made from here on from showing up in other namespaces, and theirs from showing up here."""
    mount(None, target, flags=MountFlag.RECURSIVE | MountFlag.PRIVATE)


def unmount(target: PathText, *, is_lazy: bool = False) -> None:
    """Take the topmost mount away; lazily also one that is still in use, with all that is below it."""
    _check("umount2", _libc.umount2(_bytes(target), _MNT_DETACH if is_lazy else 0), target)


def pivot_root(new_root: PathText) -> None:
    """Make a mount point the root of this mount namespace and forget the old root; the working directory is `/`."""
    os.chdir(new_root)
    # Both names being the same stacks the old root on top of the new one, so no folder for it is needed: pivot_root(2).
    _check("pivot_root", _libc.pivot_root(b".", b"."), new_root)
    unmount(".", is_lazy=True)
    os.chdir("/")


def unshare(kinds: NamespaceKind) -> None:
    """Leave the namespaces of these kinds for new ones. A new pid namespace begins with the next child."""
    _check("unshare", _libc.unshare(ctypes.c_int(kinds)))


def enter(namespace: PathText | int, kind: NamespaceKind) -> None:
    """Enter a namespace by its file (`/proc/PID/ns/net`, a bind mount of it) or by a descriptor.

    A descriptor of a process (`os.pidfd_open`) enters several kinds at once.
    """
    if isinstance(namespace, int):
        _check("setns", _libc.setns(namespace, ctypes.c_int(kind)))
        return
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check("setns", _libc.setns(descriptor, ctypes.c_int(kind)), namespace)
    finally:
        os.close(descriptor)


def create_network(path: Path) -> None:
    """Make a network namespace that lives as long as the mount on `path` does; the caller stays where it is."""
    path.touch(exist_ok=False)
    try:
        _in_thread(lambda: _leave_network_at(path))
    except OSError:
        path.unlink()
        raise


def remove_network(path: Path) -> None:
    """Forget a namespace made by `create_network`; it ends with the last process inside."""
    unmount(path, is_lazy=True)
    path.unlink()


def in_network(path: PathText, call: Callable[[], Result]) -> Result:
    """Call from inside a network namespace, in a thread of its own: the caller's never leaves its namespace.

    Sockets made inside stay there, and files below /proc/sys/net are those of the namespace.
    """

    def enter_and_call() -> Result:
        enter(path, NamespaceKind.NETWORK)
        return call()

    return _in_thread(enter_and_call)


def set_hostname(name: str) -> None:
    socket.sethostname(name)


def forbid_new_privileges() -> None:
    """Make set-user-id bits and file capabilities powerless from here on: no_new_privs."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Ask for a signal when the thread that started us ends. It is lost if that one has ended already: look after."""
    _prctl(_PR_SET_PDEATHSIG, int(number))


def drop_privileges(
    keep: Collection[str],
    *,
    user: int | None = None,
    group: int | None = None,
    groups: Sequence[int] | None = None,
) -> None:
    """Give up all capabilities but those named, for good, and become another user; None leaves an identity as it is.

    One call, since order matters: shrinking the bounding set and changing users both need capabilities that go last.
    A user other than 0 has none afterwards: what is kept is what a set-user-id program could regain.

    Raises ValueError: a capability's name is unknown.
    """
    kept = {_capability(name) for name in keep}
    _shrink_bounding_set(kept)
    if groups is not None:
        os.setgroups(groups)
    if group is not None:
        os.setresgid(group, group, group)
    if user is not None:
        os.setresuid(user, user, user)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _shrink_own_sets(kept)


def _leave_network_at(path: Path) -> None:
    unshare(NamespaceKind.NETWORK)
    mount(THREAD_NETWORK, path, flags=MountFlag.BIND)


def _in_thread(call: Callable[[], Result]) -> Result:
    # One thread for one call, never used again: it would bring the next caller into the namespace it has entered.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()


def _capability(name: str) -> int:
    if name not in CAPABILITIES:
        raise ValueError(f"no capability is called {name}")
    return CAPABILITIES.index(name)


def _shrink_bounding_set(kept: Collection[int]) -> None:
    number = 0
    while _knows_capability(number):
        if number not in kept:
            _prctl(_PR_CAPBSET_DROP, number)
        number += 1


def _knows_capability(number: int) -> bool:
    # 64 bits are all that the kernel's sets have.
    return number < 64 and _libc.prctl(_PR_CAPBSET_READ, ctypes.c_ulong(number), *_NO_ARGUMENTS) >= 0


def _shrink_own_sets(kept: Collection[int]) -> None:
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    halves = (_CapabilitySets * 2)()
    _check("capget", _libc.capget(ctypes.byref(header), halves))
    for index, half in enumerate(halves):
        mask = sum(1 << (number - 32 * index) for number in kept if number // 32 == index)
        half.effective &= mask
        half.permitted &= mask
        half.inheritable &= mask
    _check("capset", _libc.capset(ctypes.byref(header), halves))


_NO_ARGUMENTS: Final = (ctypes.c_ulong(0),) * 3


def _prctl(option: int, argument: int) -> None:
    _check("prctl", _libc.prctl(option, ctypes.c_ulong(argument), *_NO_ARGUMENTS))


def _bytes(text: PathText | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _check(call: str, result: int, path: PathText | None = None) -> None:
    """Raise what the kernel said; the kind of `OSError` follows from the number (PermissionError, ...)."""
    if result >= 0:
        return
    number = ctypes.get_errno()
    reason = f"{call}: {os.strerror(number)}"
    raise OSError(number, reason) if path is None else OSError(number, reason, os.fspath(path))
