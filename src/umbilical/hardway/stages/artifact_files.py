"""Writing the files of a stage: whole or absent, with their modes, and only those that differ."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Final

from umbilical.checks.check import Check, Verdict, failed, passed, skipped
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.graph import asset_hash
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step, Undo
from umbilical.hardway.undoing import ARTIFACTS, REMOVE_FILES
from umbilical.hardway.workspace import write_artifacts

MAX_NAMED: Final = 3
# Whoever reads these takes all that lies there. Keys are never removed by the way, and machine-config/ has outputs.
SWEPT: Final = (
    layout.MANIFESTS,
    layout.STATIC_PODS,
    layout.LATE_STATIC_PODS,
    layout.IGNITION,
    layout.INFRASTRUCTURE,
)


def writing_steps(site: Site, number: int, reason: str = "") -> list[Step]:
    """One step for each folder that the stage writes to. `reason`: why another stage writes them already."""
    names = sorted(site.files.get(number, ()), key=lambda name: (_folder(name), name))
    return [
        Step(
            f"write {_counted(len(chosen))} to {ARTIFACTS}/{folder}{f', {reason}' if reason else ''}",
            _by_hand(site, chosen),
            _writer(site, chosen),
            Undo(REMOVE_FILES, {"paths": chosen}),
        )
        for folder, group in groupby(names, key=_folder)
        for chosen in [list(group)]
    ]


def sweeping_steps(site: Site, number: int) -> list[Step]:
    """One step if an earlier rendering left files behind: of a node that is gone, of an option that is off."""
    left = leftovers(site, number)
    if not left:
        return []
    shown = " ".join(shlex.quote(f"{ARTIFACTS}/{name}") for name in left)
    title = f"remove {_counted(len(left))} that no longer belong to the rendering"
    return [Step(title, f"rm {shown}", lambda: write_artifacts(site.folder, (), left))]


def leftovers(site: Site, number: int) -> list[str]:
    root = site.folder / ARTIFACTS
    tops = {name.partition("/")[0] for name in site.files.get(number, ())} & set(SWEPT)
    found = (path for top in sorted(tops) for path in sorted((root / top).rglob("*")) if path.is_file())
    return [name for path in found if (name := str(path.relative_to(root))) not in site.assets]


def written_check(number: int) -> Check[Site]:
    """The check of a stage that its files are on disk, byte for byte as they are rendered."""

    def judge(site: Site) -> Verdict:
        if not site.files.get(number):
            return skipped("it writes no file in this profile")
        wrong = [text for name in site.files.get(number, ()) if (text := _difference(site, name))]
        wrong += [f"{name} is of no use any more" for name in leftovers(site, number)]
        more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        return failed("; ".join(wrong[:MAX_NAMED]) + more) if wrong else passed()

    return Check(
        f"ART-{number:02}",
        "the files of this stage lie on disk as they are rendered",
        "a file that somebody changed by hand, or whose mode is wider, is not what the other checks have judged",
        f"umbilical stage retry {number}",
        judge,
    )


def hashes(site: Site, number: int) -> Mapping[str, str]:
    """Path -> content hash of what a stage writes."""
    return {name: asset_hash(site.assets[name]) for name in site.files.get(number, ())}


def _writer(site: Site, names: Iterable[str]) -> Callable[[], None]:
    def act() -> None:
        write_artifacts(site.folder, [site.assets[name] for name in names if _difference(site, name)])

    return act


def _difference(site: Site, name: str) -> str:
    path, asset = site.folder / ARTIFACTS / name, site.assets[name]
    try:
        content, mode = path.read_bytes(), path.stat().st_mode & 0o7777
    except OSError as error:
        return f"{name}: {error.strerror}"
    if content != asset.content:
        return f"{name} has another content"
    return "" if mode == asset.mode else f"{name} has mode {mode:04o}, not {asset.mode:04o}"


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _by_hand(site: Site, names: list[str]) -> str:
    first = site.assets[names[0]]
    target = shlex.quote(f"{ARTIFACTS}/{names[0]}")
    line = f"install -D -m {first.mode:04o} /dev/stdin {target}"
    return line if len(names) == 1 else f"{line}  # and {len(names) - 1} more: umbilical stage plan"


def _counted(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"
