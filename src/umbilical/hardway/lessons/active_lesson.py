"""The active lesson: breaks something, keeps the originals next to the record, and restores them at the end.

A file that changed since the lesson broke it is not restored: the user has repaired it.
"""

import difflib
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from umbilical.fault import Fault, HardwayError
from umbilical.hardway import workspace
from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.doctor import are_up
from umbilical.hardway.ledger import RECORD
from umbilical.hardway.lessons.catalogue import LESSONS
from umbilical.hardway.lessons.lesson import ArtifactCopy, Lesson, LiveBreakage, MissingArtifact
from umbilical.hardway.site import Site
from umbilical.host.files import make_directory, write_all, write_file
from umbilical.manifests.tree import Asset

MARKER: Final = "lesson.json"
KEPT: Final = "lesson"
"""Directory below .umbilical with the original artifacts."""
REMOVED: Final = ""
"""Instead of a hash: the lesson removed the file."""


@dataclass(frozen=True)
class ActiveLesson:
    lesson: Lesson
    is_live: bool
    left: Mapping[str, str]
    """Path below artifacts/ -> hash of what the lesson left there."""


def find_lesson(name: str) -> Lesson:
    """Find a lesson by its id. Raises HardwayError: UMB751, unknown id."""
    known = {lesson.id: lesson for lesson in LESSONS}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    why = f"similar names: {', '.join(close)}" if close else "no name is similar"
    raise HardwayError("UMB751", f"found no lesson {name!r}", why, "umbilical stage break --list")


def current(folder: Path) -> ActiveLesson | None:
    """Return the active lesson. Raises HardwayError: UMB754, its record is invalid."""
    path = folder / RECORD / MARKER
    try:
        value = json.loads(path.read_bytes())
        return ActiveLesson(find_lesson(value["lesson"]), bool(value["live"]), dict(value["left"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = f"rm -r {path} {path.parent / KEPT}; then umbilical stage run, which restores all artifacts"
        raise HardwayError("UMB754", f"could not read {path}", str(error) or type(error).__name__, remedy) from None


def spoil_artifacts(folder: Path, cluster: Cluster, lesson: Lesson, now: datetime) -> None:
    """Break artifacts/. Raises HardwayError: UMB752, another lesson is active; UMB753, not possible here."""
    _refuse(folder, cluster, lesson)
    scratch = ArtifactCopy(cluster, workspace.read_artifacts(folder), now)
    try:
        lesson.spoil(scratch)
    except MissingArtifact as error:
        why = f"{error} does not exist"
        raise HardwayError("UMB753", f"lesson {lesson.id} was not started", why, "umbilical stage run 08") from None
    left = {asset.path: _hash(asset) for asset in scratch.changed} | dict.fromkeys(scratch.removed, REMOVED)
    write_all(scratch.before, make_directory(folder / RECORD / KEPT))
    _note(folder, lesson, now, left, is_live=False)
    workspace.write_artifacts(folder, scratch.changed, scratch.removed)


def spoil_machines(site: Site, lesson: Lesson) -> None:
    """Break running machines.

    Raises:
        HardwayError: UMB752, UMB753 as above.
        Fault: a command on the machines failed; nothing was broken.
    """
    _refuse(site.folder, site.cluster, lesson)
    live = _live(lesson)
    _note(site.folder, lesson, site.now(), {}, is_live=True)
    try:
        live.spoil(site)
    except Fault:
        # The last command breaks something; it or an earlier one failed.
        end(site.folder)
        raise


def mend_artifacts(folder: Path, active_lesson: ActiveLesson) -> list[str]:
    """Restore files that are as the lesson left them, end the lesson, and return their paths."""
    kept = {asset.path: asset for asset in _kept(folder)}
    there = workspace.read_artifacts(folder)
    spoiled = [path for path, mark in active_lesson.left.items() if _mark(there.get(path)) == mark]
    workspace.write_artifacts(
        folder, [kept[path] for path in spoiled if path in kept], [path for path in spoiled if path not in kept]
    )
    end(folder)
    return spoiled


def mend_machines(site: Site, active_lesson: ActiveLesson) -> bool:
    """Repair the machines and end the lesson; False if they no longer exist."""
    are_there = are_up(site)
    if are_there:
        _live(active_lesson.lesson).mend(site)
    end(site.folder)
    return are_there


def end(folder: Path) -> None:
    """End a lesson; the marker first, so that a kill in between leaves only unused files."""
    (folder / RECORD / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder / RECORD / KEPT, ignore_errors=True)


def _refuse(folder: Path, cluster: Cluster, lesson: Lesson) -> None:
    active = current(folder)
    if active is not None:
        why = f"lesson {active.lesson.id} is still active"
        raise HardwayError("UMB752", f"lesson {lesson.id} was not started", why, "umbilical stage break --mend")
    if cluster.profile not in lesson.profiles:
        fitting = " or ".join(sorted(profile.value for profile in lesson.profiles))
        why = f"it needs the profile {fitting}; this cluster has {cluster.profile.value}"
        raise HardwayError("UMB753", f"lesson {lesson.id} was not started", why, "umbilical stage break --list")


def _live(lesson: Lesson) -> LiveBreakage:
    if lesson.live is None:
        why = "it changes only artifacts"
        remedy = f"umbilical stage break {lesson.id}, without --live"
        raise HardwayError("UMB753", f"lesson {lesson.id} was not started", why, remedy)
    return lesson.live


def _note(folder: Path, lesson: Lesson, now: datetime, left: Mapping[str, str], *, is_live: bool) -> None:
    value = {"lesson": lesson.id, "live": is_live, "since": now.isoformat(timespec="seconds"), "left": dict(left)}
    path = make_directory(folder / RECORD) / MARKER
    write_file(path, json.dumps(value, indent=2).encode() + b"\n", overwrite=True)


def _kept(folder: Path) -> list[Asset]:
    root = folder / RECORD / KEPT
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return [Asset(path.relative_to(root).as_posix(), path.read_bytes(), path.stat().st_mode & 0o7777) for path in files]


def _mark(asset: Asset | None) -> str:
    return REMOVED if asset is None else _hash(asset)


def _hash(asset: Asset) -> str:
    return hashlib.sha256(asset.content).hexdigest()
