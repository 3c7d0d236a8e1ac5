"""What is in the archives of the lab's images: static programs, or Python with our own code."""

import hashlib
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host.files import make_directory
from umbilical.lab.images import PROGRAMS_DIRECTORY, Image
from umbilical.lab.kubelet import pause
from umbilical.lab.kubelet.image_archive import (
    ARCHITECTURES,
    Entry,
    ImageConfig,
    content_key,
    program_entries,
    tree_entries,
    write_archive,
)
from umbilical.lab.kubelet.libraries import library_entries
from umbilical.lab.kubelet.python_root import SITE, PythonRoot, compile_modules, python_root

PYTHON_PACKAGES: Final = ("umbilical", "hpack", "h11", "click")
"""What our programs in pods import beyond the standard library; all of it is plain Python, for any version."""


@dataclass(frozen=True)
class Archive:
    """An image that can be written; whoever has imported one of the same name need not."""

    name: str
    """Says what is inside: the image's name and a hash of its content."""
    write: Callable[[Path], None]


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "umbilical" / "images"


def pause_archive() -> Archive:
    entries = program_entries({pause.PROGRAM: pause.program()})
    config = ImageConfig(_architecture(), entrypoint=(f"{PROGRAMS_DIRECTORY}/{pause.PROGRAM}",))
    return _archive((pause.REFERENCE,), entries, config)


def image_archive(image: Image, cache: Path) -> Archive:
    """Plan the archive of an image; `cache` keeps the Python that some are made of.

    Raises:
        LabError: UMB843, there is no Python to put into it.
    """
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


def _archive(references: tuple[str, ...], entries: list[Entry], config: ImageConfig) -> Archive:
    name = _name(references, content_key(entries, config))
    return Archive(name, lambda target: write_archive(target, references, entries, config))


def _python_archive(image: Image, config: ImageConfig, root: PythonRoot) -> Archive:
    own = list(_own_entries(image.modules, root.interpreter))

    def write(target: Path) -> None:
        with tempfile.TemporaryDirectory(dir=root.path.parent, prefix=".own-") as scratch:
            whole = Path(scratch, "root")
            # Links instead of copies: the base is read only.
            shutil.copytree(root.path, whole, symlinks=True, copy_function=os.link)
            _lay(whole, own)
            compile_modules(whole, root.interpreter, [f"/{SITE}"])
            write_archive(target, _references(image), tree_entries(whole), config)

    # The root's name is the key of its own content.
    return Archive(_name(_references(image), content_key([Entry(root.path.name), *own], config)), write)


def _own_entries(modules: Mapping[str, str], interpreter: str) -> Iterator[Entry]:
    for package in PYTHON_PACKAGES:
        folder = _package_directory(package)
        for path in sorted(folder.rglob("*")):
            # Compiled parts fit one version of Python alone; every module is there as source too.
            if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyc"):
                yield Entry(f"{SITE}/{package}/{path.relative_to(folder).as_posix()}", path, 0o644)
    for name, module in modules.items():
        script = f"#!{interpreter} -I\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
        yield Entry(f"{PROGRAMS_DIRECTORY.lstrip('/')}/{name}", script.encode(), 0o755)


def _package_directory(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        why = f"this Python cannot import {package}"
        raise LabError("UMB843", "cannot make an image with Python in it", why, "pip install umbilical[lab]")
    return Path(found.submodule_search_locations[0])


def _lay(root: Path, entries: list[Entry]) -> None:
    for entry in entries:
        target = root / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        assert entry.source is not None
        target.write_bytes(entry.source if isinstance(entry.source, bytes) else entry.source.read_bytes())
        target.chmod(entry.mode)


def _name(references: tuple[str, ...], key: str) -> str:
    """Name it after the first; others are no part of the content and yet of what an import brings."""
    more = hashlib.sha256(repr(references[1:]).encode()).hexdigest()[:8] if references[1:] else ""
    return f"{references[0].rpartition('/')[2].replace(':', '-')}-{key}{more}.tar"


def _architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())
