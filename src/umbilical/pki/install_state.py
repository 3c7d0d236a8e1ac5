"""The RootCA in `.openshift_install_state.json`. Its key signs for the whole cluster: no text here repeats a value."""

import base64
import binascii
import json
from typing import Any, Final

from umbilical.fault import PkiError
from umbilical.pki.pem import KeyPair

ROOT_AUTHORITY: Final = "*tls.RootCA"
"""The file maps Go type names to their fields; byte slices are base64."""


def root_authority_from_state(content: bytes) -> KeyPair:
    """Take the installer's root authority out of its state file.

    Raises:
        PkiError: the file is not such a state, or holds no root authority (yet).
    """
    fields = _state(content).get(ROOT_AUTHORITY)
    if not isinstance(fields, dict):
        raise _unusable(f"it has no {ROOT_AUTHORITY}: the installer writes it with the first `create`")
    return KeyPair(_pem(fields, "CertRaw"), _pem(fields, "KeyRaw"))


def _state(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        # The parser's own words could quote the file.
        raise _unusable("it is not JSON") from None
    if not isinstance(value, dict):
        raise _unusable("it is not a JSON object")
    return value


def _pem(fields: dict[str, Any], name: str) -> bytes:
    text = fields.get(name)
    if not isinstance(text, str) or not text:
        raise _unusable(f"{ROOT_AUTHORITY} has no {name}")
    try:
        pem = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _unusable(f"{name} of {ROOT_AUTHORITY} is not base64") from None
    if not pem.lstrip().startswith(b"-----BEGIN "):
        raise _unusable(f"{name} of {ROOT_AUTHORITY} is not PEM")
    return pem


def _unusable(why: str) -> PkiError:
    remedy = "give the .openshift_install_state.json of the installation directory, or use --ca-cert and --ca-key"
    return PkiError("UMB153", "the install state gives no root authority", why, remedy)
