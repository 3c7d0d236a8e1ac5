"""Reads a PEM certificate signing request: subject, names and key."""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Exactly one block: with several, the signer might sign another one than was checked.
_PEM: Final = re.compile(
    rb"\s*-----BEGIN CERTIFICATE REQUEST-----\r?\n[A-Za-z0-9+/=\r\n]+-----END CERTIFICATE REQUEST-----\s*"
)
_MIN_RSA_BITS: Final = 2048
_CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")


class RequestError(ValueError):
    """Why the request must not be signed, in a few words."""


@dataclass(frozen=True)
class SigningRequest:
    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IpAddress, ...]
    other_names: int
    """Number of alternative names of other kinds: mail addresses, URIs."""
    public_key: bytes = field(repr=False)
    """The SubjectPublicKeyInfo, DER."""


def read_request(pem: bytes) -> SigningRequest:
    """Read one request. Raises RequestError: malformed, signed with another key, or a weak key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from cryptography.x509.oid import NameOID

    if _PEM.fullmatch(pem) is None:
        raise RequestError("it is not PEM with exactly one block CERTIFICATE REQUEST")
    try:
        found = x509.load_pem_x509_csr(pem)
        names = _alternative_names(found)
        is_signed = found.is_signature_valid
        key = found.public_key()
    except Exception as error:
        # The library raises ValueError, its own exceptions and, for unusual keys, errors of OpenSSL.
        raise RequestError(f"it is malformed: {type(error).__name__}") from None
    if not is_signed:
        raise RequestError("its signature was not made with its own key")
    _check_key(key)
    subject = found.subject
    dns_names = tuple(one.value for one in names if isinstance(one, x509.DNSName))
    addresses = tuple(one for one in map(_address, names) if one is not None)
    return SigningRequest(
        common_name=_only([str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]),
        organizations=tuple(str(one.value) for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)),
        dns_names=dns_names,
        ip_addresses=addresses,
        other_names=len(names) - len(dns_names) - len(addresses),
        public_key=key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    )


def _only(values: list[str]) -> str:
    if len(values) != 1:
        raise RequestError(f"it has {len(values)} common names")
    return values[0]


def _address(name: object) -> IpAddress | None:
    """Return an IP address; the field may also hold a network, which no verifier matches."""
    value = getattr(name, "value", None)
    return value if isinstance(value, ipaddress.IPv4Address | ipaddress.IPv6Address) else None


def _alternative_names(request: object) -> list[object]:
    from cryptography import x509

    assert isinstance(request, x509.CertificateSigningRequest)
    try:
        return list(request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _check_key(key: object) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _MIN_RSA_BITS:
            raise RequestError(f"its RSA key has {key.key_size} bits, at least {_MIN_RSA_BITS} are required")
    elif not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _CURVES:
        raise RequestError("its key is neither RSA nor on P-256, P-384 or P-521")
