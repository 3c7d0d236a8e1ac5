"""What a client of the tunnel needs, out of a control plane's namespace: kept in a private directory while it is used.

Names are HyperShift's: the control planes that it made can be looked at with these commands too.
"""

import base64
import binascii
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import CONFIG_MAP, SECRET, Kind
from umbilical.fault import HostedError
from umbilical.host.files import write_file
from umbilical.host.interrupts import Interrupts
from umbilical.hosted.objects import names
from umbilical.tunnel.settings import TlsFiles

KUBELET_SECRET: Final = "kas-kubelet-client-crt"
KUBELET_AUTHORITY: Final = "kubelet-client-ca"
_CERTIFICATE: Final = "tls.crt"
_KEY: Final = "tls.key"


@dataclass(frozen=True)
class Purpose:
    """Which Secret has the pair, and which ConfigMap the CA that the other side is verified by."""

    secret: str
    authority: str


FRONTEND: Final = Purpose(names.SECRET_CLIENT, names.CA_BUNDLE)
KUBELET: Final = Purpose(KUBELET_SECRET, KUBELET_AUTHORITY)


@contextmanager
def private_directory() -> Iterator[Path]:
    """Make a directory that only we can read; it goes with all that is in it, also when we are asked to end."""
    with (
        Interrupts() as interrupts,
        tempfile.TemporaryDirectory(prefix="umbilical-") as name,  # mode 0700
        interrupts.heard(),
    ):
        yield Path(name)


async def fetch_pair(client: ApiClient, namespace: str, name: str, folder: Path) -> TlsFiles | None:
    """Bring a pair alone; None if there is no such Secret.

    Raises:
        HostedError: it lacks what it is for.
        ClusterError: the API refuses, or does not answer.
    """
    secret = await objects.get(client, SECRET, name, namespace)
    if secret is None:
        return None
    certificate, key = (_value(secret, SECRET, name, namespace, item, _decoded) for item in (_CERTIFICATE, _KEY))
    prefix = f"{namespace}-{name}"
    return TlsFiles(
        write_file(folder / f"{prefix}-{_CERTIFICATE}", certificate), write_file(folder / f"{prefix}-{_KEY}", key)
    )


async def fetch_tls(client: ApiClient, namespace: str, purpose: Purpose, folder: Path) -> TlsFiles:
    """Bring a pair and its CA into a directory.

    Raises:
        HostedError: one of the objects is not there, or lacks what it is for.
        ClusterError: the API refuses, or does not answer.
    """
    secret = await _object(client, SECRET, purpose.secret, namespace)
    bundle = await _object(client, CONFIG_MAP, purpose.authority, namespace)
    contents = {
        _CERTIFICATE: _value(secret, SECRET, purpose.secret, namespace, _CERTIFICATE, _decoded),
        _KEY: _value(secret, SECRET, purpose.secret, namespace, _KEY, _decoded),
        names.CA_KEY: _value(bundle, CONFIG_MAP, purpose.authority, namespace, names.CA_KEY, str.encode),
    }
    files = {name: write_file(folder / f"{purpose.secret}-{name}", content) for name, content in contents.items()}
    return TlsFiles(files[_CERTIFICATE], files[_KEY], files[names.CA_KEY])


async def _object(client: ApiClient, kind: Kind, name: str, namespace: str) -> Json:
    found = await objects.get(client, kind, name, namespace)
    if found is None:
        raise HostedError(
            "UMB570",
            f"there is no {kind.name} {namespace}/{name}",
            "the namespace is not that of a hosted control plane with a tunnel, or it is not set up yet",
            f"kubectl -n {namespace} get secrets,configmaps",
        )
    return found


def _value(item: Json, kind: Kind, name: str, namespace: str, key: str, decode: Callable[[str], bytes]) -> bytes:
    value = objects.field(item, "data", key)
    try:
        if isinstance(value, str) and value:
            return decode(value)
        why = f"it has no {key}"
    except (binascii.Error, ValueError):
        why = f"its {key} is no base64"
    remedy = f"kubectl -n {namespace} describe {kind.plural} {name}"
    raise HostedError("UMB570", f"{kind.name} {namespace}/{name} cannot be used", why, remedy)


def _decoded(value: str) -> bytes:
    return base64.b64decode(value, validate=True)
