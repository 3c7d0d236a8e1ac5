"""A systemd of the test's own: process 1 of new namespaces, with this machine's /usr and an /etc of its own.

It cannot change the machine: /usr, /sys and /proc/sys are read-only, its network is its own loopback, and it has no
capability for clock, kernel modules or kernel log. Its control group is below one of its own, removed at the end.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("/usr/lib/systemd/systemd", "ip", "mount", "nsenter", "setpriv", "unshare")
PATIENCE_SECONDS: Final = 60.0
ENVIRONMENT: Final = ("env", "-i", "container=umbilical", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")
PYTHON: Final = "/opt/python"
"""Where this test's Python is inside: units do not see /root and /home."""
_FOLDERS: Final = ("dev", "etc", "home", "old", "opt/python", "proc", "root", "run", "sys", "tmp", "usr", "var")
_LINKED: Final = ("bin", "lib", "lib32", "lib64", "sbin")
_ETC: Final = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files systemd\ngroup: files systemd\nhosts: files\n",
    "hosts": "127.0.0.1 localhost\n",
    "machine-id": "0123456789abcdef0123456789abcdef\n",
}
# What would look for hardware, or for settings of a whole machine.
_MASKED: Final = (
    "dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "proc-sys-fs-binfmt_misc.automount", "systemd-binfmt.service", "systemd-hwdb-update.service",
    "systemd-modules-load.service", "systemd-random-seed.service", "systemd-remount-fs.service",
    "systemd-sysctl.service", "systemd-timesyncd.service", "systemd-udevd.service", "systemd-udev-trigger.service",
)  # fmt: skip
TARGET: Final = "umbilical-test.target"
_LOST: Final = "-sys_time,-sys_module,-sys_rawio,-syslog,-mac_admin,-mac_override,-wake_alarm,-block_suspend"
# $1 the root, $2 the name of the group, $3 this Python.
_OUTER: Final = """
mount --bind "$1" "$1"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
group="$1/sys/fs/cgroup/$2"
mkdir "$group"
sh -ec 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
    unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup -- sh -ec "$4" sh "$1" "$3" || true
for _ in 1 2 3 4 5 6 7 8 9 10; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
    sleep 0.2
done
"""
_INNER: Final = """
mount --bind -o ro /usr "$1/usr"
mount --bind -o ro "$2" "$1/opt/python"
mount -t proc proc "$1/proc"
mount --bind "$1/proc/sys" "$1/proc/sys"
mount -o remount,bind,ro "$1/proc/sys"
umount "$1/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
for name in null zero full random urandom tty; do
    : >"$1/dev/$name"
    mount --bind "/dev/$name" "$1/dev/$name"
done
mkdir "$1/dev/pts" "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
ip link set lo up
cd "$1"
pivot_root . old
umount -l /old
mount --make-rshared /
exec env -i %s setpriv --bounding-set %s /usr/lib/systemd/systemd --unit=%s
"""


class OwnSystemd:
    """Files below `root` are what it sees; `boot` starts it."""

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, mode=0o755)
        for name in _LINKED:
            if os.path.islink(f"/{name}"):
                (root / name).symlink_to(os.readlink(f"/{name}"))
        for name, text in _ETC.items():
            (root / "etc" / name).write_text(text)
        self.units: Final = root / "etc" / "systemd" / "system"
        self.units.mkdir(parents=True)
        for name in _MASKED:
            (self.units / name).symlink_to("/dev/null")

    def boot(self, *units: str) -> None:
        """Start it with these units, and wait until it answers. Raises TimeoutError."""
        wanted = " ".join(units)
        (self.units / TARGET).write_text(f"[Unit]\nRequires=basic.target\nAfter=basic.target\nWants={wanted}\n")
        inner = _INNER % (" ".join(ENVIRONMENT[2:]), _LOST, TARGET)
        group = f"umbilical-systemd-{os.getpid()}"
        command = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", _OUTER, "sh"]
        self._process = subprocess.Popen([*command, self.root, group, sys.base_prefix, inner], stdin=subprocess.DEVNULL)
        self.until(lambda: self._found() and self.run("systemctl", "is-active", TARGET).strip() == "active", "it boots")

    def _found(self) -> bool:
        """Find process 1: the child of the inner `unshare`."""
        assert self._process is not None
        assert self._process.poll() is None, "its root file system could not be made: see the output above"
        unshare = [pid for pid in _children(self._process.pid) if "--kill-child" in _arguments(pid)]
        first = [pid for parent in unshare for pid in _children(parent)]
        self._first = first[0] if first else 0
        return self._first > 0 and _arguments(self._first)[:1] == ["/usr/lib/systemd/systemd"]

    def run(self, *command: str) -> str:
        """Run a command inside; return what it prints, also if it fails."""
        inside = ["nsenter", f"--target={self._first}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        done = subprocess.run(
            [*inside, *ENVIRONMENT, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def until(self, claim: Callable[[], bool], what: str) -> None:
        """Poll until the claim holds. Raises TimeoutError with the journal."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not claim():
            if time.monotonic() > deadline:
                journal = self.run("journalctl", "--no-pager", "--lines=60") if self._first else ""
                raise TimeoutError(f"not within {PATIENCE_SECONDS:g} s: {what}\n{journal}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            if self._first:
                os.kill(self._first, 9)  # the kernel ends all other processes of its namespace
            else:
                self._process.kill()
            self._process.wait(PATIENCE_SECONDS)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


@contextmanager
def own_systemd(root: Path) -> Iterator[OwnSystemd]:
    system = OwnSystemd(root)
    try:
        yield system
    finally:
        system.stop()
