"""The file tree of our image: Debian's Python alone, our wheel with its dependencies, and our programs.

Nothing here needs root: Python unpacks the packages, and owners are not stored. docs/image.md lists what is in it.
"""

import io
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import debian
import lock
from umbilical.lab.kubelet.archives import ARCHITECTURES, SCRATCH_MODE
from umbilical.lab.kubelet.image_format import content_digest
from umbilical.lab.kubelet.python_root import SITE, merged
from umbilical.manifests.objects import IMAGE_PROGRAMS

PROJECT: Final = lock.ROOT / "pyproject.toml"
PYTHON: Final = "3.11"
"""Version in Debian's suite; a compiled wheel must be for it."""
GLIBC_MINOR: Final = 36
"""The suite's C library is 2.36."""
PACKAGES: Final = (
    *("base-files", "ca-certificates", "gcc-12-base", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1"),
    *("liblzma5", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libssl3", "libuuid1"),
    *(f"python{PYTHON}-minimal", "zlib1g"),
)
"""What the interpreter, TLS and the modules that we import need. gcc-12-base has the licence of libgcc-s1."""
EXTRAS: Final = ("hosted",)
"""What our programs need in a pod: leases, token reviews, name lookup of the proxies. Labs and the hard way need
a machine with its programs."""
USER_ID: Final = 65532
MACHINES: Final = {architecture: machine for machine, architecture in ARCHITECTURES.items()}
"""Architecture of an image -> the kernel's name of it, which names of wheels have."""
FETCH_SECONDS: Final = 900.0
INSTALL_SECONDS: Final = 900.0
COMMAND_SECONDS: Final = 120.0

_AUTHORITIES: Final = re.compile(r"usr/share/ca-certificates/mozilla/.*\.crt")
_KEPT: Final = re.compile(
    rf"usr/bin/python{PYTHON}|usr/lib/python{PYTHON}/.*|"
    # Libraries and the loader; neither character sets nor engines.
    r"usr/lib(/[^/]+-linux-gnu)?/[^/]+\.so[^/]*|usr/lib64/[^/]+|usr/lib/[^/]+/ossl-modules/.*|"
    # By these a scanner knows the distribution, and licences must come with what they are for.
    r"(usr/lib|etc)/os-release|etc/debian_version|usr/share/common-licenses/.*|usr/share/doc/[^/]+(/copyright)?"
)
_LEFT_OUT: Final = re.compile(
    rf"usr/lib/python{PYTHON}/("
    r"(config-3[^/]*|curses|dbm|distutils|ensurepip|idlelib|lib2to3|pydoc_data|sqlite3|test|tkinter|turtledemo|"
    r"unittest|venv)"
    # Modules whose libraries are left out, and tests of the interpreter.
    r"/.*|lib-dynload/(_crypt|_curses|_dbm|_gdbm|_sqlite3|_test|_xx|nis|ossaudiodev|readline|xx)[^/]*|sitecustomize\.py)"
)
_USERS: Final = f"""root:x:0:0:root:/:/usr/sbin/nologin
umbilical:x:{USER_ID}:0:umbilical:/:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
_GROUPS: Final = "root:x:0:\nnogroup:x:65534:\n"
# Without this file glibc asks DNS before /etc/hosts.
_NAME_SERVICES: Final = "passwd: files\ngroup: files\nhosts: files dns\n"
_DIRECTORIES: Final = ("dev", "etc", "proc", "run", "sys", "usr/bin", SITE, "var/lib/dpkg/status.d")
# `-P`: the folder of the program is not searched for modules; `-s`: nor is the user's home.
_SCRIPT: Final = """#!/usr/bin/python3 -sP
import sys
from {module} import main
sys.exit(main())
"""


class ImageRefused(debian.DebianError):
    """No image was built; contains the three lines for the user."""


def build(root: Path, architecture: str, wheel: Path) -> None:
    """Make the tree in an empty folder.

    Raises:
        debian.DebianError: packages or dependencies were not fetched (UMB942).
    """
    add_python(root, architecture)
    with tempfile.TemporaryDirectory(prefix="umbilical-image-") as folder:
        install(root / SITE, architecture, wheel, Path(folder))
    add_own_files(root)
    set_modes(root)


def add_python(root: Path, architecture: str) -> None:
    """Unpack Debian's packages into an empty folder. Raises DebianError: UMB942, they were not fetched."""
    for directory in _DIRECTORIES:
        (root / directory).mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="umbilical-image-") as packages:
        fetch(architecture, Path(packages))
        for path in sorted(Path(packages).glob("*.deb")):
            unpack(path, root)
    (root / "usr/bin/python3").symlink_to(f"python{PYTHON}")
    for name in ("bin", "lib", "lib64"):
        if (root / "usr" / name).is_dir():
            (root / name).symlink_to(f"usr/{name}")


def fetch(architecture: str, folder: Path) -> None:
    """Copy Debian's packages into a folder, with what they depend on. Raises DebianError: UMB942."""
    # No package is configured, so no mode of mmdebstrap needs root; this one needs no namespace either.
    options = ["--mode=chrootless", "--variant=extract", "--format=null", f"--architectures={architecture}"]
    options += [f"--include={','.join(PACKAGES)}"]
    options += [f'--extract-hook=cp "$1"/var/cache/apt/archives/*.deb {shlex.quote(str(folder))}']
    what = "Debian's packages were not fetched"
    debian.mmdebstrap(options, "-", debian.archives_with_updates(), FETCH_SECONDS, "UMB942", what)


def unpack(package: Path, root: Path) -> None:
    """Add to the tree what the image keeps of a package, and its record for scanners."""
    fields = subprocess.run(
        ["dpkg-deb", "--field", package], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True
    ).stdout
    name = re.search(r"^Package: (\S+)$", fields, re.MULTILINE)
    # Others are there only because a package that is kept depends on them.
    if name is None or name[1] not in PACKAGES:
        return
    (root / "var/lib/dpkg/status.d" / name[1]).write_text(fields)
    content = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", package], capture_output=True, timeout=COMMAND_SECONDS, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        for member in files:
            _unpack_file(files, member, root)


def _unpack_file(files: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    place = merged(member.name.removeprefix("./"))
    target = root / place
    if member.isdir() or not (is_kept(place) or _AUTHORITIES.fullmatch(place)):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.symlink_to(member.linkname)
        return
    source = files.extractfile(member)
    assert source is not None, place
    with source, target.open("wb") as stream:
        shutil.copyfileobj(source, stream)
    target.chmod(member.mode)


def is_kept(place: str) -> bool:
    """Whether the image has this file of a package; the path has no leading slash."""
    return _KEPT.fullmatch(place) is not None and _LEFT_OUT.fullmatch(place) is None


def install(site: Path, architecture: str, wheel: Path, scratch: Path) -> None:
    """Install our wheel and its dependencies from the lock, by their hashes. Raises ImageRefused: UMB942."""
    requirements = scratch / "requirements.txt"
    own = f"{wheel.name.split('-')[0]}=={wheel.name.split('-')[1]}"
    lines = [f"{own} --hash=sha256:{content_digest(wheel)}", *locked(lock.LOCK.read_text(), PROJECT.read_text())]
    requirements.write_text("".join(f"{line}\n" for line in lines))
    tags = [f"manylinux_2_{minor}_{MACHINES[architecture]}" for minor in range(GLIBC_MINOR, 16, -1)]
    tags += [f"manylinux2014_{MACHINES[architecture]}", f"linux_{MACHINES[architecture]}"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-compile", "--only-binary=:all:", f"--python-version={PYTHON}"]
    command += [f"--platform={tag}" for tag in tags]
    command += [f"--find-links={wheel.parent}", f"--target={site}", "--require-hashes", f"--requirement={requirements}"]
    debian.run_quietly(command, INSTALL_SECONDS, "UMB942", "the wheel and its dependencies were not installed")
    # Scripts for the Python that runs pip.
    shutil.rmtree(site / "bin", ignore_errors=True)
    for record in site.glob("*.dist-info/RECORD"):
        rows = record.read_text().splitlines(keepends=True)
        record.write_text("".join(row for row in rows if (site / row.split(",")[0]).exists()))


def locked(locked_packages: str, project: str) -> list[str]:
    """Return pip's requirements, with hashes, for our dependencies and those of the extras."""
    known = {package.name: package for package in lock.read(locked_packages)}
    wanted = _direct(tomllib.loads(project)["project"])
    while more := {one.name for one in known.values() if wanted & set(one.wanted_by)} - wanted:
        wanted |= more
    chosen = [known[name] for name in sorted(wanted)]
    return [f"{one.name}=={one.version} {' '.join(f'--hash={digest}' for digest in one.hashes)}" for one in chosen]


def _direct(project: Mapping[str, object]) -> set[str]:
    """Return the names that pyproject.toml lists; an extra may name another extra."""
    names: set[str] = set()
    dependencies, extras = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list)
    assert isinstance(extras, dict)
    left = [*dependencies, *(one for name in EXTRAS for one in extras[name])]
    while left:
        requirement = left.pop()
        if own := re.fullmatch(rf"{lock.OURSELVES}\[(.*)\]", requirement):
            left += [one for name in own[1].split(",") for one in extras[name]]
        else:
            names.add(re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower())
    return names


def add_own_files(root: Path) -> None:
    """Add programs, users, certificates and the folder for temporary files."""
    scripts: Mapping[str, str] = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    for path, command in IMAGE_PROGRAMS.items():
        program = root / path.lstrip("/")
        if program.parent == root:
            program.symlink_to(f"usr/bin/{command}")
            continue
        program.write_text(_SCRIPT.format(module=scripts[command].partition(":")[0]))
        program.chmod(0o755)
    (root / "tmp").mkdir()
    for name, text in (("passwd", _USERS), ("group", _GROUPS), ("nsswitch.conf", _NAME_SERVICES)):
        (root / "etc" / name).write_text(text)
    _bundle_authorities(root)


def _bundle_authorities(root: Path) -> None:
    """Write all certificates into the file that OpenSSL reads; a script of the package would do it."""
    folder, bundle = root / "usr/share/ca-certificates", root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True)
    bundle.write_bytes(b"".join(path.read_bytes() for path in sorted(folder.rglob("*.crt"))))
    shutil.rmtree(folder)


def set_modes(root: Path) -> None:
    """Give every file and folder a mode that does not depend on this user's umask."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    (root / "tmp").chmod(SCRATCH_MODE)
