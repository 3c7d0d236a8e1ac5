"""TLS with an endpoint at the far end of a tunnel: verified by a CA, by this machine's own, or plainly not at all."""

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
    """Whom to expect, and what to show."""

    files: TlsFiles
    """Without an authority, see `is_verified`."""
    server_name: str = ""
    """Empty: the host that is dialled."""
    is_verified: bool = True
    """With no authority given: by the machine's own CAs."""


@dataclass(frozen=True)
class TlsFacts:
    version: str
    certificate: Certificate | None
    is_verified: bool


def endpoint_context(tls: EndpointTls) -> ssl.SSLContext:
    """Load the files. Raises HostedError: one of them cannot be used."""
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
    """Have a handshake succeed whatever the certificate: for a second look at one that was refused."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def facts_under(writer: asyncio.StreamWriter, *, is_verified: bool) -> TlsFacts | None:
    """What TLS is under a writer; None where there is none, on a Unix socket."""
    tls = writer.get_extra_info("ssl_object")
    return None if tls is None else facts_of(tls, is_verified=is_verified)


def facts_of(tls: ssl.SSLObject, *, is_verified: bool) -> TlsFacts:
    return TlsFacts(tls.version() or "", read(tls.getpeercert(binary_form=True)), is_verified)


def read(encoded: bytes | None) -> Certificate | None:
    try:
        return read_certificate(encoded) if encoded else None
    except BundleError:
        return None  # of a kind that OpenSSL can use and we cannot tell about


def words(error: OSError) -> str:
    """OpenSSL's reason without the place in its source."""
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
    """OpenSSL would ask on the terminal, for ever."""
    raise ValueError("the key is encrypted")


def _unusable(named: str, error: Exception) -> HostedError:
    why = words(error) if isinstance(error, OSError) else str(error)
    return HostedError("UMB577", f"cannot use {named} for the endpoint", why, f"umbilical pki inspect; ls -l {named}")
