"""Probes a server's port for agents from this machine: TCP, then two TLS handshakes.

The first handshake sends no certificate and trusts any server, to see what listens and whether it accepts anonymous
clients; the second, if files were given, is that of an agent.
"""

import errno
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Final

from cryptography import x509

from umbilical.fault import BootstrapError

# HTTP/2's connection preface and an empty SETTINGS frame (RFC 9113 §3.4): every server for agents answers it.
GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
# Servers send data or an alert within a round trip; only a silent one gets the greeting.
PATIENCE_SECONDS: Final = 1.0
# A TLS 1.2 server refuses a missing certificate in the handshake, a TLS 1.3 server after it (RFC 8446 §4.4.2.4).
CERTIFICATE_ALERTS: Final = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")


class TcpState(Enum):
    OPEN = "open"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    NO_ROUTE = "no route"
    NAME_NOT_FOUND = "name not found"
    FAILED = "failed"


class ServerAnswer(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "no answer"


@dataclass(frozen=True)
class ProbeTlsFiles:
    """The files of an agent; each may be missing, certificate and key only together."""

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class TcpResult:
    state: TcpState
    address: str
    """The resolved address; empty without one."""
    detail: str = ""


@dataclass(frozen=True)
class HandshakeResult:
    answer: ServerAnswer
    detail: str
    version: str = ""
    certificate: x509.Certificate | None = None


@dataclass(frozen=True)
class ProbeResult:
    host: str
    port: int
    now: datetime
    tcp: TcpResult
    anonymous: HandshakeResult | None = None
    """The handshake without a certificate; None if TCP failed."""
    agent: HandshakeResult | None = None
    """The handshake with the files; None without files."""
    files: ProbeTlsFiles = ProbeTlsFiles()


def probe(host: str, port: int, files: ProbeTlsFiles, timeout_seconds: float, now: datetime) -> ProbeResult:
    """Probe the port. Raises BootstrapError: the TLS files cannot be loaded."""
    verifying = _agent_context(files)
    tcp = try_tcp(host, port, timeout_seconds)
    if tcp.state is not TcpState.OPEN:
        return ProbeResult(host, port, now, tcp, files=files)
    anonymous = shake_hands(tcp.address, port, host, _anonymous_context(), timeout_seconds)
    agent = None if verifying is None else shake_hands(tcp.address, port, host, verifying, timeout_seconds)
    return ProbeResult(host, port, now, tcp, anonymous, agent, files)


def try_tcp(host: str, port: int, timeout_seconds: float) -> TcpResult:
    """Connect to the name's addresses until one accepts; else return the last result."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        return TcpResult(TcpState.NAME_NOT_FOUND, "", str(error))
    last = TcpResult(TcpState.FAILED, "", "the name has no address")
    for family, kind, protocol, _, place in found:
        last = _connect(family, kind, protocol, place, timeout_seconds)
        if last.state is TcpState.OPEN:
            break
    return last


def shake_hands(address: str, port: int, host: str, context: ssl.SSLContext, timeout_seconds: float) -> HandshakeResult:
    """Do one TLS handshake, and see whether the server continues afterwards."""
    try:
        with (
            socket.create_connection((address, port), timeout_seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return _after_handshake(secure, timeout_seconds)
    except TimeoutError:
        return HandshakeResult(ServerAnswer.SILENT, f"no TLS answer within {timeout_seconds:g} s")
    except OSError as error:
        return HandshakeResult(ServerAnswer.REFUSED, _reason(error))


def asks_for_certificate(handshake: HandshakeResult) -> bool:
    """Whether the server refused because of the missing certificate."""
    return handshake.answer is ServerAnswer.REFUSED and any(alert in handshake.detail for alert in CERTIFICATE_ALERTS)


def _connect(family: int, kind: int, protocol: int, place: tuple[object, ...], timeout_seconds: float) -> TcpResult:
    address = str(place[0])
    try:
        with socket.socket(family, kind, protocol) as trial:
            trial.settimeout(timeout_seconds)
            trial.connect(place)
    except OSError as error:
        return TcpResult(_state_of(error), address, error.strerror or str(error))
    return TcpResult(TcpState.OPEN, address)


def _state_of(error: OSError) -> TcpState:
    if isinstance(error, ConnectionRefusedError):
        return TcpState.REFUSED
    if isinstance(error, TimeoutError):
        return TcpState.TIMED_OUT
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return TcpState.NO_ROUTE
    return TcpState.FAILED


def _after_handshake(secure: ssl.SSLSocket, timeout_seconds: float) -> HandshakeResult:
    encoded = secure.getpeercert(binary_form=True)
    certificate = x509.load_der_x509_certificate(encoded) if encoded else None
    version = secure.version() or ""
    deadline = time.monotonic() + timeout_seconds
    try:
        heard = _hear(secure, min(PATIENCE_SECONDS, timeout_seconds))
        if heard is None:
            secure.sendall(GREETING)
            heard = _hear(secure, max(deadline - time.monotonic(), PATIENCE_SECONDS))
    except OSError as error:
        return HandshakeResult(ServerAnswer.REFUSED, _reason(error), version, certificate)
    if heard is None:
        return HandshakeResult(ServerAnswer.SILENT, "no answer after the handshake", version, certificate)
    if not heard:
        return HandshakeResult(ServerAnswer.REFUSED, "it closed the connection after TLS", version, certificate)
    return HandshakeResult(ServerAnswer.ACCEPTED, "", version, certificate)


def _hear(secure: ssl.SSLSocket, seconds: float) -> bytes | None:
    secure.settimeout(seconds)
    try:
        return secure.recv(64)
    except TimeoutError:
        return None


def _anonymous_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def _agent_context(files: ProbeTlsFiles) -> ssl.SSLContext | None:
    if files == ProbeTlsFiles():
        return None
    context = _anonymous_context()
    try:
        if files.authority is not None:
            context.load_verify_locations(files.authority)
            context.verify_mode = ssl.CERT_REQUIRED
            context.check_hostname = True
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
    except OSError as error:
        named = ", ".join(str(path) for path in (files.authority, files.certificate, files.key) if path is not None)
        remedy = "check their directory: umbilical pki verify DIR"
        raise BootstrapError("UMB166", f"could not load {named}", _reason(error), remedy) from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return error.strerror or str(error)
