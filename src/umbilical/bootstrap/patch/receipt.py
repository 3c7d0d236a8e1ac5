"""The receipt that a patch adds to the config: what was added and what was there before, so that undo is exact."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE, RECEIPT
from umbilical.fault import RenderError
from umbilical.ignition.config import Config

VERSION: Final = 1
OWN_PREFIXES: Final = ("/opt/openshift/umbilical/", "/usr/local/bin/umbilical-")
"""Undo removes nothing else, even if a receipt lists it."""
AGAIN: Final = "create the config again: openshift-install create ignition-configs"
SHOWN_EDITS: Final = 3
SHOWN_CHARACTERS: Final = 100
# The comparison is quadratic in the worst case; an installer's script has less than 1000 lines.
MAX_COMPARED_LINES: Final = 2000
# Hexadecimal digits per line of bootkube.sh: enough to notice an edit, few enough for a file of limited size.
_DIGITS: Final = 6


@dataclass(frozen=True)
class Receipt:
    original_sha256: str
    """Of the whole document before its first patch; a later patch keeps it."""
    script_sha256: str
    """Of bootkube.sh before its first patch."""
    files: tuple[str, ...]
    """Added paths, including the receipt."""
    insertions: Mapping[str, str]
    """Our lines in bootkube.sh, by anchor."""
    entry: str | None = None
    """The original text of bootkube.sh's entry, if encoding it again gives other bytes (gzip, unusual escapes)."""
    lines: str = ""
    """The start of each line's hash, of bootkube.sh before its first patch; empty in receipts of older versions."""

    def encode(self) -> bytes:
        value = {
            "version": VERSION,
            "originalSha256": self.original_sha256,
            "scriptSha256": self.script_sha256,
            "files": list(self.files),
            "insertions": dict(self.insertions),
            **({"bootkubeEntry": self.entry} if self.entry is not None else {}),
            **({"scriptLines": self.lines} if self.lines else {}),
        }
        return (json.dumps(value, indent=2) + "\n").encode()

    def continuing(self, first: "Receipt") -> "Receipt":
        """Return the receipt of a repeated patch: the original is still the document before the first one."""
        is_same_script = self.script_sha256 == first.script_sha256
        return replace(
            self,
            original_sha256=first.original_sha256,
            script_sha256=first.script_sha256,
            entry=first.entry,
            lines=first.lines or (self.lines if is_same_script else ""),
        )

    def restores(self, content: bytes) -> bool:
        """Whether this is the original document, byte for byte."""
        return sha256(content) == self.original_sha256

    def differences(self, undone: Config, content: bytes) -> tuple[str, ...]:
        """Say how an undone document differs from the original; empty if it is the same, byte for byte."""
        if self.restores(content):
            return ()
        edits = self.script_edits(undone)
        return edits or ("bootkube.sh is as before, but other entries or the formatting were changed",)

    def script_edits(self, undone: Config) -> tuple[str, ...]:
        """Say how bootkube.sh, without our lines, differs from the original."""
        script = undone.files_at(BOOTKUBE)[0].content()
        if sha256(script) == self.script_sha256:
            return ()
        if not self.lines or max(script.count(b"\n"), len(self.lines) // _DIGITS) > MAX_COMPARED_LINES:
            return ("bootkube.sh was edited after the patch",)
        edits = list(self._changed_lines(script))
        more = len(edits) - SHOWN_EDITS
        return (*edits[:SHOWN_EDITS], *([f"{more} more edits of bootkube.sh"] if more > 0 else []))

    def _changed_lines(self, script: bytes) -> Iterator[str]:
        lines = script.decode("utf-8", "replace").split("\n")
        old = [self.lines[start : start + _DIGITS] for start in range(0, len(self.lines), _DIGITS)]
        matcher = SequenceMatcher(None, old, _line_digests(lines), autojunk=False)
        for kind, first, last, start, end in matcher.get_opcodes():
            if kind == "delete":
                before = _first_text(reversed(lines[:start]), "the beginning")
                after = _first_text(lines[end:], "the end")
                yield f"bootkube.sh lost {last - first} of its lines, between {before} and {after}"
            elif kind != "equal":
                yield from (f"bootkube.sh has a new or changed line {_quoted(line)}" for line in lines[start:end])


def digests_of(script: str) -> str:
    return "".join(_line_digests(script.split("\n")))


def _line_digests(lines: list[str]) -> list[str]:
    return [sha256(line.encode())[:_DIGITS] for line in lines]


def _first_text(lines: Iterable[str], otherwise: str) -> str:
    """Quote the first line that is not blank."""
    return next((_quoted(line) for line in lines if line.strip()), otherwise)


def _quoted(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find_receipt(config: Config) -> Receipt:
    """Read the config's receipt. Raises RenderError: there is none, or it is not ours."""
    file = config.file(RECEIPT)
    if file is None:
        what, why = "the config is not patched", f"it has no {RECEIPT}, which every patch adds"
        raise RenderError("UMB128", what, why, "see what it contains: umbilical bootstrap plan FILE")
    return decode_receipt(file.content())


def decode_receipt(content: bytes) -> Receipt:
    """Parse a receipt. Raises RenderError: it is not ours, or of a newer version."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise _unreadable("it is not JSON") from fault
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise _unreadable(f"its version is not {VERSION}")
    files = _texts(value.get("files"))
    insertions = value.get("insertions")
    if not isinstance(insertions, dict) or RECEIPT not in files:
        raise _unreadable("it does not list what was added")
    foreign = [path for path in files if not path.startswith(OWN_PREFIXES)]
    if foreign:
        raise _unreadable(f"it lists {foreign[0]}, which no patch adds")
    entry, lines = value.get("bootkubeEntry"), value.get("scriptLines")
    return Receipt(
        original_sha256=_text(value, "originalSha256"),
        script_sha256=_text(value, "scriptSha256"),
        files=files,
        insertions=dict(zip(insertions, _texts(list(insertions.values())), strict=True)),
        entry=entry if isinstance(entry, str) else None,
        lines=lines if isinstance(lines, str) else "",
    )


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise _unreadable(f"it has no {key}")
    return text


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(element, str) and element for element in value):
        raise _unreadable("it does not list what was added")
    return tuple(value)


def _unreadable(why: str) -> RenderError:
    return RenderError("UMB129", f"could not read the receipt {RECEIPT}", why, AGAIN)
