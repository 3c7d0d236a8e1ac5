"""Read an EgressSelectorConfiguration as strictly as kube-apiserver, and dial into the cluster with it."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeGuard

from umbilical.dialer.blocking import BlockingDialer
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings, Protocol, UnixServer
from umbilical.fault import LabError
from umbilical.konnectivity import dial_failure
from umbilical.lab.admission_review import Dial, Unreachable

VERSIONS: Final = ("apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1")
KIND: Final = "EgressSelectorConfiguration"
NAMES: Final = ("cluster", "controlplane", "etcd")
MAX_BYTES: Final = 1 << 20


class EgressProtocol(Enum):
    DIRECT = "Direct"
    HTTP_CONNECT = "HTTPConnect"
    GRPC = "GRPC"


@dataclass(frozen=True)
class Egress:
    protocol: EgressProtocol
    socket: str = ""
    """The server's socket; not for DIRECT."""


DIRECT: Final = Egress(EgressProtocol.DIRECT)
"""kube-apiserver's default, without the flag or without an entry."""


def cluster_egress(content: bytes, source: str) -> Egress:
    """Return the egress for `cluster`; `source` is the file's name for the message.

    Raises LabError: kube-apiserver would not start with this file, or its transport is not a Unix socket (UMB885).
    """
    try:
        return _cluster_egress(_parsed(content))
    except ValueError as fault:
        raise LabError(
            "UMB885",
            f"{source} is not a valid egress selector for kube-apiserver",
            str(fault),
            "render it again: umbilical bootstrap render",
        ) from None


def _parsed(content: bytes) -> Any:
    import yaml

    if len(content) > MAX_BYTES:
        raise ValueError(f"it has {len(content)} bytes, more than {MAX_BYTES}")
    try:
        return yaml.safe_load(content.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as fault:
        raise ValueError(f"it is not YAML: {' '.join(str(fault).split())[:200]}") from None


def _cluster_egress(value: Any) -> Egress:
    _keys(value, "it", ("apiVersion", "kind", "egressSelections"))
    if value.get("apiVersion") not in VERSIONS or value.get("kind") != KIND:
        raise ValueError(f"it is not an {KIND} of {' or '.join(VERSIONS)}")
    selections = value.get("egressSelections")
    if not isinstance(selections, list):
        raise ValueError("egressSelections is not a list")
    ways: dict[str, Egress] = {}
    for selection in selections:
        _keys(selection, "a selection", ("name", "connection"))
        name = selection.get("name")
        if name not in NAMES or name in ways:
            raise ValueError(f"a selection has the name {str(name)[:40]!r}; allowed, once each: {', '.join(NAMES)}")
        ways[name] = _egress(selection.get("connection"), name)
    return ways.get("cluster", DIRECT)


def _egress(connection: Any, name: str) -> Egress:
    _keys(connection, f"the connection of {name}", ("proxyProtocol", "transport"))
    protocols = {protocol.value: protocol for protocol in EgressProtocol}
    said = connection.get("proxyProtocol")
    if not isinstance(said, str) or said not in protocols:
        raise ValueError(f"the proxyProtocol of {name} is {str(said)[:40]!r}, not one of {', '.join(protocols)}")
    transport = connection.get("transport")
    if protocols[said] is EgressProtocol.DIRECT:
        if transport is not None:
            raise ValueError(f"{name} is Direct and has a transport")
        return DIRECT
    return Egress(protocols[said], _socket(transport, name))


def _socket(transport: Any, name: str) -> str:
    _keys(transport, f"the transport of {name}", ("uds", "tcp"))
    if transport.get("tcp") is not None or transport.get("uds") is None:
        raise ValueError(f"the transport of {name} is not a Unix socket (uds)")
    _keys(transport["uds"], f"the transport of {name}", ("udsName",))
    path = transport["uds"].get("udsName")
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(f"the udsName of {name} is not an absolute path")
    return path


def _keys(value: Any, what: str, allowed: tuple[str, ...]) -> None:
    if not _is_mapping(value):
        raise ValueError(f"{what} is not a mapping")
    for key in value:
        if key not in allowed:
            raise ValueError(f"{what} has the unknown field {str(key)[:40]!r}")


def _is_mapping(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


@contextmanager
def dialling(egress: Egress) -> Iterator[Dial]:
    """Yield a function that opens connections through this egress, for the length of the block."""
    if egress.protocol is EgressProtocol.DIRECT:
        yield dial_direct
        return
    protocol = Protocol.GRPC if egress.protocol is EgressProtocol.GRPC else Protocol.HTTP_CONNECT

    def dial(address: str, seconds: float) -> socket.socket:
        try:
            return dialer.open(*dial_failure.split_host_port(address), seconds)
        except dial_failure.BadAddress as error:
            raise Unreachable(dial_failure.bad_address_text("tcp", error)) from None
        except DialFailed as failure:
            raise Unreachable(_words(failure, egress.socket, address)) from None

    with BlockingDialer(DialerSettings((UnixServer(Path(egress.socket)),), protocol=protocol)) as dialer:
        yield dial


def _words(failure: DialFailed, path: str, address: str) -> str:
    """Return the text that kube-apiserver prints after the URL."""
    if failure.status_line:
        code = failure.status_line.partition(" ")[0]
        return f"proxy error from {path} while dialing {address}, code {code}: {failure.status_line}"
    return f"dial unix {path}: {failure.text}" if failure.reason is DialReason.SERVER else failure.text


def dial_direct(address: str, seconds: float) -> socket.socket:
    """Dial like kube-apiserver without an egress selector. Raises Unreachable."""
    try:
        host, port = dial_failure.split_host_port(address)
        return socket.create_connection((host, port), seconds)
    except dial_failure.BadAddress as error:
        words = dial_failure.bad_address_text("tcp", error)
    except TimeoutError:
        words = dial_failure.dial_timeout_text("tcp", address)
    except (socket.gaierror, UnicodeError):
        words = dial_failure.lookup_error_text("tcp", host, "")
    except OSError as error:
        words = dial_failure.dial_error_text("tcp", address, errno.errorcode.get(error.errno or 0, "EIO"))
    raise Unreachable(words)
