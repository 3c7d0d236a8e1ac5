"""Find the real programs in --bin-dir, in the cache of `make peers`, or on PATH, and install them for nodes.

A version of Kubernetes may be chosen; without one, the newest in the cache is taken. Our own programs become small
scripts for this Python, others become links. A program that cannot run on this machine is an error before a lab is
created.
"""

import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from umbilical.fault import HostError, LabError
from umbilical.hardway.config.resolving import UPSTREAM_VERSION
from umbilical.host import processes
from umbilical.host.files import write_file

CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kubectl")
KUBERNETES: Final = (*CONTROL_PLANE, "kube-controller-manager", "kube-scheduler")
KUBELET: Final = (*KUBERNETES, "kubelet", "kube-proxy")
KONNECTIVITY: Final = ("proxy-server", "proxy-agent")
"""Upstream's programs. Not searched on PATH, where our drop-ins have the same names."""

OTHER_VERSION: Final = ("before-server", "before-agent")
"""Programs of another version, as the user names them for the scenario `upgrade`."""

GROUPS: Final = {**dict.fromkeys(KONNECTIVITY, "konnectivity"), "helm": "helm"}
"""Program -> its group in `make peers`, if it is not `kubernetes`."""

VERSIONED: Final = tuple(name for name in KUBELET if name != "etcd")
"""Programs of Kubernetes itself, for which a version can be chosen."""
WHOLE_VERSIONS: Final = {UPSTREAM_VERSION: "kubernetes", "v1.36.3": "kubernetes-1.36"}
"""Version of Kubernetes -> the group in `make peers` that builds all its programs; the first is the default."""
# A program that hangs must not hang the lab.
_VERSION_SECONDS: Final = 10.0

# `uname -m` -> e_machine of the ELF header (System V gABI).
_ELF_MACHINES: Final = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183, "ppc64le": 21, "s390x": 22}
_ELF_HEADER_BYTES: Final = 20
_BIG_ENDIAN: Final = 2


def find(names: Iterable[str], bin_dir: Path | None = None, version: str | None = None) -> dict[str, Path]:
    """Find every program, those of Kubernetes in this version.

    Raises LabError: one is missing (UMB824) or cannot run here (UMB825).
    """
    wanted = list(dict.fromkeys(names))
    places = {name: locate(name, bin_dir, version) for name in wanted}
    missing = [name for name in wanted if places[name] is None]
    if version is not None and any(name in VERSIONED for name in missing):
        raise _no_such_version([name for name in missing if name in VERSIONED], bin_dir, version)
    if missing:
        raise _no_such_programs(missing, bin_dir)
    return {name: _checked(place.resolve()) for name, place in places.items() if place is not None}


def locate(name: str, bin_dir: Path | None = None, version: str | None = None) -> Path | None:
    """Return the first path that exists, without checking that it can run.

    A version, as `v1.36.3` or `1.36`, counts for programs of Kubernetes, except in the user's own directory.
    """
    if bin_dir is not None and (bin_dir / name).exists():
        return bin_dir / name
    chosen = version if name in VERSIONED else None
    cached = _cached(name) if chosen is None else _cached_in(name, full_version(chosen))
    if cached is not None or name in KONNECTIVITY:
        return cached
    found = shutil.which(name)
    if found is None or (chosen is not None and not _is_of(name, found, full_version(chosen))):
        return None
    return Path(found).absolute()


def full_version(asked: str) -> str:
    """Return the newest version in the cache that begins as asked, `v1.36.3` for `1.36`; else what was asked."""
    asked = "v" + asked.removeprefix("v")
    return next((one for one in cached_versions() if one == asked or one.startswith(f"{asked}.")), asked)


def cached_versions() -> list[str]:
    """Return the versions of Kubernetes in the cache, newest first; of some not all programs are there."""
    folders = sorted(cache_root().glob("kubernetes-*v*"), key=_kubernetes_order, reverse=True)
    return list(dict.fromkeys(_version_of(folder) for folder in folders))


def _version_of(folder: Path) -> str:
    """Folders are `kubernetes-v1.37.1` and `kubernetes-1.36-v1.36.3`."""
    return f"v{folder.name.partition('v')[2]}"


def _kubernetes_order(folder: Path) -> tuple[tuple[int, ...], bool, str]:
    return _version_order(Path(f"kubernetes-{_version_of(folder)}"))


def _cached_in(name: str, version: str) -> Path | None:
    """Programs of other versions than the default have it in their name."""
    folders = (folder for folder in cache_root().glob("kubernetes-*") if _version_of(folder) == version)
    places = (folder / one for folder in folders for one in (name, f"{name}-{version}"))
    return next((place for place in places if place.is_file()), None)


def _is_of(name: str, program: str, version: str) -> bool:
    """Ask a program on PATH for its version."""
    asks = ("version", "--client") if name == "kubectl" else ("--version",)
    try:
        said = processes.run([program, *asks], _VERSION_SECONDS)
    except HostError:
        return False
    return version in said.split()


def cache_root() -> Path:
    """The same directory as in tools/peers.py, which fills it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "umbilical" / "peers"


def _cached(name: str) -> Path | None:
    folders = [folder for folder in cache_root().glob("*-*") if (folder / name).is_file()]
    return max(folders, key=_version_order) / name if folders else None


def _version_order(folder: Path) -> tuple[tuple[int, ...], bool, str]:
    """Sort key: v1.36.3 is after v1.9.0 and after v1.36.3-rc.1."""
    version = folder.name.partition("-")[2]
    release, _, suffix = version.partition("-")
    return tuple(int(number) for number in re.findall(r"\d{1,9}", release)), not suffix, folder.name


def _checked(path: Path) -> Path:
    if not path.is_file():
        raise _unusable(path, "it is not a regular file")
    if not os.access(path, os.X_OK):
        raise _unusable(path, "it is not executable for this user")
    with path.open("rb") as stream:
        problem = _header_error(stream.read(_ELF_HEADER_BYTES))
    if problem is not None:
        raise _unusable(path, problem)
    return path


def _header_error(header: bytes) -> str | None:
    if header.startswith(b"#!"):
        return None
    if not header.startswith(b"\x7fELF") or len(header) < _ELF_HEADER_BYTES:
        return "it is neither a Linux program (ELF) nor a script"
    machine = int.from_bytes(header[18:20], "big" if header[5] == _BIG_ENDIAN else "little")
    expected = _ELF_MACHINES.get(platform.machine())
    if expected is not None and machine != expected:
        return f"it is built for another architecture than {platform.machine()} (ELF machine {machine})"
    return None


def _no_such_programs(names: list[str], bin_dir: Path | None) -> LabError:
    groups = list(dict.fromkeys(GROUPS.get(name, "kubernetes") for name in names))
    looked = [*([str(bin_dir)] if bin_dir else []), str(cache_root())]
    if not set(names) <= set(KONNECTIVITY):
        looked.append("PATH")
    if set(names) <= set(OTHER_VERSION):
        return LabError(
            "UMB824",
            f"the other version is missing: {', '.join(names)}",
            f"searched {', '.join(looked)}",
            "link them to its proxy-server and proxy-agent in a directory, and give that: --bin-dir DIR",
        )
    commands = " and ".join(f"`make peers GROUP={group}`" for group in groups)
    return LabError(
        "UMB824",
        f"a needed program is missing: {', '.join(names)}",
        f"searched {', '.join(looked)}",
        f"build it with {commands}, or give its directory: --bin-dir DIR",
    )


def _no_such_version(names: list[str], bin_dir: Path | None, version: str) -> LabError:
    whole = full_version(version)
    group = next((group for one, group in WHOLE_VERSIONS.items() if one == whole or one.startswith(f"{whole}.")), None)
    looked = ", ".join([*([str(bin_dir)] if bin_dir else []), str(cache_root()), "PATH"])
    choices = " or ".join(one.removeprefix("v") for one in WHOLE_VERSIONS)
    remedy = f"build it with `make peers GROUP={group}`" if group else f"choose {choices}"
    return LabError(
        "UMB824",
        f"a needed program of Kubernetes {whole} is missing: {', '.join(names)}",
        f"searched {looked}; versions in the cache: {', '.join(cached_versions()) or 'none'}",
        f"{remedy}, or put programs of that version on PATH",
    )


def _unusable(path: Path, why: str) -> LabError:
    return LabError(
        "UMB825",
        f"{path} does not run on this machine",
        why,
        "remove it and run `make peers`, or replace it with a program for this machine",
    )


OWN_PROGRAMS: Final = {
    "umbilical": "umbilical.cli.main",
    "proxy-server": "umbilical.cli.drop_ins.proxy_server",
    "proxy-agent": "umbilical.cli.drop_ins.proxy_agent",
    "lab-service": "umbilical.lab.service_program",
    "lab-admission-caller": "umbilical.cli.lab.admission_caller",
}
"""Name -> the module whose `main` it runs."""
PROGRAM_MODE: Final = 0o755


def install_programs(folder: Path, binaries: Mapping[str, Path]) -> None:
    """Install every program in an existing directory; a name that upstream and we share is ours."""
    for name, module in OWN_PROGRAMS.items():
        write_file(folder / name, launcher(module).encode(), PROGRAM_MODE)
    for name, path in binaries.items():
        if name not in OWN_PROGRAMS:
            (folder / name).symlink_to(path)


def launcher(module: str, python: str = sys.executable) -> str:
    """Return a script that is valid for the shell and for Python.

    It starts with the shell because a `#!` line cannot have a long path or a space. For the shell the second line is
    a command; for Python the second and third lines are an unused string.
    """
    return (
        "#!/bin/sh\n"
        f"'''exec' {shlex.quote(python)} -P \"$0\" \"$@\"\n"
        "' '''\n"
        "import sys\n"
        f"from {module} import main\n"
        "sys.exit(main())\n"
    )
