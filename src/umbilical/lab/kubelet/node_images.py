"""The images of a node: all that the lab has, in its containerd before the first pod asks."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.lab.images import distinct, lab_images
from umbilical.lab.kubelet import archives, containerd
from umbilical.lab.kubelet.image_store import ImageStore

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

COMPLETE: Final = "images-complete"
FOLDER_ON_NODE: Final = "/var/cache/images"


def start_with_images(lab: "Lab", node: str, snapshotter: str) -> None:
    """Start the node's containerd. What no store has is imported, and kept in one for the next node."""
    place = _on_disk(lab, node, containerd.STATE_DIRECTORY)
    complete = place / COMPLETE
    if not complete.exists():
        # What an import that was killed left: half an image may look like a whole one.
        shutil.rmtree(place, ignore_errors=True)
    # One that was there before a restart has its images.
    wanted = [] if complete.exists() else _archives(lab)
    names = [archive.name for archive in wanted]
    store = ImageStore(archives.cache_directory(), f"{containerd.version(lab, node)}-{snapshotter}")
    present = store.lay(names, place) if wanted else set()
    missing = [archive for archive in wanted if archive.name not in present]
    containerd.start(lab, node)
    if missing:
        _import(lab, node, missing, snapshotter)
        # Its databases are whole only when it has ended.
        lab.stop(node, containerd.PROCESS)
        store.keep(_all_in(names, present), place)
        containerd.start(lab, node)
    complete.touch()


def _all_in(imported: Iterable[str], present: Iterable[str]) -> set[str]:
    """Name what is in a store after an import: an image of the same name took the place of the earlier one."""
    images = {name.rpartition("-")[0] for name in imported}
    return {*imported, *(name for name in present if name.rpartition("-")[0] not in images)}


def _archives(lab: "Lab") -> list[archives.Archive]:
    images = lab_images({name: Path(path) for name, path in lab.state.binaries.items()})
    cache = archives.cache_directory()
    return [archives.pause_archive(), *(archives.image_archive(image, cache) for image in distinct(images))]


def _import(lab: "Lab", node: str, missing: Iterable[archives.Archive], snapshotter: str) -> None:
    folder = _on_disk(lab, node, FOLDER_ON_NODE)
    folder.mkdir(parents=True, exist_ok=True)
    for archive in missing:
        archive.write(folder / archive.name)
        containerd.import_image(lab, node, f"{FOLDER_ON_NODE}/{archive.name}", snapshotter)
        (folder / archive.name).unlink()


def _on_disk(lab: "Lab", node: str, path: str) -> Path:
    return lab.directory.node_root(node) / path.lstrip("/")
