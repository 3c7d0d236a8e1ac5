"""Container images as files: one layer, a config and an index in a tar, as `docker save` writes and containerd reads.

The same entries always give the same bytes, so that the digest of an image tells whether anything changed.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""What the kernel calls a machine, and what an image calls it."""
DIRECTORY_MODE: Final = 0o755
# As on a machine: anybody may write there, and remove only what is their own.
SCRATCH_MODE: Final = 0o1777


@dataclass(frozen=True)
class Entry:
    """One file, directory or symbolic link of a layer; its path has no leading slash."""

    path: str
    source: Path | bytes | None = None
    """A file's content. None: a directory, or a link."""
    mode: int = DIRECTORY_MODE
    link: str | None = None


@dataclass(frozen=True)
class ImageConfig:
    architecture: str
    user: str = ""
    """`65532:65532`: the kubelet can tell that this is not root only from a number."""
    entrypoint: tuple[str, ...] = ()
    environment: tuple[str, ...] = ("PATH=/usr/local/bin:/usr/bin:/bin",)


def program_entries(programs: dict[str, Path | bytes]) -> list[Entry]:
    """Say what a root file system of static programs holds: those in /usr/bin, and a /tmp."""
    files = [Entry(f"usr/bin/{name}", source) for name, source in sorted(programs.items())]
    return [Entry("tmp", mode=SCRATCH_MODE), Entry("usr"), Entry("usr/bin"), *files]


def tree_entries(root: Path) -> Iterator[Entry]:
    """Read a directory of this machine, sorted, as entries; devices, sockets and owners are left out."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            yield Entry(name, link=path.readlink().as_posix())
        elif path.is_dir():
            yield Entry(name, mode=path.stat().st_mode & 0o7777)
        elif path.is_file():
            yield Entry(name, path, path.stat().st_mode & 0o7777)


def write_archive(target: Path, references: Sequence[str], entries: Iterable[Entry], config: ImageConfig) -> None:
    """Write the image with all its names; half an archive never bears its name."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".image-") as scratch:
        layer = Path(scratch, "layer.tar")
        digest = _write_layer(layer, entries)
        whole = Path(scratch, "archive.tar")
        with whole.open("wb") as stream:
            _write_index(stream, references, layer, _config_json(config, digest))
        whole.replace(target)


def content_key(entries: Iterable[Entry], config: ImageConfig) -> str:
    """A short name for exactly this content."""
    total = hashlib.sha256(repr(config).encode())
    for entry in entries:
        content = _digest(entry.source)
        total.update(repr((entry.path, entry.mode, entry.link, content)).encode())
    return total.hexdigest()[:16]


def _digest(source: Path | bytes | None) -> str | None:
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    return None if source is None else hashlib.sha256(source).hexdigest()


def _write_layer(target: Path, entries: Iterable[Entry]) -> str:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as layer:
        for entry in entries:
            _add(layer, entry)
    digest = _digest(target)
    assert digest is not None
    return digest


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    header = tarfile.TarInfo(entry.path)
    # Owner 0 and the time 0 are the defaults of a header: nothing of this machine gets into the image.
    header.mode = entry.mode
    if entry.link is not None:
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.link, 0o777
        archive.addfile(header)
    elif entry.source is None:
        header.type = tarfile.DIRTYPE
        archive.addfile(header)
    elif isinstance(entry.source, bytes):
        header.size = len(entry.source)
        archive.addfile(header, io.BytesIO(entry.source))
    else:
        header.size = entry.source.stat().st_size
        with entry.source.open("rb") as stream:
            archive.addfile(header, stream)


def _config_json(config: ImageConfig, layer_digest: str) -> bytes:
    document = {
        "architecture": config.architecture,
        "os": "linux",
        "config": {
            "User": config.user,
            "Entrypoint": list(config.entrypoint),
            "Env": list(config.environment),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }
    return json.dumps(document, sort_keys=True).encode()


def _write_index(stream: IO[bytes], references: Sequence[str], layer: Path, config: bytes) -> None:
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    index = [{"Config": config_name, "RepoTags": list(references), "Layers": ["layer.tar"]}]
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, Entry(config_name, config, 0o644))
        _add(archive, Entry("layer.tar", layer, 0o644))
        _add(archive, Entry("manifest.json", json.dumps(index).encode(), 0o644))
