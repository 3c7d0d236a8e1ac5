"""TLS with an endpoint through a tunnel: verified by a given CA, by this machine's CAs, or not at all."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from umbilical.fault import HostedError
from umbilical.pki.certificate import Certificate, read_certificate
from umbilical.pki.pem import BundleError
from umbilical.tunnel.settings import TlsFiles
from umbilical.tunnel.tls import noticing_truncation


@dataclass(frozen=True)
class EndpointTls:
    """Verification of the endpoint, and the client certificate for it."""

    files: TlsFiles
    """Without an authority see `is_verified`."""
    server_name: str = ""
    """Empty: the dialled host."""
    is_verified: bool = True
    """Without an authority: by the machine's own CAs."""


@dataclass(frozen=True)
class TlsFacts:
    version: str
    certificate: Certificate | None
    is_verified: bool


def endpoint_context(tls: EndpointTls) -> ssl.SSLContext:
    """Load the files. Raises HostedError: one of them cannot be loaded."""
    context = ssl.create_default_context() if _uses_system_roots(tls) else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    noticing_truncation(context)
    if not tls.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.files.authority is not None:
        _load_authority(context, tls.files.authority)
    if tls.files.certificate is not None:
        _load_pair(context, tls.files.certificate, tls.files.key)
    return context


def untrusting(context: ssl.SSLContext) -> ssl.SSLContext:
    """Disable verification, to read a certificate that was refused."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def facts_under(writer: asyncio.StreamWriter, *, is_verified: bool) -> TlsFacts | None:
    """Return the TLS facts of a writer; None without TLS (Unix socket)."""
    tls = writer.get_extra_info("ssl_object")
    return None if tls is None else facts_of(tls, is_verified=is_verified)


def facts_of(tls: ssl.SSLObject, *, is_verified: bool) -> TlsFacts:
    return TlsFacts(tls.version() or "", read(tls.getpeercert(binary_form=True)), is_verified)


def read(encoded: bytes | None) -> Certificate | None:
    try:
        return read_certificate(encoded) if encoded else None
    except BundleError:
        return None  # valid for OpenSSL, but not supported by our parser


def words(error: OSError) -> str:
    """Return OpenSSL's reason without its source location."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or "the connection was closed"


def _uses_system_roots(tls: EndpointTls) -> bool:
    return tls.is_verified and tls.files.authority is None


def _load_authority(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise _unusable(str(path), error) from None


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise _unusable(f"{certificate} and {key}", error) from None


def _no_password() -> str:
    """Keep OpenSSL from prompting on the terminal."""
    raise ValueError("the key is encrypted")


def _unusable(named: str, error: Exception) -> HostedError:
    why = words(error) if isinstance(error, OSError) else str(error)
    return HostedError("UMB577", f"could not load {named}", why, f"umbilical pki inspect FILE; ls -l {named}")
