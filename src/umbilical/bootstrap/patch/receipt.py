"""The receipt that a patch adds to the config: what was added and what was there before, so that undo is exact."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.names import RECEIPT
from umbilical.fault import RenderError
from umbilical.ignition.config import Config

VERSION: Final = 1
OWN_PREFIXES: Final = ("/opt/openshift/umbilical/", "/usr/local/bin/umbilical-")
"""Undo removes nothing else, even if a receipt lists it."""
AGAIN: Final = "create the config again: openshift-install create ignition-configs"


@dataclass(frozen=True)
class Receipt:
    original_sha256: str
    """Of the whole document before it was patched."""
    script_sha256: str
    """Of bootkube.sh before it was patched."""
    files: tuple[str, ...]
    """Added paths, including the receipt."""
    insertions: Mapping[str, str]
    """Our lines in bootkube.sh, by anchor."""
    entry: str | None = None
    """The original text of bootkube.sh's entry, if encoding it again gives other bytes (gzip, unusual escapes)."""

    def encode(self) -> bytes:
        value = {
            "version": VERSION,
            "originalSha256": self.original_sha256,
            "scriptSha256": self.script_sha256,
            "files": list(self.files),
            "insertions": dict(self.insertions),
            **({"bootkubeEntry": self.entry} if self.entry is not None else {}),
        }
        return (json.dumps(value, indent=2) + "\n").encode()

    def restores(self, content: bytes) -> bool:
        """Whether this is the original document, byte for byte."""
        return sha256(content) == self.original_sha256


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
    entry = value.get("bootkubeEntry")
    return Receipt(
        original_sha256=_text(value, "originalSha256"),
        script_sha256=_text(value, "scriptSha256"),
        files=files,
        insertions=dict(zip(insertions, _texts(list(insertions.values())), strict=True)),
        entry=entry if isinstance(entry, str) else None,
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
