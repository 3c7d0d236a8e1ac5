"""kubectl on every object that is applied or run as a static pod: decoded into its real type, without a server.

`--dry-run=client` of create and apply asks a server which kinds there are; `kubectl set --local` decodes alone.
Kinds that kubectl does not know (those of CRDs) are not its business.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from umbilical.hardway.artifacts import layout
from umbilical.hardway.judges.bench import Bench, Said

FOLDERS: Final = (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS)
# One refusal is a line; several are a list on one line.
_REFUSAL: Final = re.compile(r'unable to decode "([^"]+)": (.*?)(?=, unable to decode "|\]?$)', re.MULTILINE)
_UNKNOWN_KIND: Final = "no kind "


def object_faults(bench: Bench) -> list[str]:
    folders = [bench.file(name) for name in FOLDERS if bench.file(name).is_dir()]
    if not folders:
        return ["there is nothing to decode"]
    return [*_undecodable(bench, folders), *_lost_fields(bench)]


def _undecodable(bench: Bench, folders: Sequence[Path]) -> Iterator[str]:
    where = [word for folder in folders for word in ("-f", folder)]
    said = _kubectl(bench, "set", "selector", "--local", "-R", *where, "umbilical=dev", "-o", "name")
    for path, complaint in _REFUSAL.findall("\n".join(said.lines)):
        # Lists of steps are JSON and no objects.
        if path.endswith(".yaml") and not complaint.startswith(_UNKNOWN_KIND):
            yield f"{path}: {complaint}".replace(f"{bench.folder}/", "")


def _lost_fields(bench: Bench) -> Iterator[str]:
    """A misspelt field is decoded without a word: it is simply gone from what kubectl has read."""
    for folder in (layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in bench.facts.below(folder):
            # Only what was changed is printed; what is added does not matter to who looks for what is lost.
            said = _kubectl(bench, "set", "env", "--local", "-f", bench.file(asset.path), "UMBILICAL=1", "-o", "json")
            if said.status == 0 and said.stdout:
                written, read = yaml.safe_load(asset.content), json.loads(said.stdout)
                yield from (f"{asset.path}: kubectl knows no {name}" for name in lost(written, read))


def lost(written: Any, read: Any, path: str = "") -> Iterator[str]:
    """Name the fields that are in the first and not in the second; empty values may go."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name not in read and value not in (None, "", False, 0, [], {}):
                yield f"{path}.{name}".lstrip(".")
            elif name in read:
                yield from lost(value, read[name], f"{path}.{name}")
    elif isinstance(written, list) and isinstance(read, list):
        for index, (one, other) in enumerate(zip(written, read, strict=False)):
            yield from lost(one, other, f"{path}[{index}]")


def _kubectl(bench: Bench, *words: str | Path) -> Said:
    # No kubeconfig of the user's: nothing may be asked of any cluster.
    environment = {"KUBECONFIG": "/dev/null", "HOME": str(bench.folder), "PATH": "/usr/bin:/bin"}
    return bench.run("kubectl", *words, environment=environment)
