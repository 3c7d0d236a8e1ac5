"""A certificate as plain values: names, times, key, usages. `cryptography` is imported only when one is read."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from umbilical.pki.pem import BundleError, certificate_blocks
from umbilical.pki.profiles import IpAddress

if TYPE_CHECKING:
    from cryptography import x509

_ATTRIBUTES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
_HASHES: Final = {"md5": "MD5", "sha1": "SHA-1", "sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
_EXTENDED_USAGES: Final = {"1.3.6.1.5.5.7.3.1": "serverAuth", "1.3.6.1.5.5.7.3.2": "clientAuth"}
_EXTENSIONS: Final = {
    "2.5.29.14": "subjectKeyIdentifier",
    "2.5.29.15": "keyUsage",
    "2.5.29.17": "subjectAltName",
    "2.5.29.19": "basicConstraints",
    "2.5.29.35": "authorityKeyIdentifier",
    "2.5.29.37": "extendedKeyUsage",
}
# In bit order (RFC 5280 §4.2.1.3), keyed by the library's names.
_KEY_USAGES: Final = {
    "digital_signature": "digitalSignature",
    "content_commitment": "nonRepudiation",
    "key_encipherment": "keyEncipherment",
    "data_encipherment": "dataEncipherment",
    "key_agreement": "keyAgreement",
    "key_cert_sign": "keyCertSign",
    "crl_sign": "cRLSign",
    "encipher_only": "encipherOnly",
    "decipher_only": "decipherOnly",
}
_MIN_RSA_BITS: Final = 2048
_FIPS_HASHES: Final = ("SHA-256", "SHA-384", "SHA-512")

_Facts = TypeVar("_Facts")
_Extension = TypeVar("_Extension", bound="x509.ExtensionType")
Name = tuple[tuple[str, str], ...]
Moment = datetime
"""For rooms that are passed the time and must not read the clock."""


@dataclass(frozen=True)
class PublicKey:
    algorithm: str
    """RSA, ECDSA, or the library's class name."""
    bits: int
    """0 for other algorithms."""
    curve: str
    encoded: bytes = field(repr=False)
    """SubjectPublicKeyInfo: equal for a certificate and its key."""
    identifier: bytes
    """SHA-1 of the public key bits: RFC 5280 §4.2.1.2."""

    @property
    def title(self) -> str:
        return f"{self.algorithm} {self.curve or self.bits or ''}".strip()

    @property
    def is_strong(self) -> bool:
        """Whether FIPS 140 allows signatures with it."""
        if self.algorithm == "RSA":
            return self.bits >= _MIN_RSA_BITS
        return self.algorithm == "ECDSA" and bool(self.curve)


@dataclass(frozen=True)
class Certificate:
    encoded: bytes = field(repr=False)
    serial: int
    subject: Name
    issuer: Name
    not_before: datetime
    not_after: datetime
    key: PublicKey
    signature_hash: str
    is_authority: bool
    usages: tuple[str, ...]
    """Extended key usages; empty: no restriction."""
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IpAddress, ...]
    key_identifier: bytes | None
    authority_identifier: bytes | None
    path_length: int | None
    """Maximum number of intermediate CAs below it; None: no limit."""
    key_usages: tuple[str, ...]
    """Empty without a keyUsage extension."""
    critical: frozenset[str]
    """Names of the critical extensions."""

    @property
    def common_name(self) -> str:
        return _common_name(self.subject)

    @property
    def issuer_name(self) -> str:
        return _common_name(self.issuer)

    @property
    def is_self_issued(self) -> bool:
        return self.subject == self.issuer

    @property
    def is_strongly_signed(self) -> bool:
        return self.signature_hash in _FIPS_HASHES

    @property
    def names(self) -> tuple[str, ...]:
        """All host names and addresses that the certificate covers."""
        return (*self.dns_names, *(str(address) for address in self.ip_addresses))

    def time_left(self, now: datetime) -> timedelta:
        return self.not_after - now


def read_certificates(pem: bytes) -> list[Certificate]:
    """Read every certificate of a bundle. Raises BundleError: not PEM, or no certificate in it."""
    return [read_certificate(block) for block in certificate_blocks(pem)]


def read_certificate(encoded: bytes) -> Certificate:
    return _read("certificate", _certificate, encoded)


def read_public_key(encoded: bytes) -> PublicKey:
    """Read a DER SubjectPublicKeyInfo, as `openssl pkey -pubout` writes it."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    return _read("public key", lambda octets: _public_key(load_der_public_key(octets)), encoded)


def distinguished_name(name: Name) -> str:
    """Format a name in the order of the certificate."""
    return ", ".join(f"{kind}={value}" for kind, value in name)


def span(length: timedelta) -> str:
    """Format a duration as `22h41m`, `3d04h`, `5m` or `42s`."""
    seconds = max(0, int(length.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days >= 3:
        return f"{days}d{hours % 24:02d}h"
    if hours:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{minutes}m" if minutes >= 2 else f"{seconds}s"


def moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _read(kind: str, reader: Callable[[bytes], _Facts], encoded: bytes) -> _Facts:
    try:
        with warnings.catch_warnings():
            # The library warns about common names longer than RFC 5280 allows: see `profiles.MAX_COMMON_NAME`.
            warnings.simplefilter("ignore")
            return reader(encoded)
    except Exception as error:
        # The library raises ValueError, its own exceptions and, for unusual keys, errors of OpenSSL.
        raise BundleError(f"no readable {kind}: {error}") from error


def _certificate(encoded: bytes) -> Certificate:
    from cryptography import x509

    found = x509.load_der_x509_certificate(encoded)
    constraints = _extension(found, x509.BasicConstraints)
    usages = _extension(found, x509.ExtendedKeyUsage)
    key_identifier = _extension(found, x509.SubjectKeyIdentifier)
    authority = _extension(found, x509.AuthorityKeyIdentifier)
    dns_names, addresses = _alternative_names(found)
    return Certificate(
        encoded=encoded,
        serial=found.serial_number,
        subject=_name(found.subject),
        issuer=_name(found.issuer),
        not_before=found.not_valid_before_utc,
        not_after=found.not_valid_after_utc,
        key=_public_key(found.public_key()),
        signature_hash=_signature_hash(found),
        is_authority=constraints is not None and constraints.ca,
        usages=tuple(_EXTENDED_USAGES.get(one.dotted_string, one.dotted_string) for one in usages or ()),
        dns_names=dns_names,
        ip_addresses=addresses,
        key_identifier=None if key_identifier is None else key_identifier.digest,
        authority_identifier=None if authority is None else authority.key_identifier,
        path_length=None if constraints is None else constraints.path_length,
        key_usages=_key_usages(found),
        critical=frozenset(
            _EXTENSIONS.get(one.oid.dotted_string, one.oid.dotted_string) for one in found.extensions if one.critical
        ),
    )


def _name(name: "x509.Name") -> Name:
    return tuple((_ATTRIBUTES.get(one.oid.dotted_string, one.oid.dotted_string), str(one.value)) for one in name)


def _common_name(name: Name) -> str:
    return next((value for kind, value in reversed(name) if kind == "CN"), distinguished_name(name))


def _signature_hash(found: "x509.Certificate") -> str:
    identifier = found.signature_algorithm_oid.dotted_string
    algorithm = found.signature_hash_algorithm
    return identifier if algorithm is None else _HASHES.get(algorithm.name, identifier)


def _public_key(key: Any) -> PublicKey:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key).digest
    if isinstance(key, rsa.RSAPublicKey):
        return PublicKey("RSA", key.key_size, "", encoded, identifier)
    if isinstance(key, ec.EllipticCurvePublicKey):
        curve = _CURVES.get(key.curve.name, "")
        return PublicKey("ECDSA", key.key_size if curve else 0, curve, encoded, identifier)
    return PublicKey(type(key).__name__.removesuffix("PublicKey"), 0, "", encoded, identifier)


def _extension(found: "x509.Certificate", kind: type[_Extension]) -> _Extension | None:
    from cryptography import x509

    try:
        return found.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _key_usages(found: "x509.Certificate") -> tuple[str, ...]:
    from cryptography import x509

    usage = _extension(found, x509.KeyUsage)
    if usage is None:
        return ()
    # The library raises for the last two when key_agreement is not set.
    readable = list(_KEY_USAGES) if usage.key_agreement else list(_KEY_USAGES)[:-2]
    return tuple(_KEY_USAGES[name] for name in readable if getattr(usage, name))


def _alternative_names(found: "x509.Certificate") -> tuple[tuple[str, ...], tuple[IpAddress, ...]]:
    from cryptography import x509

    names = _extension(found, x509.SubjectAlternativeName)
    if names is None:
        return (), ()
    addresses: list[IpAddress] = []
    for address in names.get_values_for_type(x509.IPAddress):
        # The field may also hold a network, which no verifier matches.
        if not isinstance(address, IpAddress):
            raise ValueError(f"{address} is a network, not an address")
        addresses.append(address)
    return tuple(names.get_values_for_type(x509.DNSName)), tuple(addresses)
