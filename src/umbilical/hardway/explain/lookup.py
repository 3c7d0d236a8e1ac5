"""Find explanations by name, path, flag or number, or similar names; fill commands with a cluster's values."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.explain.entry import Explanation, ExplanationKind

MAX_NEAREST: Final = 3
_SIGNS: Final = {"NODE": "[a-z0-9.-]+", "-N.": r"-[0-9]+\.", "*": ".+"}
"""Placeholders in names and the patterns that they match."""
_SPLIT: Final = re.compile(r"(NODE|-N\.|\*)")


def find(entries: Sequence[Explanation], asked: str) -> list[Explanation]:
    """Return the explanations that match the first matching form of a name."""
    for form in forms(asked):
        found = [entry for entry in entries if _means(entry, form)]
        if found:
            return _narrowed(found, asked)
    return []


def forms(asked: str) -> Iterator[str]:
    """Yield forms of a name, the most exact first: as typed, the last word, ends of a path."""
    words = asked.strip().split()
    if not words:
        return
    yield " ".join(words)
    last = words[-1].partition("=")[0] if words[-1].startswith("-") else words[-1]
    yield last
    parts = [part for part in last.split("/") if part]
    for start in range(1, len(parts)):
        yield "/".join(parts[start:])


def nearest(entries: Iterable[Explanation], asked: str) -> list[str]:
    """Return similar names."""
    known: dict[str, str] = {}
    for entry in entries:
        for name in (entry.name, *entry.aliases):
            known.setdefault(name.lower(), entry.name)
    forms_of = list(forms(asked)) or [asked]
    close = difflib.get_close_matches(forms_of[-1].lower(), known, n=2 * MAX_NEAREST, cutoff=0.5)
    return list(dict.fromkeys(known[name] for name in close))[:MAX_NEAREST]


def _means(entry: Explanation, form: str) -> bool:
    return any(_pattern(name).fullmatch(form) for name in (entry.name, *entry.aliases))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    pieces = (_SIGNS.get(piece) or re.escape(piece) for piece in _SPLIT.split(name))
    return re.compile("".join(pieces), re.IGNORECASE)


def _narrowed(found: list[Explanation], asked: str) -> list[Explanation]:
    """Of several flags keep those of the named program; prefer exact names to placeholders."""
    words = asked.split()
    if len(words) > 1:
        program = words[0]
        named = [one for one in found if program in re.split(r"[,\s]+", one.readers)]
        found = named or found
    exact = [one for one in found if asked.lower() in (one.name.lower(), *(name.lower() for name in one.aliases))]
    return exact or sorted(found, key=lambda one: one.kind is ExplanationKind.LESSON)


_PATH: Final = re.compile(r"(?<![\w/.-])(artifacts/|auth/|cluster\.yaml|release/)")


def filled(entry: Explanation, cluster: Cluster, folder: str, asked: str = "") -> Explanation:
    """Fill addresses, names and the cluster's directory into the command."""
    line = entry.by_hand.replace("--dir DIR", f"--dir {folder}")
    for word, value in _values(cluster, entry, asked).items():
        line = value.join(re.split(rf"(?<![A-Z]){word}(?![A-Z]|-[A-Z])", line))
    line = line.replace("172.30.0.1:", f"{cluster.service_ip}:")
    return replace(entry, by_hand=_PATH.sub(lambda match: _below(folder, match.group()), line))


def _below(folder: str, path: str) -> str:
    whole = f"artifacts/{path}" if path == "auth/" else path
    return whole if folder in ("", ".") else f"{folder.rstrip('/')}/{whole}"


def _values(cluster: Cluster, entry: Explanation, asked: str) -> dict[str, str]:
    first_worker = cluster.routers[0]
    node = next((one for one in cluster.nodes if _names(one.id, asked)), cluster.masters[0])
    is_about_ids = entry.kind in (ExplanationKind.CERTIFICATE, ExplanationKind.FILE)
    return {
        "BOOTSTRAP": str(cluster.bootstrap.address),
        "MASTER": str(cluster.masters[0].address),
        "WORKER": str(first_worker.address),
        "NODE-ADDRESS": str(node.address),
        "NODE": node.id if is_about_ids else str(node.address),
        "DOMAIN": cluster.domain,
        "RESOLVER": str(cluster.networks.dns),
        "DIR": ".",
    }


def _names(node_id: str, asked: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(node_id)}(?![0-9])", asked) is not None
