"""Tests the two commands of the README on a bare Debian: a root file system with Python, venv and make, and a copy of
this tree in it.

`python3 tools/fresh.py [--demo | --test]` as root. mmdebstrap creates the root file system once; the cache of the peers
keeps it. Every run uses a scratch copy, entered by pivot_root in its own mount and PID namespaces and removed
afterwards. Settings for apt and pip are those of this machine, read at run time and never stored. See docs/fresh.md.
Standard library only.
"""

import argparse
import configparser
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import debian  # noqa: E402
from peers import cache_root  # noqa: E402
from umbilical.host import namespaces  # noqa: E402
from umbilical.host.namespaces import MountFlag, NamespaceKind  # noqa: E402

PACKAGES: Final = ("python3", "python3-venv", "make")
# About a minute on two idle cores; longer with a slow archive.
MAKE_SECONDS: Final = 1200.0
COPY_SECONDS: Final = 300.0
# The goal is two minutes from the clone to the end; the limit allows for a busy machine and a slow package index.
DEMO_SECONDS: Final = 600.0
TEST_SECONDS: Final = 3600.0
VISITOR: Final = 1000
"""User id of the ordinary user."""
HOME: Final = {0: "/root", VISITOR: "/home/visitor"}
IDENTIFIERS: Final = 65536
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
PASSED_ON: Final = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE")
PASSED_ON_ENDS: Final = ("_proxy", "_PROXY")
PIP_FILES: Final = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf")
USER_PIP_FILES: Final = (".config/pip/pip.conf", ".pip/pip.conf")
ENTER: Final = "--enter"


class FreshError(debian.DebianError):
    """The test failed or cannot start."""


@dataclass(frozen=True)
class FreshPart:
    """One command of the README, as one kind of user."""

    name: str
    folder: str
    """Folder of the clone in the root file system."""
    user: int
    command: tuple[str, ...]
    seconds: float
    expected: tuple[str, ...] = ()
    """Texts that the output must contain."""
    unexpected: tuple[str, ...] = ()
    refuses_namespaces: bool = False


_WHOLE: Final = ("network is unreachable", "nothing of the tunnel is left", "without the tunnel calls fail as before")
DEMO_PARTS: Final = (
    FreshPart("demo as root", "/root/umbilical", 0, ("make", "demo"), DEMO_SECONDS, _WHOLE, ("on loopback",)),
    FreshPart(
        "demo as a user", "/home/visitor/user", VISITOR, ("make", "demo"), DEMO_SECONDS, _WHOLE, ("on loopback",)
    ),
    FreshPart(
        "demo without namespaces",
        "/home/visitor/refused",
        VISITOR,
        ("make", "demo"),
        DEMO_SECONDS,
        (
            "No namespaces here (",
            "configured for a missing tunnel",
            "nothing of the tunnel is left",
        ),
        ("network is unreachable",),
        refuses_namespaces=True,
    ),
)
# In the clone of the first demo, like a user who runs both commands of the README.
TEST_PARTS: Final = (FreshPart("test as root", "/root/umbilical", 0, ("make", "test"), TEST_SECONDS),)


def require_root(user: int) -> None:
    if user != 0:
        raise FreshError(
            "UMB916",
            "make fresh needs root",
            "it creates and mounts a root file system, and runs commands in it as several users",
            "sudo make fresh",
        )


def require_program(name: str) -> str:
    return debian.require_program(name, "make fresh", "UMB917")


def base_file() -> Path:
    """Return the path of the cached root file system; its name depends on its content."""
    digest = hashlib.sha256(" ".join((debian.SUITE, *PACKAGES)).encode()).hexdigest()[:12]
    return cache_root() / f"fresh-{debian.SUITE}-{digest}" / "root.tar"


def make_base(report: Callable[[str], None]) -> Path:
    """Create the root file system, unless it is in the cache.

    Raises:
        debian.DebianError: mmdebstrap is missing (UMB917) or failed (UMB918).
    """
    target = base_file()
    if target.is_file():
        report(f"fresh: root file system: {target}")
        return target
    require_program("mmdebstrap")
    target.parent.mkdir(parents=True, exist_ok=True)
    report(f"fresh: root file system: {debian.SUITE} with {', '.join(PACKAGES)}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as scratch:
        output = Path(scratch) / "root.tar"
        # Settings of this machine, which are not stored.
        forget = 'rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1/etc/apt/sources.list"'
        options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", f"--customize-hook={forget}"]
        what = "the root file system was not created"
        debian.mmdebstrap(options, str(output), [debian.archive()], MAKE_SECONDS, "UMB918", what)
        output.replace(target)
    report(f"fresh: root file system made in {time.monotonic() - started:.0f} s")
    return target


def pip_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with pip's package indexes, proxies and certificates."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PASSED_ON) or name.endswith(PASSED_ON_ENDS)
    }


def named_paths(values: Sequence[str]) -> list[str]:
    """Return the files and directories in the settings; they are mounted at the same path inside."""
    words = [word.removeprefix("file://") for value in values for word in value.split()]
    paths = {path for word in words if word.startswith("/") for path in word.split(":")}
    kept: list[str] = []
    for path in sorted(path.rstrip("/") for path in paths):
        if path and os.path.exists(path) and not any(path == one or path.startswith(f"{one}/") for one in kept):
            kept.append(path)
    return kept


def source_files(tree: Path) -> list[str]:
    """List the files of a clone of the tree, including uncommitted ones."""
    git = [require_program("git"), "-c", "safe.directory=*", "-C", str(tree), "ls-files", "-z"]
    listed = subprocess.run([*git, "--cached", "--others", "--exclude-standard"], capture_output=True, check=False)
    if listed.returncode != 0:
        why = listed.stderr.decode(errors="replace").strip() or f"git exited with {listed.returncode}"
        raise FreshError("UMB918", "the tree was not copied", why, "run it in a clone of the repository")
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    return sorted({name for name in names if (tree / name).is_file()})


def copy_tree(tree: Path, target: Path, owner: int) -> None:
    for name in source_files(tree):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, place, follow_symlinks=False)
    for folder, _, names in os.walk(target):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, owner, owner, follow_symlinks=False)


def furnish(root: Path, parts: Sequence[FreshPart]) -> None:
    """Add to the scratch copy what a machine has: a user, host names, pip's files, clones."""
    with (root / "etc/passwd").open("a") as stream:
        stream.write(f"visitor:x:{VISITOR}:{VISITOR}::{HOME[VISITOR]}:/bin/sh\n")
    with (root / "etc/group").open("a") as stream:
        stream.write(f"visitor:x:{VISITOR}:\n")
    for name in ("resolv.conf", "hosts", "hostname"):
        (root / "etc" / name).unlink(missing_ok=True)
        if os.path.exists(f"/etc/{name}"):
            shutil.copyfile(f"/etc/{name}", root / "etc" / name)
    for name in PIP_FILES:
        if os.path.isfile(name):
            _copy(Path(name), root / name.lstrip("/"), 0)
    for user, home in HOME.items():
        own = root / home.lstrip("/")
        own.mkdir(parents=True, exist_ok=True)
        os.chown(own, user, user)
        for name in USER_PIP_FILES:
            if (Path.home() / name).is_file():
                _copy(Path.home() / name, own / name, user)
    for folder, user in {part.folder: part.user for part in parts}.items():
        copy_tree(ROOT, root / folder.lstrip("/"), user)


def pip_file_values() -> list[str]:
    """Return all values of pip's files on this machine; some are paths."""
    values: list[str] = []
    for path in [*map(Path, PIP_FILES), *(Path.home() / name for name in USER_PIP_FILES)]:
        parser = configparser.RawConfigParser()
        parser.read(path)
        values += [value for section in parser.sections() for _, value in parser.items(section)]
    return values


def _copy(source: Path, target: Path, owner: int) -> None:
    missing = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    for path in (target, *missing):
        os.chown(path, owner, owner)


def run_part(part: FreshPart, root: Path, report: Callable[[str], None]) -> None:
    """Run one command inside and print its output.

    Raises:
        FreshError: it failed, timed out, or its output is not as expected (UMB919).
    """
    report(f"fresh: {part.name}: {' '.join(part.command)}")
    started = time.monotonic()
    own = [sys.executable, str(Path(__file__).resolve()), ENTER, str(root), part.name]
    # Killing unshare kills the first process of the PID namespace, and with it everything inside.
    command = [require_program("unshare"), "--mount", "--propagation", "private", "--pid", "--fork"]
    command += ["--kill-child=SIGKILL", "--", *own]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        timer = threading.Timer(part.seconds, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                report(f"  {line.rstrip()}")
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    seconds = time.monotonic() - started
    refusal = failure_of(part, status, "".join(lines), seconds)
    if refusal is not None:
        raise FreshError("UMB919", f"{part.name} failed", refusal, f"make fresh FRESH_ARGS='--only \"{part.name}\"'")
    report(f"fresh: {part.name}: {seconds:.0f} s")


def failure_of(part: FreshPart, status: int, output: str, seconds: float) -> str | None:
    """Return why a part failed; None if it succeeded."""
    if status == -signal.SIGKILL and seconds >= part.seconds:
        return f"timed out after {part.seconds:.0f} s"
    if status != 0:
        last = [line for line in output.splitlines() if line.strip()][-1:]
        return f"it exited with {status}: {last[0].strip() if last else 'no output'}"
    missing = [text for text in part.expected if text not in output]
    if missing:
        return f"its output does not contain {missing[0]!r}"
    found = [text for text in part.unexpected if text in output]
    return f"its output contains {found[0]!r}" if found else None


def enter(root: Path, part: FreshPart) -> NoReturn:
    """Change the root and the user of this process, and replace it by the part's command."""
    settings = pip_environment(os.environ)
    _mount_machine(root, named_paths([*settings.values(), *pip_file_values()]))
    namespaces.pivot_root(root)
    if part.refuses_namespaces:
        _enter_user_namespace()
        # Applies to this user namespace only.
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    os.chdir(part.folder)
    os.setgroups([])
    os.setgid(part.user)
    os.setuid(part.user)
    os.umask(0o022)
    environment = {"PATH": PATH, "HOME": HOME[part.user], "LANG": "C.UTF-8", **settings}
    os.execvpe(part.command[0], part.command, environment)


def _mount_machine(root: Path, shown: Sequence[str]) -> None:
    namespaces.bind(root, root)
    harmless = MountFlag.NO_SUID | MountFlag.NO_DEVICES
    namespaces.mount("proc", root / "proc", "proc", harmless | MountFlag.NO_EXEC)
    namespaces.bind("/sys", root / "sys")
    namespaces.mount("tmpfs", root / "dev", "tmpfs", MountFlag.NO_SUID, "mode=0755")
    for name in DEVICES:
        (root / "dev" / name).touch()
        namespaces.bind(f"/dev/{name}", root / "dev" / name)
    for name, target in DEVICE_LINKS.items():
        (root / "dev" / name).symlink_to(target)
    (root / "dev/pts").mkdir()
    namespaces.mount(
        "devpts", root / "dev/pts", "devpts", MountFlag.NO_SUID | MountFlag.NO_EXEC, "newinstance,ptmxmode=0666"
    )
    (root / "dev/shm").mkdir()
    namespaces.mount("tmpfs", root / "dev/shm", "tmpfs", harmless, "mode=1777")
    for path in shown:
        _show(path, root / path.lstrip("/"))


def _show(path: str, place: Path) -> None:
    if os.path.isdir(path):
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    namespaces.bind(os.path.realpath(path), place, is_read_only=True)


def _enter_user_namespace() -> None:
    """Continue in a user namespace with unchanged ids; the parent process exits with our status.

    A process may map only its own id, so the parent outside writes the maps.
    """
    ready, is_ready = os.pipe()
    mapped, is_mapped = os.pipe()
    child = os.fork()
    if child == 0:
        namespaces.unshare(NamespaceKind.USER)
        os.write(is_ready, b"\n")
        os.read(mapped, 1)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        return
    os.read(ready, 1)
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{name}").write_text(f"0 0 {IDENTIFIERS}\n")
    os.write(is_mapped, b"\n")
    while True:
        # We are PID 1 of the namespace and reap orphans.
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def run_parts(parts: Sequence[FreshPart], report: Callable[[str], None]) -> None:
    """Run the parts one after the other in a scratch copy of the root file system.

    Raises:
        debian.DebianError: something is missing, or a part failed.
    """
    require_root(os.geteuid())
    base = make_base(report)
    with tempfile.TemporaryDirectory(prefix="umbilical-fresh-") as folder:
        # Mounts exist only in the parts' mount namespaces, so removing the folder only removes files.
        root = Path(folder) / "root"
        root.mkdir(mode=0o755)
        extract = [require_program("tar"), "--extract", "--numeric-owner", f"--file={base}", f"--directory={root}"]
        debian.run_quietly(extract, COPY_SECONDS, "UMB918", "the root file system was not unpacked")
        root.chmod(0o755)
        furnish(root, parts)
        for part in parts:
            run_part(part, root, report)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Test the two commands of the README on a bare Debian.")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--demo", action="store_true", help="run only the demo: as root, as a user, without namespaces")
    chosen.add_argument("--test", action="store_true", help="run only the test suite, as root")
    names = [part.name for part in (*DEMO_PARTS, *TEST_PARTS)]
    chosen.add_argument("--only", choices=names, metavar="PART", help=f"run one part: {', '.join(names)}")
    return parser


def chosen_parts(options: argparse.Namespace) -> tuple[FreshPart, ...]:
    if options.only:
        return tuple(part for part in (*DEMO_PARTS, *TEST_PARTS) if part.name == options.only)
    if options.demo:
        return DEMO_PARTS
    return TEST_PARTS if options.test else (*DEMO_PARTS, *TEST_PARTS)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [ENTER]:
        _, root, name = words
        enter(Path(root), next(part for part in (*DEMO_PARTS, *TEST_PARTS) if part.name == name))
    options = _parser().parse_args(words)
    # SIGTERM runs every `finally`, so that no scratch copy is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run_parts(chosen_parts(options), lambda line: print(line, flush=True))
    except debian.DebianError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
