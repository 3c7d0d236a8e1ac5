"""Archives of the lab's images: programs with their libraries, or Python with our code."""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host.files import make_directory
from umbilical.host.processes import run
from umbilical.lab.images import PROGRAMS_DIRECTORY, Image
from umbilical.lab.kubelet import containerd
from umbilical.lab.kubelet.image_format import ImageConfig, LayerEntry, content_digest, tree_entries, write_archive
from umbilical.lab.kubelet.python_root import SITE, PythonRoot, compile_modules, python_root

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Machine name of the kernel -> architecture of an image."""
# Like /tmp: every user may write, and delete only own files.
SCRATCH_MODE: Final = 0o1777


def program_entries(programs: dict[str, Path | bytes]) -> list[LayerEntry]:
    """Return the root file system for programs: /usr/bin and /tmp."""
    files = [LayerEntry(f"usr/bin/{name}", source) for name, source in sorted(programs.items())]
    # Scripts begin with #!/bin/sh.
    links = [LayerEntry("bin", link="usr/bin")]
    return [*links, LayerEntry("tmp", mode=SCRATCH_MODE), LayerEntry("usr"), LayerEntry("usr/bin"), *files]


def content_key(entries: Iterable[LayerEntry], config: ImageConfig) -> str:
    """Return a short hash of the content."""
    total = hashlib.sha256(repr(config).encode())
    for entry in entries:
        content = None if entry.source is None else content_digest(entry.source)
        total.update(repr((entry.path, entry.mode, entry.link, content)).encode())
    return total.hexdigest()[:16]


LDD_SECONDS: Final = 30.0
# `libmnl.so.0 => /lib/.../libmnl.so.0 (0x...)`, and the loader alone: `/lib64/ld-linux-x86-64.so.2 (0x...)`.
_PLACE: Final = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)


def library_entries(programs: Iterable[Path]) -> list[LayerEntry]:
    """List the libraries of these programs and the loader, at the paths where the loader searches."""
    # One call: ldd starts a shell.
    chosen = [*programs]
    found = set(library_paths(run(["ldd", *chosen], LDD_SECONDS))) if chosen else ()
    # Resolved: the path is often a symlink.
    return [LayerEntry(place.lstrip("/"), Path(place).resolve(), 0o755) for place in sorted(found)]


def library_paths(listing: str) -> list[str]:
    """Return the paths in the output of ldd; the vDSO has none."""
    return _PLACE.findall(listing)


PYTHON_PACKAGES: Final = ("umbilical", "h11", "click")
"""Packages that our programs in pods import; pure Python, for any version."""


@dataclass(frozen=True)
class Archive:
    """An image to write; a containerd that has one of this name need not import it."""

    name: str
    """Name of the image and hash of its content."""
    write: Callable[[Path], object]


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "umbilical" / "images"


def pause_archive() -> Archive:
    entries = program_entries({containerd.PAUSE_PROGRAM: containerd.pause_program()})
    config = ImageConfig(_architecture(), entrypoint=(f"{PROGRAMS_DIRECTORY}/{containerd.PAUSE_PROGRAM}",))
    return _archive((containerd.PAUSE_REFERENCE,), entries, config)


def image_archive(image: Image, cache: Path) -> Archive:
    """Return an image's archive; `cache` holds Python roots. Raises LabError: UMB843, no Python."""
    config = ImageConfig(
        _architecture(),
        user=":".join(map(str, image.user)),
        entrypoint=(f"{PROGRAMS_DIRECTORY}/{image.entrypoint}",) if image.entrypoint else (),
        environment=tuple(f"{name}={value}" for name, value in image.environment.items()),
    )
    if not image.is_python:
        entries = [*program_entries({**image.programs, **image.linked}), *library_entries(image.linked.values())]
        return _archive(_references(image), entries, config)
    return _python_archive(image, config, python_root(make_directory(cache)))


def _references(image: Image) -> tuple[str, ...]:
    return (image.reference, *image.aliases)


def _archive(references: tuple[str, ...], entries: list[LayerEntry], config: ImageConfig) -> Archive:
    name = _name(references, content_key(entries, config))
    return Archive(name, lambda target: write_archive(target, references, entries, config))


def _python_archive(image: Image, config: ImageConfig, root: PythonRoot) -> Archive:
    own = list(_own_entries(image.modules, root.interpreter))

    def write(target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=root.path.parent, prefix=".own-") as scratch:
            whole = Path(scratch, "root")
            # Hard links: the base is never written.
            shutil.copytree(root.path, whole, symlinks=True, copy_function=os.link)
            _lay(whole, own)
            compile_modules(whole, root.interpreter, [f"/{SITE}"])
            write_archive(target, _references(image), tree_entries(whole), config)

    # The root's name holds the hash of its content.
    return Archive(_name(_references(image), content_key([LayerEntry(root.path.name), *own], config)), write)


def _own_entries(modules: Mapping[str, str], interpreter: str) -> Iterator[LayerEntry]:
    for package in PYTHON_PACKAGES:
        folder = _package_directory(package)
        for path in sorted(folder.rglob("*")):
            # Without compiled files, which fit one Python version only.
            if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyc"):
                yield LayerEntry(f"{SITE}/{package}/{path.relative_to(folder).as_posix()}", path, 0o644)
    for name, module in modules.items():
        script = f"#!{interpreter} -I\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
        yield LayerEntry(f"{PROGRAMS_DIRECTORY.lstrip('/')}/{name}", script.encode(), 0o755)


def _package_directory(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        why = f"this Python cannot import {package}"
        raise LabError("UMB843", "could not build the Python image", why, "pip install 'umbilical[lab]'")
    return Path(found.submodule_search_locations[0])


def _lay(root: Path, entries: list[LayerEntry]) -> None:
    for entry in entries:
        target = root / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        assert entry.source is not None
        target.write_bytes(entry.source if isinstance(entry.source, bytes) else entry.source.read_bytes())
        target.chmod(entry.mode)


def _name(references: tuple[str, ...], key: str) -> str:
    """Name the archive after the first reference, with a hash of the others: an import creates all of them."""
    more = hashlib.sha256(repr(references[1:]).encode()).hexdigest()[:8] if references[1:] else ""
    return f"{references[0].rpartition('/')[2].replace(':', '-')}-{key}{more}.tar"


def _architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())
