"""Guesses what must not be shown on a screen or in a log: keys, kubeconfigs, pull secrets, Secrets, signed URLs.

A guess on the safe side. It hides; it protects nothing.
"""

import posixpath
import re
from typing import Any, Final

_SECRET_NAMES: Final = re.compile(r"kubeconfig|password|passwd|shadow|token|secret|credential", re.IGNORECASE)
_SECRET_SUFFIXES: Final = (".key", "/.docker/config.json")
_SECRET_CONTENT: Final = re.compile(
    rb"PRIVATE KEY-----"
    rb"|client-key-data|pullSecret"
    rb'|"auths?"\s*:'
    # A JSON Web Token begins so, whatever is in it.
    rb"|eyJhbGciOi"
    rb"""|^[ \t\-{]*["']?kind["']?\s*:\s*["']?Secret\b"""
    # In one-line JSON the kind may stand anywhere.
    rb'|"kind"\s*:\s*"Secret"',
    re.MULTILINE,
)
_SECRET_FIELDS: Final = re.compile(r"passwordHash|httpHeaders|keyFile|clevis", re.IGNORECASE)
_REMOTE: Final = re.compile(r"(?:https?|s3|gs|arn):", re.IGNORECASE)


def is_secret_file(path: str, *contents: bytes | None) -> bool:
    is_named_so = path.endswith(_SECRET_SUFFIXES) or _SECRET_NAMES.search(posixpath.basename(path)) is not None
    return is_named_so or any(_SECRET_CONTENT.search(content) for content in contents if content)


def is_secret_field(place: str, value: Any) -> bool:
    return _SECRET_FIELDS.search(place) is not None or _holds_secret(value)


def _holds_secret(value: Any) -> bool:
    """Look into the strings of a JSON value: a signed URL is a key as well, until it expires."""
    if isinstance(value, dict):
        return any(is_secret_field(str(key), member) for key, member in value.items())
    if isinstance(value, list):
        return any(_holds_secret(element) for element in value)
    return isinstance(value, str) and (_is_opaque(value) or is_secret_file("", value.encode("utf-8", "replace")))


def _is_opaque(text: str) -> bool:
    return text.startswith("data:") or ("?" in text and _REMOTE.match(text) is not None)
