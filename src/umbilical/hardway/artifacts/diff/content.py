"""Two contents of one file, compared by what the file is: its name says it."""

import posixpath
from typing import Final

from umbilical.hardway.artifacts.diff.certificates import compare_certificates, described
from umbilical.hardway.artifacts.diff.ignition import compare_ignition
from umbilical.hardway.artifacts.diff.objects import compare_objects, text_lines
from umbilical.hardway.artifacts.diff.part import HIDDEN, Part, change_of
from umbilical.ignition.diff import is_secret_file
from umbilical.pki.pem import BundleError, holds_key

_OBJECTS: Final = (".yaml", ".yml", ".json", ".kubeconfig")
_KUBECONFIGS: Final = ("kubeconfig",)
FORMATTING: Final = "only the formatting differs"


def compare_content(path: str, old: bytes | None, new: bytes | None) -> tuple[Part, ...]:
    """Tell what differs inside; nothing where the bytes are the same."""
    if old == new:
        return ()
    suffix = posixpath.splitext(path)[1]
    if suffix == ".key" or any(holds_key(side) for side in (old, new) if side):
        return (Part("key", change_of(old, new), note="key differs"),)
    if suffix == ".pub":
        return (Part("public key", change_of(old, new), note="public key differs"),)
    found: tuple[Part, ...] | None = None
    if suffix == ".crt":
        found = compare_certificates(old, new)
    elif suffix == ".ign":
        found = compare_ignition(old, new, compare_content)
    elif suffix in _OBJECTS or posixpath.basename(path) in _KUBECONFIGS:
        found = compare_objects(old, new)
    if found is None:
        return (_compare_text(path, old, new),)
    return found or (Part("text", change_of(old, new), note=FORMATTING),)


def note_of(path: str, content: bytes) -> str:
    """Say in a few words what a file is that appears or goes; empty where its path says it."""
    if not path.endswith(".crt"):
        return ""
    try:
        return described(content)
    except BundleError:
        return ""


def _compare_text(path: str, old: bytes | None, new: bytes | None) -> Part:
    change = change_of(old, new)
    if is_secret_file(path, old, new):
        return Part("content", change, note=HIDDEN)
    try:
        lines = text_lines((old or b"").decode(), (new or b"").decode())
    except UnicodeDecodeError:
        lines = ()
    sizes = f"{len(old or b'')} -> {len(new or b'')} bytes"
    return Part("content", change, lines=lines) if lines else Part("content", change, note=f"{sizes}, not shown")
