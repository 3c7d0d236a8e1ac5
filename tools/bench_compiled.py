"""Compiles our package for the benchmark's interpreter, in a cache outside the tree.

The key is a hash of the sources and of the interpreter.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COPIED: Final = ("src", "tools", "setup.py", "pyproject.toml", "README.md", "LICENSE")
# What a build depends on; of the tools only the list of compiled modules.
HASHED: Final = ("src", "setup.py", "pyproject.toml", "tools/compiled.py")
KEPT: Final = 3
BUILD_TIMEOUT_SECONDS: Final = 1800


class BuildFailed(Exception):
    """The package did not compile; the text is the first error of the compiler."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "umbilical" / "bench"


def key(root: Path) -> str:
    """Return the key of these sources and this interpreter."""
    digest = hashlib.sha256(sys.version.encode() + sys.prefix.encode())
    for path in sorted(_hashed(root)):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _hashed(root: Path) -> list[Path]:
    found = [root / name for name in HASHED]
    inside = [path for folder in found if folder.is_dir() for path in folder.rglob("*.py")]
    return [*inside, *(path for path in found if path.is_file())]


def compiled_source(root: Path = ROOT, cache: Path | None = None) -> Path:
    """Return the folder to put on PYTHONPATH, built unless it is cached.

    Raises:
        BuildFailed: mypyc or the C compiler failed.
    """
    folder = (cache or cache_folder()) / key(root)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        print(f"bench: compiling our package into {folder}; takes a minute or two", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
            _build(root, Path(scratch))
            _place(Path(scratch) / "src", folder)
        _forget_old(folder)
    return folder


def _build(root: Path, scratch: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "build")
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, scratch / name, ignore=ignore)
        elif source.is_file():
            shutil.copy2(source, scratch / name)
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=scratch,
        env={**os.environ, "UMBILICAL_COMPILE": "1"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        faults = [line for line in lines if "error:" in line] or lines[-1:]
        raise BuildFailed(faults[0] if faults else f"setup.py exited with {done.returncode}")


def _place(built: Path, folder: Path) -> None:
    """Rename, so that a build is complete or absent. A parallel build that was faster has the same content."""
    try:
        built.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _forget_old(newest: Path) -> None:
    others = [path for path in newest.parent.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        if path != newest:
            shutil.rmtree(path, ignore_errors=True)
