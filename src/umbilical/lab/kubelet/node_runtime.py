"""Prepares a node for a kubelet: control group, kernel settings, and a containerd with the lab's images.

Importing half a gigabyte takes ten seconds per node on a busy machine. So the user's cache holds a store with the
images, and a node starts with a copy made of hard links: containerd changes only its databases, and those are copied.
"""

import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host.files import make_directory
from umbilical.lab import cgroups
from umbilical.lab.images import distinct, lab_images, shell_image
from umbilical.lab.kubelet import archives, containerd, kubelet_config
from umbilical.lab.kubelet.image_format import content_digest
from umbilical.lab.lab import CompletedCommand, Lab

PACKAGES: Final = {"containerd": "containerd", "ctr": "containerd", "runc": "runc"}
"""Program -> Debian package."""
CNI_PACKAGE: Final = "containernetworking-plugins"
CNI_PLUGINS: Final = ("bridge", "host-local", "loopback", "portmap")
# Debian's, then Fedora's. Not /opt or /usr/local: each node has its own.
CNI_DIRECTORIES: Final = (Path("/usr/lib/cni"), Path("/usr/libexec/cni"))
# Directories that a node shares with this machine.
SEARCH_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"


def check_needs(binaries: Iterable[str], *, is_root: bool | None = None, path: str = SEARCH_PATH) -> None:
    """Raise LabError: not root (UMB840), a program is missing (UMB841, UMB824) or the machine is unknown (UMB845)."""
    if not (os.geteuid() == 0 if is_root is None else is_root):
        why = "control groups and container mounts need root"
        remedy = "run it as root, or use the process runner: --runner process"
        raise LabError("UMB840", "the kubelet runner needs root", why, remedy)
    containerd.pause_program(platform.machine())
    missing = {package: name for name, package in PACKAGES.items() if shutil.which(name, path=path) is None}
    if find_cni() is None:
        missing[CNI_PACKAGE] = "the CNI plugins"
    if missing:
        raise _missing(missing)
    if "kubelet" not in set(binaries):
        why = "there is none in the cache of `make peers`, in PATH or in --bin-dir"
        raise LabError("UMB841", "the kubelet runner needs a kubelet", why, "make peers GROUP=kubernetes")


def find_cni(directories: Iterable[Path] = CNI_DIRECTORIES) -> Path | None:
    """Return the first directory with all needed plugins."""
    for directory in directories:
        if all(os.access(directory / plugin, os.X_OK) for plugin in CNI_PLUGINS):
            return directory
    return None


def _missing(missing: dict[str, str]) -> LabError:
    return LabError(
        "UMB841",
        f"the kubelet runner needs {', '.join(missing.values())}",
        f"searched {SEARCH_PATH} and {', '.join(map(str, CNI_DIRECTORIES))}",
        f"apt-get install --no-install-recommends {' '.join(missing)}",
    )


MANIFEST: Final = "archives.json"
# Images and layers; the rest of containerd's root belongs to the running instance.
_PARTS: Final = ("io.containerd.content.v1.content", "io.containerd.metadata.v1.bolt", "io.containerd.snapshotter.v1.*")
_DATABASE: Final = ".db"
# For labs of two versions on one machine, and labs with fewer programs.
KEPT: Final = 3
LONG_AGO: Final = 3600.0
"""Seconds after which an unfinished store counts as abandoned."""


class ImageStore:
    """All stores for one `kind` of containerd: version and snapshotter."""

    def __init__(self, cache: Path, kind: str) -> None:
        self._folder = cache / "stores"
        self._kind = kind

    def lay(self, archives: Sequence[str], target: Path) -> set[str]:
        """Fill a node's containerd directory from the store with most of these archives; return the store's content."""
        wanted = set(archives)
        found = max(self._stores(), key=lambda store: len(wanted & _names(store)), default=None)
        if found is None:
            return set()
        try:
            has = _names(found)
            _share(found, target)
        except OSError:
            # Another lab is deleting it as too old.
            shutil.rmtree(target, ignore_errors=True)
            return set()
        os.utime(found)
        return has

    def keep(self, archives: Iterable[str], source: Path) -> None:
        """Save what a stopped containerd has imported."""
        names = sorted(set(archives))
        make_directory(self._folder)
        place = self._folder / self._name(names)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".new-") as scratch:
            made = Path(scratch, "store")
            made.mkdir()
            _share(source, made)
            (made / MANIFEST).write_text(json.dumps(names))
            if not place.exists():
                made.rename(place)
        half_made = [path for path in self._folder.glob(".new-*") if time.time() - path.stat().st_mtime > LONG_AGO]
        for old in (*half_made, *sorted(self._stores(), key=lambda path: path.stat().st_mtime)[:-KEPT]):
            shutil.rmtree(old, ignore_errors=True)

    def _stores(self) -> list[Path]:
        return [path for path in self._folder.glob(f"{self._kind}-*") if (path / MANIFEST).is_file()]

    def _name(self, names: Iterable[str]) -> str:
        return f"{self._kind}-{hashlib.sha256(repr(list(names)).encode()).hexdigest()[:16]}"


def _names(store: Path) -> set[str]:
    return set(json.loads((store / MANIFEST).read_text()))


def _share(source: Path, target: Path) -> None:
    for part in (path for pattern in _PARTS for path in source.glob(pattern)):
        shutil.copytree(part, target / part.name, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    if source.endswith(_DATABASE) or os.path.islink(source):
        shutil.copy2(source, target, follow_symlinks=False)
        return
    try:
        os.link(source, target)
    except OSError:
        # The cache is on another file system, or the file has too many links.
        shutil.copy2(source, target)


COMPLETE: Final = "images-complete"
FOLDER_ON_NODE: Final = "/var/cache/images"


def start_with_images(lab: Lab, node: str, snapshotter: str) -> None:
    """Start the node's containerd. Missing images are imported, and stored for the next node."""
    place = _on_disk(lab, node, containerd.STATE_DIRECTORY)
    complete = place / COMPLETE
    if not complete.exists():
        # Left by a killed import: half an image may look complete.
        shutil.rmtree(place, ignore_errors=True)
    # After a restart the images are already there.
    wanted = [] if complete.exists() else _archives(lab)
    names = [archive.name for archive in wanted]
    store = ImageStore(archives.cache_directory(), f"{containerd.version(lab, node)}-{snapshotter}")
    present = store.lay(names, place) if wanted else set()
    missing = [archive for archive in wanted if archive.name not in present]
    containerd.start(lab, node)
    if missing:
        _import(lab, node, missing, snapshotter)
        # The databases are complete only after it has stopped.
        lab.stop(node, containerd.PROCESS)
        store.keep(_all_in(names, present), place)
        containerd.start(lab, node)
    complete.touch()


def _all_in(imported: Iterable[str], present: Iterable[str]) -> set[str]:
    """Return the content of a store after an import: an image replaces an older one of its name."""
    images = {name.rpartition("-")[0] for name in imported}
    return {*imported, *(name for name in present if name.rpartition("-")[0] not in images)}


def _archives(lab: Lab) -> list[archives.Archive]:
    images = lab_images({name: Path(path) for name, path in lab.state.binaries.items()})
    cache = archives.cache_directory()
    wanted = (*distinct(images), shell_image())
    own = [archives.pause_archive(), *(archives.image_archive(image, cache) for image in wanted)]
    return [*own, given_archive(Path(lab.state.image))] if lab.state.image else own


def given_archive(path: Path) -> archives.Archive:
    """Return a user's archive under a name that changes with its content."""
    name = f"{path.name.removesuffix('.tar')}-{content_digest(path)[:16]}.tar"
    return archives.Archive(name, lambda target: _link(str(path), str(target)))


def _import(lab: Lab, node: str, missing: Iterable[archives.Archive], snapshotter: str) -> None:
    for archive in missing:
        _import_file(lab, node, archive.name, archive.write, snapshotter).check()


def load_image(lab: Lab, node: str, archive: Path) -> list[str]:
    """Load a user's archive, as `docker save` writes it, and return the names of its images.

    Raises LabError: UMB772, containerd did not take it.
    """
    snapshotter = containerd.choose_snapshotter(lab, node)
    done = _import_file(lab, node, archive.name, lambda place: _link(str(archive), str(place)), snapshotter)
    names = containerd.parse_import(done.text)
    if done.exit_code != 0 or not names:
        why = done.stderr.decode(errors="replace").strip() or "it contains no image with a name"
        remedy = f"write it with: docker save --output {archive} IMAGE:TAG"
        raise LabError("UMB772", f"{archive} was not loaded onto {node}", why, remedy)
    return names


def _import_file(lab: Lab, node: str, name: str, write: Callable[[Path], object], snapshotter: str) -> CompletedCommand:
    folder = _on_disk(lab, node, FOLDER_ON_NODE)
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    place.unlink(missing_ok=True)
    try:
        write(place)
        return containerd.import_image(lab, node, f"{FOLDER_ON_NODE}/{name}", snapshotter)
    finally:
        place.unlink(missing_ok=True)


def _on_disk(lab: Lab, node: str, path: str) -> Path:
    return lab.directory.node_root(node) / path.lstrip("/")


_KERNEL_FILES: Final = "/run/kernel-settings"
# Shows the kubelet the settings that it wants, so that it does not change the machine's. Mounts are shared, as under
# systemd: pods may use mount propagation.
_PREPARE: Final = """
set -e
mount --make-rshared /
folder=$1
shift
mkdir -p "$folder"
for setting in "$@"; do
  path=/proc/sys/${setting%=*} value=${setting#*=}
  [ -e "$path" ] && [ "$(cat "$path")" != "$value" ] || continue
  file=$folder/$(basename "$path")
  printf '%s\\n' "$value" > "$file"
  mount --bind "$file" "$path"
done
"""


def group_of(lab: Lab, node: str) -> str:
    """Name the control group of a node's pods."""
    return f"{cgroups.lab_group(lab.state.name, lab.directory.path)}/{node}"


def make_group(lab: Lab, node: str) -> str:
    name = cgroups.lab_group(lab.state.name, lab.directory.path)
    if lab.state.cgroup != name:
        # Recorded first, so that `down` always removes it.
        lab.set_cgroup(name)
    group = group_of(lab, node)
    cgroups.make(group)
    return group


def start_containerd(lab: Lab, node: str) -> None:
    """Start it unless it runs."""
    if is_running(lab, node, containerd.PROCESS):
        return
    settings = [f"{path}={value}" for path, value in kubelet_config.KERNEL_SETTINGS.items()]
    lab.exec(node, ["sh", "-c", _PREPARE, "sh", _KERNEL_FILES, *settings]).check()
    plugins = find_cni()
    assert plugins is not None
    snapshotter = containerd.choose_snapshotter(lab, node)
    lab.write(node, containerd.CONFIG_PATH, containerd.config(snapshotter, plugins).encode(), 0o644)
    start_with_images(lab, node, snapshotter)


def is_running(lab: Lab, node: str, name: str) -> bool:
    return any((one.node, one.name, one.exit_code) == (node, name, None) for one in lab.processes())


def stop_if_running(lab: Lab, node: str, name: str) -> None:
    if is_running(lab, node, name):
        lab.stop(node, name)
