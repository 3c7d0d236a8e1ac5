"""Reads archives of images as container runtimes do; the image that `make image` built, and how to run its programs."""

import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import make_tunnel_pki

import image
import image_root
from umbilical.lab.kubelet.archives import ARCHITECTURES

FOLDER: Final = os.environ.get("UMBILICAL_IMAGE", "")
RUN_SECONDS: Final = 100.0
built = pytest.mark.skipif(not FOLDER, reason="no image was built: run `make image`")
# Mounts the folder of the keys and makes the rest read-only, as a kubelet does; then the image's user.
_ENTER: Final = """set -e
root=$1 folder=$2
shift 2
mount --bind "$root" "$root"
[ -z "$folder" ] || mount --bind "$folder" "$root$folder"
mount -o remount,bind,ro "$root"
cd /
exec chroot --userspec=65532:0 "$root" "$@"
"""


@dataclass(frozen=True)
class ReadImage:
    names: list[str]
    config: dict[str, Any]
    layer: tarfile.TarFile
    contents: dict[str, bytes]
    """All members of the archive."""

    def unpack(self, folder: Path) -> None:
        # Not as an argument: Debian 12 has Python 3.11.2, which knows no filters.
        self.layer.extraction_filter = getattr(tarfile, "tar_filter", None)
        self.layer.extractall(folder)


def read_image(path: Path) -> ReadImage:
    """Read an image by both lists of the archive, and check every digest on the way."""
    with tarfile.open(path) as archive:
        contents = {member.name: (archive.extractfile(member) or io.BytesIO()).read() for member in archive}
    for name, content in contents.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    (listed,) = json.loads(contents["manifest.json"])
    index = json.loads(contents["index.json"])
    (manifest,) = {_blob(contents, one) for one in index["manifests"]}
    document = json.loads(manifest)
    config, (layer,) = _blob(contents, document["config"]), document["layers"]
    tar = _blob(contents, layer)
    if layer["mediaType"].endswith("+gzip"):
        tar = gzip.decompress(tar)
    assert (contents[listed["Config"]], contents[listed["Layers"][0]]) == (config, _blob(contents, layer))
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar).hexdigest()}"]
    names = [one["annotations"]["io.containerd.image.name"] for one in index["manifests"] if "annotations" in one]
    assert listed["RepoTags"] == names
    return ReadImage(names, json.loads(config), tarfile.open(fileobj=io.BytesIO(tar)), contents)


def _blob(contents: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = contents[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(content) == descriptor["size"]
    return content


def built_archive() -> Path:
    return Path(FOLDER) / image.file_name(ARCHITECTURES[platform.machine()])


def run_in_image(root: Path, folder: Path | None = None) -> list[str]:
    """Return the beginning of a command that runs in an unpacked image as its user; only root can run it.

    The root is read-only. The folder has the same path inside, where an empty one must exist.
    """
    words = ["unshare", "--mount", "--propagation=private", "sh", "-c", _ENTER, "sh", str(root)]
    return [*words, "" if folder is None else str(folder)]


def run_inside(root: Path, *command: str, folder: Path | None = None) -> str:
    """Run a program in an unpacked image to its end and return its output."""
    # The image's PATH has no chroot.
    environment = {**image.ENVIRONMENT, "PATH": os.environ["PATH"]}
    words = [*run_in_image(root, folder), *command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def image_pair(root: Path, folder: Path, emulator: Sequence[str] = ()) -> TunnelPair:
    """Return server and agent that run in an unpacked image, with their keys in the folder."""
    pair = TunnelPair(Shape(), make_tunnel_pki(folder), folder)
    share(root, folder)
    for daemon in (pair.server, pair.agent):
        program = f"/{Path(daemon.command[0]).name}"
        daemon.command = [*run_in_image(root, folder), *emulator, program, *daemon.command[1:]]
    return pair


def share(root: Path, folder: Path) -> None:
    """Make the image's user the owner of a folder that it sees at the same path."""
    (root / str(folder).lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, image_root.USER_ID, 0)
