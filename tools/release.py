"""Builds the files of a release into `dist/` and installs each of them into an empty environment.

    release.py [--out FOLDER]

docs/release.md says what the files are. The same commit gives the same bytes: times come from the commit, never from
the clock, and what cannot be built changes nothing in the folder.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

import chart
import chart_package
import debian
import image
import image_root
import image_sbom
import lock
import sbom
import wheels
from umbilical import __version__

ROOT: Final = lock.ROOT
NOTES: Final = "RELEASE_NOTES.md"
PROVENANCE: Final = "PROVENANCE.md"
CHECKSUMS: Final = "SHA256SUMS"
INSTALL_SECONDS: Final = 600.0
COMMAND_SECONDS: Final = 60.0


class ReleaseRefused(Exception):
    """No release was made; contains the three lines for the user."""

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"UMB935 {what}\n  why: {why}\n  next: {remedy}")


def notes(changelog: str, version: str) -> str:
    """Return the changelog's section of a version. Raises ReleaseRefused if it has none or an empty one."""
    found = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None or not found[1].strip():
        raise ReleaseRefused(
            f"version {version} has no notes",
            f"CHANGELOG.md has no section `## [{version}] - DATE` with text",
            "name the section [Unreleased] after the version and its day, and start a new one above it",
        )
    return f"# Umbilical {version}\n\n{found[1].strip()}\n"


def commit(root: Path = ROOT) -> tuple[str, int]:
    """Return the commit and its time. Raises ReleaseRefused if the tree differs from it."""
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseRefused(
            "the tree is not that of its commit",
            f"files that differ: {len(changed)}, the first: {changed[0].strip()}",
            "commit or remove them, then run this again",
        )
    digest, _, seconds = _git(root, "log", "-1", "--format=%H %ct").strip().partition(" ")
    return digest, int(seconds)


def provenance(version: str, digest: str, epoch: int) -> str:
    """Say from what and by what the files were built, and how to build the same bytes again."""
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True)
    return f"""# How the files of Umbilical {version} were built

| what | value |
|---|---|
| commit | {digest} |
| SOURCE_DATE_EPOCH | {epoch} (time of the commit) |
| Python | {platform.python_implementation()} {platform.python_version()} |
| C compiler | {compiler.stdout.splitlines()[0]} |
| C library | {" ".join(platform.libc_ver())} |
| machine | {platform.machine()} |

To build them again, check out the commit and run `make release` with the same Python and compiler, then compare
`{CHECKSUMS}`. The pure wheel, the chart, the SBOM of the wheels and the notes do not depend on either. The images also
depend on the versions of Debian's packages, which their SBOMs list.
"""


def checksums(folder: Path) -> str:
    """Return lines for `sha256sum -c`."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def check_wheel(wheel: Path, requirements: Path, version: str) -> None:
    """Install a wheel as docs/release.md says. Raises ReleaseRefused if its command prints another version."""
    with tempfile.TemporaryDirectory(prefix="umbilical-release-") as folder:
        place = Path(folder)
        venv.create(place, with_pip=False)
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
        _run([*pip, "--require-hashes", "-r", str(requirements)], INSTALL_SECONDS)
        _run([*pip, "--no-deps", "--no-index", str(wheel)], INSTALL_SECONDS)
        said = _run([str(place / "bin" / "umbilical"), "version"], COMMAND_SECONDS)
    if version not in said.split():
        raise ReleaseRefused(
            f"{wheel.name} is not version {version}",
            f"`umbilical version` printed: {said.strip()}",
            "make clean release",
        )


def check_chart(package: Path, version: str) -> None:
    """Raises ReleaseRefused: the package is not the tree's chart of this version, or helm does not load it."""
    try:
        why = chart_package.check(package, version)
    except chart.ChartError as refused:
        why = " ".join(str(refused).split())
    if why:
        raise ReleaseRefused(f"{package.name} is not the chart of version {version}", why, "make chart, and commit")


def image_document(archive: Path, packages: list[lock.Package], epoch: int) -> str:
    """Return an image's SBOM. Raises ReleaseRefused: the image has no records of its packages, or wrong ones."""
    try:
        return image_sbom.render(archive, __version__, packages, epoch)
    except (KeyError, ValueError) as fault:
        why = f"a record of its packages is missing or wrong: {fault}"
        raise ReleaseRefused(f"{archive.name} has no SBOM", why, "make clean release") from fault


def make(out: Path) -> list[Path]:
    """Build and check all files of this version, and put them into the folder; older files of releases go.

    Raises:
        ReleaseRefused: nothing in the folder has changed.
        wheels.WheelRefused: the same.
        debian.DebianError: the same; an image was not built.
    """
    text = notes((ROOT / "CHANGELOG.md").read_text(), __version__)
    digest, epoch = commit()
    image.check_needs(platform.machine(), sys.version_info[:2], os.geteuid())
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    with tempfile.TemporaryDirectory(prefix="umbilical-release-") as scratch:
        made = Path(scratch)
        for form in wheels.FORMS:
            _step(f"the {form} wheel")
            wheels.build(form, made)
        packages = lock.read(lock.LOCK.read_text())
        for architecture in image_root.MACHINES:
            _step(f"the image for {architecture}")
            archive = image.make(made, made, architecture)
            (made / image_sbom.file_name(__version__, architecture)).write_text(
                image_document(archive, packages, epoch)
            )
        _step("the chart")
        package = made / chart_package.file_name(__version__)
        chart_package.write(package, epoch)
        check_chart(package, __version__)
        shutil.copyfile(lock.LOCK, made / lock.LOCK.name)
        (made / f"umbilical-{__version__}.cdx.json").write_text(sbom.render(__version__, packages, epoch))
        (made / NOTES).write_text(text)
        (made / PROVENANCE).write_text(provenance(__version__, digest, epoch))
        for wheel in sorted(made.glob("*.whl")):
            _step(f"install {wheel.name} into an empty environment")
            check_wheel(wheel, made / lock.LOCK.name, __version__)
        (made / CHECKSUMS).write_text(checksums(made))
        out.mkdir(parents=True, exist_ok=True)
        for old in out.iterdir():
            if old.is_file():
                old.unlink()
        return [Path(shutil.copy(path, out / path.name)) for path in sorted(made.iterdir())]


def _step(what: str) -> None:
    print(f"release: {what}", flush=True)


def _git(root: Path, *words: str) -> str:
    return _run(["git", "-C", str(root), *words], COMMAND_SECONDS)


def _run(command: list[str], seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = lines[-1] if lines else f"it exited with {done.returncode}"
        raise ReleaseRefused(f"{Path(command[0]).name} failed", why, f"run it by hand: {' '.join(command)}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and check the files of a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="output folder; files in it are removed")
    options = parser.parse_args()
    try:
        files = make(options.out)
    except (ReleaseRefused, wheels.WheelRefused, debian.DebianError) as fault:
        print(fault, file=sys.stderr)
        return 1
    for path in files:
        print(f"  {path.stat().st_size / 1e6:8.2f} MB  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
