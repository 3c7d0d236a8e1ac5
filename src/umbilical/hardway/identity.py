"""What is drawn at random once for a cluster, and kept for every later rendering."""

import json
import secrets
import uuid
from pathlib import Path
from typing import Final

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.inputs import Identity
from umbilical.hardway.ledger import RECORD
from umbilical.host.files import make_directory, write_file

FILE: Final = "identity.json"
# Of platforms that name machines and volumes after it.
MAX_INFRASTRUCTURE_NAME: Final = 27
SUFFIX_LENGTH: Final = 5
# Without vowels, no word can come out, and nothing looks like something else.
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
GROUPS: Final = 4
GROUP_LENGTH: Final = 5
PASSWORD_ALPHABET: Final = "abcdefghijkmnopqrstuvwxyzABCDEFGHIJKLMNPQRSTUVWXYZ23456789"
"""Without 0 and O, 1 and l."""
_FIELDS: Final = ("cluster_id", "infrastructure_name", "kubeadmin_password", "kubeadmin_hash")


def read_identity(folder: Path) -> Identity | None:
    """Read what was kept in a cluster's directory; None where nothing was.

    Raises:
        HardwayError: UMB713; it is there and cannot be used. Another one would be another cluster.
    """
    path = folder / RECORD / FILE
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or "it is no JSON") from None
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) and value[name] for name in _FIELDS):
        raise _unreadable(path, f"it needs {', '.join(_FIELDS)}")
    return Identity(**{name: value[name] for name in _FIELDS})


def keep_identity(folder: Path, identity: Identity) -> Path:
    """Write it for its owner alone; it holds a password."""
    path = make_directory(folder / RECORD) / FILE
    content = json.dumps({name: getattr(identity, name) for name in _FIELDS}, indent=2) + "\n"
    return write_file(path, content.encode(), overwrite=True)


def forget_identity(folder: Path) -> None:
    """Let the next cluster of this directory be another one; a password must not outlive what it opens."""
    (folder / RECORD / FILE).unlink(missing_ok=True)


def draw_identity(name: str) -> Identity:
    """Draw a cluster's random values.

    Raises:
        HardwayError: UMB713; there is no bcrypt.
    """
    password = draw_password()
    return Identity(str(uuid.uuid4()), _infrastructure_name(name), password, _hashed(password))


def draw_password() -> str:
    """As OpenShift's installer draws it: four groups that can be read aloud."""
    groups = ("".join(secrets.choice(PASSWORD_ALPHABET) for _ in range(GROUP_LENGTH)) for _ in range(GROUPS))
    return "-".join(groups)


def _infrastructure_name(name: str) -> str:
    suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(SUFFIX_LENGTH))
    return f"{name[: MAX_INFRASTRUCTURE_NAME - SUFFIX_LENGTH - 1].rstrip('-')}-{suffix}"


def _hashed(password: str) -> str:
    try:
        import bcrypt
    except ImportError:
        what = "the password of kubeadmin cannot be hashed"
        remedy = "pip install 'umbilical[hardway]'"
        raise HardwayError("UMB713", what, "there is no bcrypt", remedy) from None
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(10)).decode()


def _unreadable(path: Path, why: str) -> HardwayError:
    remedy = "restore it; if the cluster is not built yet, remove it and a new one is drawn"
    return HardwayError("UMB713", f"{path} cannot be used", why, remedy)
