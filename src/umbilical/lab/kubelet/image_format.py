"""Writes an image as one file: an OCI image layout, with the list that `docker load` reads as well.

The same entries and config give the same bytes: owners and times are zero, and nothing of this machine is stored.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from umbilical.fault import LabError

DIRECTORY_MODE: Final = 0o755
# The best compression: an image is written once and pulled by every node.
_GZIP_LEVEL: Final = 9
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
# The first is read by podman, buildah and skopeo, the second by containerd.
_NAME_KEYS: Final = ("org.opencontainers.image.ref.name", "io.containerd.image.name")


@dataclass(frozen=True)
class LayerEntry:
    """A file, directory or symbolic link of a layer; the path has no leading slash."""

    path: str
    source: Path | bytes | None = None
    """Content of a file. None: a directory or link."""
    mode: int = DIRECTORY_MODE
    link: str | None = None


@dataclass(frozen=True)
class ImageConfig:
    architecture: str
    user: str = ""
    """As numbers, `65532:65532`: the kubelet cannot check runAsNonRoot with a name."""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Arguments of the entrypoint; a pod's `args` replace them."""
    environment: tuple[str, ...] = ("PATH=/usr/local/bin:/usr/bin:/bin",)
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    """Signal that ends a container, by default SIGTERM."""
    created: str = ""
    """Time in RFC 3339, if the image has one."""


@dataclass(frozen=True)
class _Blob:
    """A part of an image, which others name by its digest."""

    kind: str
    source: Path | bytes
    digest: str
    """SHA-256 in hex."""
    size: int

    @property
    def path(self) -> str:
        return f"blobs/sha256/{self.digest}"

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.kind, "digest": f"sha256:{self.digest}", "size": self.size}


def tree_entries(root: Path) -> Iterator[LayerEntry]:
    """Yield the entries of a directory, sorted, without devices, sockets and owners."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            yield LayerEntry(name, link=path.readlink().as_posix())
        elif path.is_dir():
            yield LayerEntry(name, mode=path.stat().st_mode & 0o7777)
        elif path.is_file():
            yield LayerEntry(name, path, path.stat().st_mode & 0o7777)


def write_archive(
    target: Path,
    references: Sequence[str],
    entries: Iterable[LayerEntry],
    config: ImageConfig,
    *,
    is_compressed: bool = False,
) -> str:
    """Write the image atomically, with all its names; return the digest of its manifest, `sha256:…`."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".image-") as scratch:
        tar = Path(scratch, "layer.tar")
        _write_layer(tar, entries)
        layer = _layer_blob(tar, is_compressed=is_compressed)
        described = _bytes_blob(_CONFIG, _config_json(config, content_digest(tar)))
        manifest = _bytes_blob(_MANIFEST, _manifest_json(described, layer))
        whole = Path(scratch, "archive.tar")
        with tarfile.open(whole, "w", format=tarfile.PAX_FORMAT) as archive:
            for entry in _layout(references, manifest, described, layer):
                _add(archive, entry)
        whole.replace(target)
    return f"sha256:{manifest.digest}"


def read_names(archive: Path) -> list[str]:
    """Return the names of an archive's images. Raises LabError: it has none, or is no archive of images (UMB849)."""
    try:
        with tarfile.open(archive) as members:
            listed = members.extractfile("manifest.json")
            names = [str(name) for one in json.loads(listed.read() if listed else b"[]") for name in one["RepoTags"]]
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        # tarfile lists every compression that it tried.
        raise _unreadable(archive, f"{type(error).__name__}: {error}".splitlines()[0].rstrip(":")) from error
    if not names:
        raise _unreadable(archive, "it contains no image with a name")
    return names


def _unreadable(archive: Path, why: str) -> LabError:
    return LabError("UMB849", f"the image in {archive} was not read", why, "make image, or give another --image FILE")


def content_digest(source: Path | bytes) -> str:
    """Return the SHA-256 of a file's or these bytes, in hex."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    return hashlib.sha256(source).hexdigest()


def _write_layer(target: Path, entries: Iterable[LayerEntry]) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as layer:
        for entry in entries:
            _add(layer, entry)


def _layer_blob(tar: Path, *, is_compressed: bool) -> _Blob:
    if not is_compressed:
        return _Blob(_LAYER, tar, content_digest(tar), tar.stat().st_size)
    packed = tar.with_suffix(".tar.gz")
    # Neither a name nor a time (the last argument) in the header.
    with tar.open("rb") as source, packed.open("wb") as raw, gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, 0) as stream:
        shutil.copyfileobj(source, stream)
    return _Blob(f"{_LAYER}+gzip", packed, content_digest(packed), packed.stat().st_size)


def _bytes_blob(kind: str, content: bytes) -> _Blob:
    return _Blob(kind, content, content_digest(content), len(content))


def _config_json(config: ImageConfig, layer_digest: str) -> bytes:
    document = {
        **({"created": config.created} if config.created else {}),
        "architecture": config.architecture,
        "os": "linux",
        "config": {
            "User": config.user,
            "Entrypoint": list(config.entrypoint),
            "Env": list(config.environment),
            **({"Cmd": list(config.command)} if config.command else {}),
            **({"Labels": dict(config.labels)} if config.labels else {}),
            **({"StopSignal": config.stop_signal} if config.stop_signal else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }
    return _json(document)


def _manifest_json(config: _Blob, layer: _Blob) -> bytes:
    head = {"schemaVersion": 2, "mediaType": _MANIFEST}
    return _json({**head, "config": config.descriptor, "layers": [layer.descriptor]})


def _layout(references: Sequence[str], manifest: _Blob, config: _Blob, layer: _Blob) -> Iterator[LayerEntry]:
    named = [{**manifest.descriptor, "annotations": dict.fromkeys(_NAME_KEYS, name)} for name in references]
    index = {"schemaVersion": 2, "manifests": named or [manifest.descriptor]}
    # For docker before version 25, which does not read the index.
    listed = [{"Config": config.path, "RepoTags": list(references), "Layers": [layer.path]}]
    yield LayerEntry("oci-layout", _json({"imageLayoutVersion": "1.0.0"}), 0o644)
    yield LayerEntry("index.json", _json(index), 0o644)
    yield LayerEntry("manifest.json", _json(listed), 0o644)
    yield from (LayerEntry(blob.path, blob.source, 0o644) for blob in (manifest, config, layer))


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _add(archive: tarfile.TarFile, entry: LayerEntry) -> None:
    header = tarfile.TarInfo(entry.path)
    # A header's default owner 0 and time 0 keep the image reproducible.
    header.mode = entry.mode
    if entry.link is not None:
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.link, 0o777
        archive.addfile(header)
    elif entry.source is None:
        header.type = tarfile.DIRTYPE
        archive.addfile(header)
    else:
        with _opened(entry.source) as stream:
            header.size = stream.seek(0, io.SEEK_END)
            stream.seek(0)
            archive.addfile(header, stream)


def _opened(source: Path | bytes) -> IO[bytes]:
    return source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
