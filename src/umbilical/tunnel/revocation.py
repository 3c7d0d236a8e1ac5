"""Certificate revocation lists for the peers of a listener.

OpenSSL checks them in handshakes. The serial numbers are kept too: a changed list cuts peers that are connected.
`cryptography` is loaded only where a list is configured.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.fault import StartupError
from umbilical.tunnel.certificate_dates import Validity
from umbilical.tunnel.tls import read_lists

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography import x509

REVOKED: Final = "its certificate was revoked"
"""Why a connected peer is cut; causes.py has its code."""
_NO_END: Final = "99991231235959"


class Revoked:
    """What the lists of one file revoke."""

    def __init__(self, numbers: frozenset[tuple[bytes, int]], validity: Validity) -> None:
        self._numbers: Final = numbers
        """Issuer's name in DER, and serial number."""
        self.validity: Final = validity
        """Of all lists together. After its end OpenSSL refuses every peer."""

    def covers(self, der: bytes) -> bool:
        """Whether this certificate is revoked."""
        from cryptography import x509

        certificate = x509.load_der_x509_certificate(der)
        return (certificate.issuer.public_bytes(), certificate.serial_number) in self._numbers


def read(path: Path, authorities: list[bytes]) -> Revoked:
    """Read the lists and check that each CA has signed one: without it OpenSSL refuses all its certificates.

    Raises StartupError.
    """
    from cryptography import x509

    text = read_lists(path)
    cas = [x509.load_der_x509_certificate(der) for der in authorities]
    numbers: set[tuple[bytes, int]] = set()
    starts: list[str] = []
    ends: list[str] = []
    signers: set[bytes] = set()
    try:
        lists = [x509.load_pem_x509_crl(block) for block in _blocks(text)]
    except ValueError as error:
        raise _unusable(path, f"not a certificate revocation list: {error}") from error
    for one in lists:
        signer = next((ca for ca in cas if ca.subject == one.issuer and _has_signed(ca, one)), None)
        if signer is None:
            raise _unusable(path, f"no CA of the peers has signed the list of {one.issuer.rfc4514_string()}")
        name = one.issuer.public_bytes()
        signers.add(name)
        numbers |= {(name, entry.serial_number) for entry in one}
        starts.append(_moment(one.last_update_utc))
        ends.append(_NO_END if one.next_update_utc is None else _moment(one.next_update_utc))
    for ca in cas:
        if ca.subject.public_bytes() not in signers:
            raise _unusable(
                path, f"it has no list of the CA {ca.subject.rfc4514_string()}, whose peers would be refused"
            )
    return Revoked(frozenset(numbers), Validity(max(starts), min(ends)))


def _blocks(text: str) -> list[bytes]:
    end = "-----END X509 CRL-----"
    return [(part + end).encode() for part in text.split(end)[:-1]]


def _has_signed(ca: "x509.Certificate", one: "x509.CertificateRevocationList") -> bool:
    try:
        return one.is_signature_valid(ca.public_key())  # type: ignore[arg-type]  # a CA's key can sign
    except (TypeError, ValueError):
        return False


def _moment(at: "datetime") -> str:
    return at.strftime("%Y%m%d%H%M%S")


def _unusable(path: Path, why: str) -> StartupError:
    remedy = f"look at it: openssl crl -text -noout -in {path}; make one: openssl ca -gencrl"
    return StartupError("UMB026", f"cannot use the certificate revocation lists in {path}", why, remedy)
