"""Builds a root file system with Python from Debian packages: installed ones, else downloaded ones.

Only what an interpreter and TLS need: no shell, no package manager, no documentation.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.fault import HostError, LabError
from umbilical.host.processes import run

SITE: Final = "usr/lib/python3/dist-packages"
"""Where Debian's Python finds installed packages."""
FORMAT: Final = 3
"""Increase it when the same packages give another root."""
KEPT: Final = 2
_OLDEST: Final = (3, 11)
_QUERY_SECONDS: Final = 60.0
_DOWNLOAD_SECONDS: Final = 300.0
_COMPILE_SECONDS: Final = 300.0
_MINIMAL: Final = re.compile(r"python3\.\d+-minimal")
_LIBRARIES: Final = re.compile(
    r"libc6|libgcc-s1|zlib1g|libexpat1|libffi\d+|libssl\d\S*|libbz2-1\.0|liblzma5|libuuid1\S*"
)
"""The dependencies of Python to include; without databases, terminals and MIME types."""
_MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Documentation, other programs, development files, and the character sets of gconv.
_PRUNED: Final = re.compile(
    r"usr/share/.*|usr/lib/[^/]+/(gconv|audit)/.*|etc/.*|usr/lib/valgrind/.*|"
    r"usr/lib/python3[^/]*/(test|idlelib|lib2to3|distutils|ensurepip|turtledemo|tkinter|pydoc_data|venv|unittest)/.*|"
    r".*/__pycache__/.*"
)
_TRIAL: Final = "import asyncio, hashlib, http.server, ipaddress, json, logging, socket, ssl, threading, zlib"


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    is_installed: bool
    """On this machine: no download is needed."""
    depends: tuple[str, ...] = ()


@dataclass(frozen=True)
class PythonRoot:
    path: Path
    interpreter: str
    """Path inside the root."""


def python_root(cache: Path) -> PythonRoot:
    """Return the root from the cache, or build it. Raises LabError: UMB843, no Debian packages."""
    try:
        version, packages = choose_packages()
        root = cache / f"python-root-{_key(packages)}"
        if not root.is_dir():
            _build(root, version, packages)
            _forget_older(cache)
    except HostError as error:
        remedy = "run on Debian 12 or newer with its package lists (apt-get update), or use --runner process"
        raise LabError("UMB843", "could not build the Python image", error.brief, remedy) from error
    return PythonRoot(root, f"/usr/bin/python{version}")


def _forget_older(cache: Path) -> None:
    roots = sorted(cache.glob("python-root-*"), key=lambda path: path.stat().st_mtime)
    for path in roots[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def command_in(root: Path) -> list[str]:
    """Return the beginning of a command that runs in a root directory; ordinary users need user namespaces."""
    return ["chroot", str(root)] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--root", str(root)]


def compile_modules(root: Path, interpreter: str, folders: Iterable[str], prefix: str = "/") -> None:
    """Compile modules with the interpreter in the root: a container cannot write there later.

    `prefix`: where the modules' own root is, if it is not this one.
    """
    # Not by time stamp: files of an image have none. -B: an import would write one with a time, which would be kept.
    options = ["-B", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", prefix]
    run([*command_in(root), interpreter, "-I", *options, *folders], _COMPILE_SECONDS)


def choose_packages() -> tuple[str, list[Package]]:
    """Return the version of Debian's Python and its packages."""
    minimal = next((name for name in _package("python3-minimal").depends if _MINIMAL.fullmatch(name)), None)
    version = minimal.removeprefix("python").removesuffix("-minimal") if minimal else ""
    if minimal is None or tuple(int(number) for number in version.split(".")) < _OLDEST:
        why = f"the system's Python is {version}" if version else "there is no package python3-minimal"
        remedy = "use Debian 12 or newer, or the process runner: --runner process"
        raise LabError("UMB843", "could not build the Python image", why, remedy)
    names = (minimal, f"libpython{version}-minimal", f"libpython{version}-stdlib")
    own = [_package(name) for name in names]
    if not all(package.is_installed for package in own):
        # All from one source: interpreter and library must have the same version.
        own = [_known_package(name) for name in names]
    wanted = {name for package in (*own, _package("libc6")) for name in package.depends if _LIBRARIES.fullmatch(name)}
    return version, [*own, *(_package(name) for name in sorted(wanted))]


def _package(name: str) -> Package:
    try:
        found = parse_package(run(["dpkg-query", "--status", name], _QUERY_SECONDS), is_installed=True)
    except HostError:
        found = None
    return found or _known_package(name)


def _known_package(name: str) -> Package:
    found = parse_package(run(["apt-cache", "show", "--no-all-versions", name], _QUERY_SECONDS), is_installed=False)
    if found is None:
        why = f"neither dpkg nor apt knows the package {name}"
        raise LabError("UMB843", "could not build the Python image", why, "apt-get update")
    return found


def parse_package(text: str, *, is_installed: bool) -> Package | None:
    """Read a record of dpkg or apt; None if it is incomplete or not installed."""
    fields = dict(re.findall(r"^([A-Za-z-]+): *(.*)$", text, re.MULTILINE))
    if "Package" not in fields or "Version" not in fields:
        return None
    if is_installed and not fields.get("Status", "").endswith(" installed"):
        return None
    listed = f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}"
    # `a (>= 1) | b`: the distribution installs the first.
    names = [item.split("|")[0].split("(")[0].split(":")[0].strip() for item in listed.split(",")]
    return Package(fields["Package"], fields["Version"], is_installed, tuple(name for name in names if name))


def _key(packages: Iterable[Package]) -> str:
    text = repr([FORMAT, *((package.name, package.version) for package in packages)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _build(root: Path, version: str, packages: Iterable[Package]) -> None:
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".python-") as scratch:
        made = Path(scratch, "root")
        for name in ("usr/bin", "usr/lib", SITE, "etc", "proc", "dev", "sys", "run", "var"):
            (made / name).mkdir(parents=True, exist_ok=True)
        (made / "tmp").mkdir()
        (made / "tmp").chmod(0o1777)
        for package in packages:
            _lay(package, made, Path(scratch))
        for name in _MERGED:
            if (made / "usr" / name).is_dir():
                (made / name).symlink_to(f"usr/{name}")
        (made / "usr/bin/python3").symlink_to(f"python{version}")
        interpreter = f"/usr/bin/python{version}"
        compile_modules(made, interpreter, [f"/usr/lib/python{version}"])
        run(["chroot", made, interpreter, "-I", "-c", _TRIAL], _QUERY_SECONDS)
        _publish(made, root)


def _publish(made: Path, root: Path) -> None:
    made.chmod(0o755)
    try:
        made.rename(root)
    except OSError:
        # Another lab built the same root at the same time.
        if not root.is_dir():
            raise


def _lay(package: Package, root: Path, scratch: Path) -> None:
    if package.is_installed:
        listed = run(["dpkg-query", "--listfiles", package.name], _QUERY_SECONDS).splitlines()
        _copy(Path("/"), (name.lstrip("/") for name in listed if name.startswith("/")), root)
        return
    folder = scratch / package.name
    folder.mkdir()
    run(
        ["sh", "-c", 'cd "$1" && apt-get -q download "$2" && dpkg-deb -x ./*.deb files', "sh", folder, package.name],
        _DOWNLOAD_SECONDS,
    )
    files = folder / "files"
    _copy(files, (path.relative_to(files).as_posix() for path in sorted(files.rglob("*"))), root)


def _copy(source: Path, names: Iterable[str], root: Path) -> None:
    for name in names:
        path, place = source / name, merged(name)
        # Links like /lib -> /usr/lib are created at the end, not copied.
        if name in _MERGED or _PRUNED.fullmatch(place) or (path.is_dir() and not path.is_symlink()):
            continue
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(target):
            shutil.copy2(path, target, follow_symlinks=False)


def merged(name: str) -> str:
    """Return the path of a package's file when /bin, /lib etc. are links into /usr."""
    return f"usr/{name}" if name.partition("/")[0] in _MERGED else name
