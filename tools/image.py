"""Builds our image as one file: Debian's Python, the compiled wheel and our programs, without a base image.

    image.py [--architecture amd64|arm64] [--wheels FOLDER] [--out FOLDER | --tree FOLDER | --check]

docs/image.md says what is in it and how to use it. It runs as any user; an ordinary one needs user namespaces.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import debian
import image_root
import lock
from image_root import ImageRefused
from umbilical import __version__
from umbilical.fault import HostError
from umbilical.host.processes import run
from umbilical.lab.kubelet.archives import ARCHITECTURES
from umbilical.lab.kubelet.image_format import ImageConfig, tree_entries, write_archive
from umbilical.lab.kubelet.python_root import SITE, command_in, compile_modules
from umbilical.manifests.objects import DEFAULT_IMAGE

NEEDED: Final = ("mmdebstrap", "dpkg-deb", "chroot", "unshare")
COMMAND_SECONDS: Final = 120.0
PATH: Final = "/usr/bin:/bin"
AUTHORITIES: Final = "/etc/ssl/certs/ca-certificates.crt"
ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": PATH,
    # The root may be read-only, and the bytecode is there.
    "PYTHONDONTWRITEBYTECODE": "1",
    # The log of a container that is killed is complete.
    "PYTHONUNBUFFERED": "1",
    "SSL_CERT_FILE": AUTHORITIES,
}
LABELS: Final[Mapping[str, str]] = {
    "org.opencontainers.image.title": "umbilical",
    "org.opencontainers.image.description": "Konnectivity tunnel: server, agent, SOCKS5 and HTTPS proxies",
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.version": __version__,
}
# In root's group, as on OpenShift: keys of mode 0440 are readable without an fsGroup.
USER: Final = f"{image_root.USER_ID}:0"
ENTRYPOINT: Final = "/usr/bin/umbilical"
STOP_SIGNAL: Final = "SIGTERM"
INTERPRETER: Final = f"/usr/bin/python{image_root.PYTHON}"
MODULES: Final = (f"/usr/lib/python{image_root.PYTHON}", f"/{SITE}")
FOREIGN: Final = "/image"
"""Where the tree for another machine is while its modules are compiled."""


def file_name(architecture: str) -> str:
    return f"umbilical-{__version__}-{architecture}.oci.tar"


def check_needs(machine: str, python: tuple[int, int], user: int) -> None:
    """Check everything that a build needs, before it takes time.

    Raises:
        ImageRefused: programs are missing (UMB941), or this machine or Python does not fit (UMB943).
    """
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(debian.PACKAGES[name] for name in missing))
        why = f"not on PATH: {', '.join(missing)}"
        raise ImageRefused("UMB941", "make image needs more programs", why, f"apt-get install {packages}")
    if (
        user != 0
        and subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, check=False).returncode
    ):
        why = "the image's Python runs in its own root directory, and this user cannot create namespaces"
        raise ImageRefused("UMB941", "make image needs root or user namespaces here", why, "sudo make image")
    if machine not in ARCHITECTURES:
        why = f"this machine is {machine}; there are packages and wheels for {' and '.join(ARCHITECTURES)}"
        raise ImageRefused("UMB943", f"there is no image for {machine}", why, "use one of those machines")
    wanted = image_root.PYTHON
    if ".".join(map(str, python)) != wanted:
        why = f"its wheel is compiled by this Python, {python[0]}.{python[1]}; the image has Debian's Python {wanted}"
        remedy = f"make clean, then: make image PYTHON=/path/to/python{wanted}"
        raise ImageRefused("UMB943", f"make image needs Python {wanted}", why, remedy)


def choose_wheel(folder: Path, architecture: str) -> Path:
    """Return the wheel for the image's Python. Raises ImageRefused: UMB943, there is none.

    Another machine's image gets the pure one: machine code is built where it runs.
    """
    python = f"cp{image_root.PYTHON.replace('.', '')}"
    machine = image_root.MACHINES[architecture]
    tags = f"{python}-{python}-linux_{machine}" if machine == platform.machine() else "py3-none-any"
    fitting = folder / f"umbilical-{__version__}-{tags}.whl"
    if not fitting.is_file():
        there = ", ".join(sorted(path.name for path in folder.glob("*.whl"))) or "no wheel"
        raise ImageRefused(
            "UMB943",
            f"there is no wheel for Python {image_root.PYTHON} on {machine}",
            f"the image for {architecture} needs {fitting.name}; in {folder}: {there}",
            f"make clean, then: make image PYTHON=/path/to/python{image_root.PYTHON}",
        )
    return fitting


def config(architecture: str, commit: str, epoch: int | None) -> ImageConfig:
    """Return what a container runtime reads; without a commit the tree has changes."""
    revision = {"org.opencontainers.image.revision": commit} if commit else {}
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if epoch is not None else ""
    return ImageConfig(
        architecture,
        USER,
        (ENTRYPOINT,),
        environment=tuple(f"{name}={value}" for name, value in ENVIRONMENT.items()),
        labels={**LABELS, **revision},
        stop_signal=STOP_SIGNAL,
        created=created,
    )


def origin(tree: Path = lock.ROOT) -> tuple[str, int | None]:
    """Return the commit, if the tree is exactly that, and the time of the commit or SOURCE_DATE_EPOCH."""
    head, changed = _git(tree, "log", "-1", "--format=%H %ct"), _git(tree, "status", "--porcelain")
    commit, _, seconds = (head or "").strip().partition(" ")
    given = os.environ.get("SOURCE_DATE_EPOCH", seconds)
    return commit if changed == "" else "", int(given) if given else None


def _git(tree: Path, *words: str) -> str | None:
    """Return git's output; None: this is not a clone."""
    try:
        command = ["git", "-c", "safe.directory=*", "-C", str(tree), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def finish(root: Path) -> None:
    """Compile all modules, and check that our program runs. Raises ImageRefused: UMB944."""
    try:
        compile_modules(root, INTERPRETER, MODULES)
        said = run([*command_in(root), ENTRYPOINT, "version"], COMMAND_SECONDS)
    except HostError as error:
        why = error.brief
    else:
        if said.startswith(f"umbilical {__version__} (") and ", compiled, " in said:
            return
        why = f"`umbilical version` printed: {said.strip()}"
    remedy = "build the wheel on Debian 12: make clean, then make image"
    raise ImageRefused("UMB944", "the programs do not run in the image", why, remedy)


def finish_foreign(root: Path) -> None:
    """Compile all modules of another machine's tree with this machine's Python of the same version.

    Raises DebianError: it was not fetched (UMB942) or failed (UMB944).
    """
    with tempfile.TemporaryDirectory(prefix="umbilical-image-") as scratch:
        own = Path(scratch, "root")
        image_root.add_python(own, ARCHITECTURES[platform.machine()])
        # Inside only for the compiler.
        inside = shutil.move(root, own / FOREIGN.lstrip("/"))
        try:
            compile_modules(own, INTERPRETER, [f"{FOREIGN}{folder}" for folder in MODULES], FOREIGN)
        except HostError as error:
            raise ImageRefused("UMB944", "the modules were not compiled", error.brief, "make image") from error
        finally:
            shutil.move(inside, root)


def make_tree(root: Path, wheels: Path, architecture: str) -> None:
    """Make the file tree in an empty folder. Raises DebianError: UMB941 to UMB944."""
    wheel = choose_wheel(wheels, architecture)
    _step(f"Debian's packages, {wheel.name} and its dependencies")
    image_root.build(root, architecture, wheel)
    if image_root.MACHINES[architecture] == platform.machine():
        _step("bytecode, and a first start")
        finish(root)
    else:
        _step("bytecode")
        finish_foreign(root)
    # The bytecode has this user's umask.
    image_root.set_modes(root)


def make(wheels: Path, out: Path, architecture: str) -> Path:
    """Build the image and return its file. Raises DebianError: UMB941 to UMB944."""
    commit, epoch = origin()
    with tempfile.TemporaryDirectory(prefix="umbilical-image-") as scratch:
        root = Path(scratch, "root")
        root.mkdir()
        make_tree(root, wheels, architecture)
        _step("archive")
        out.mkdir(parents=True, exist_ok=True)
        target = out / file_name(architecture)
        described = config(architecture, commit, epoch)
        digest = write_archive(target, [DEFAULT_IMAGE], tree_entries(root), described, is_compressed=True)
    print(f"  {target.stat().st_size / 1e6:.1f} MB  {target}\n  {DEFAULT_IMAGE}@{digest}")
    return target


def _step(what: str) -> None:
    print(f"image: {what}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the image of this version into an OCI archive.")
    parser.add_argument("--wheels", type=Path, default=lock.ROOT / "dist", help="folder with the compiled wheel")
    parser.add_argument("--out", type=Path, default=lock.ROOT / "dist", help="output folder")
    parser.add_argument("--architecture", choices=tuple(image_root.MACHINES), help="default: this machine's")
    parser.add_argument("--tree", type=Path, metavar="FOLDER", help="write the file tree into this new folder instead")
    parser.add_argument("--check", action="store_true", help="only check that this machine has what a build needs")
    options = parser.parse_args()
    try:
        check_needs(platform.machine(), sys.version_info[:2], os.geteuid())
        architecture = options.architecture or ARCHITECTURES[platform.machine()]
        if options.tree:
            options.tree.mkdir(parents=True)
            make_tree(options.tree, options.wheels, architecture)
        elif not options.check:
            make(options.wheels, options.out, architecture)
    except debian.DebianError as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
