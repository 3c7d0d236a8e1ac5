"""System calls for namespaces, mounts and privileges that Python 3.11 lacks, by ctypes.

Errors are `OSError` with the name of the call and the path. All calls act on the calling thread (privileges, network
and UTS namespace) or need a single-threaded process (mount, user and pid namespace).
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
# linux/capability.h: a capability's number is its index here. Names as in Kubernetes.
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
# glibc has a wrapper only since 2022; the number is the same on all architectures of Debian.
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
    """Call mount(2); `kind` is the file system type, `options` are for that file system."""
    arguments = (_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options))
    _check("mount", _libc.mount(*arguments), target)


def bind(source: PathText, target: PathText, *, is_read_only: bool = False) -> None:
    """Bind-mount `source` at `target`, recursively.

    In a user namespace the kernel refuses a bind mount that would uncover what the host has mounted over.
    """
    mount(source, target, flags=MountFlag.BIND | MountFlag.RECURSIVE)
    if is_read_only:
        make_read_only(target)


def make_read_only(target: PathText, *, is_recursive: bool = True) -> None:
    """Make a mount read-only, with all mounts in it.

    mount_setattr (Linux 5.12) changes only this flag. A remount would have to repeat every flag (nosuid, nodev, noexec)
    of the host's mount, which a user namespace may not remove.
    """
    attributes = _MountAttributes(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = _AT_RECURSIVE if is_recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    number = ctypes.c_long(_SYS_MOUNT_SETATTR)
    result = _libc.syscall(number, _AT_FDCWD, _bytes(target), flags, ctypes.byref(attributes), size)
    _check("mount_setattr", result, target)


def make_private(target: PathText = "/") -> None:
    """Stop the propagation of mounts to and from other namespaces."""
    mount(None, target, flags=MountFlag.RECURSIVE | MountFlag.PRIVATE)


def unmount(target: PathText, *, is_lazy: bool = False) -> None:
    """Unmount the topmost mount; lazily also one in use, with all mounts below it."""
    _check("umount2", _libc.umount2(_bytes(target), _MNT_DETACH if is_lazy else 0), target)


def pivot_root(new_root: PathText) -> None:
    """Make a mount point the root of this mount namespace, unmount the old root, and change to `/`."""
    os.chdir(new_root)
    # With equal names the old root is stacked on the new one, so it needs no directory: pivot_root(2).
    _check("pivot_root", _libc.pivot_root(b".", b"."), new_root)
    unmount(".", is_lazy=True)
    os.chdir("/")


def unshare(kinds: NamespaceKind) -> None:
    """Move to new namespaces of these kinds. A new pid namespace takes effect for the next child."""
    _check("unshare", _libc.unshare(ctypes.c_int(kinds)))


def enter(namespace: PathText | int, kind: NamespaceKind) -> None:
    """Enter a namespace by its file (`/proc/PID/ns/net` or a bind mount of it) or a descriptor.

    With a descriptor of a process (`os.pidfd_open`), `kind` may combine several kinds.
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
    """Create a network namespace that exists as long as the mount on `path`; the caller does not enter it."""
    path.touch(exist_ok=False)
    try:
        _in_thread(lambda: _leave_network_at(path))
    except OSError:
        path.unlink()
        raise


def remove_network(path: Path) -> None:
    """Remove the mount of `create_network`; the namespace ends with its last process."""
    unmount(path, is_lazy=True)
    path.unlink()


def in_network(path: PathText, call: Callable[[], Result]) -> Result:
    """Call in a network namespace, on a separate thread: the caller's thread stays in its own.

    Sockets opened there stay in the namespace, and /proc/sys/net shows its settings.
    """

    def enter_and_call() -> Result:
        enter(path, NamespaceKind.NETWORK)
        return call()

    return _in_thread(enter_and_call)


def set_hostname(name: str) -> None:
    socket.sethostname(name)


def forbid_new_privileges() -> None:
    """Set no_new_privs: set-user-id bits and file capabilities have no effect any more."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Get a signal when the parent thread ends. If it has already ended, none comes: check the parent afterwards."""
    _prctl(_PR_SET_PDEATHSIG, int(number))


def drop_privileges(
    keep: Collection[str],
    *,
    user: int | None = None,
    group: int | None = None,
    groups: Sequence[int] | None = None,
) -> None:
    """Drop all capabilities except `keep`, permanently, and change user and groups; None keeps an identity.

    One call, because order matters: shrinking the bounding set and changing users need capabilities that go last.
    A user other than 0 has no capabilities afterwards: `keep` is what a set-user-id program could regain.

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
    # A fresh thread per call: a reused one would still be in the namespace that it entered.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()


def _capability(name: str) -> int:
    if name not in CAPABILITIES:
        raise ValueError(f"unknown capability {name}")
    return CAPABILITIES.index(name)


def _shrink_bounding_set(kept: Collection[int]) -> None:
    number = 0
    while _knows_capability(number):
        if number not in kept:
            _prctl(_PR_CAPBSET_DROP, number)
        number += 1


def _knows_capability(number: int) -> bool:
    # The kernel's sets have 64 bits.
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
    """Raise the kernel's error; the errno selects the subclass of `OSError`."""
    if result >= 0:
        return
    number = ctypes.get_errno()
    reason = f"{call}: {os.strerror(number)}"
    raise OSError(number, reason) if path is None else OSError(number, reason, os.fspath(path))
