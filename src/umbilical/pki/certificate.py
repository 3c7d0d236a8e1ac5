"""A certificate as facts: names, times, key, uses. Read without a library, so that it works with `openssl` alone."""

import hashlib
import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from umbilical.pki import der
from umbilical.pki.der import DerError, Element
from umbilical.pki.pem import BundleError, certificate_blocks
from umbilical.pki.profiles import IpAddress

_ATTRIBUTES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
_SIGNATURE_HASHES: Final = {
    "1.2.840.113549.1.1.4": "MD5",
    "1.2.840.113549.1.1.5": "SHA-1",
    "1.2.840.113549.1.1.11": "SHA-256",
    "1.2.840.113549.1.1.12": "SHA-384",
    "1.2.840.113549.1.1.13": "SHA-512",
    "1.2.840.10045.4.1": "SHA-1",
    "1.2.840.10045.4.3.2": "SHA-256",
    "1.2.840.10045.4.3.3": "SHA-384",
    "1.2.840.10045.4.3.4": "SHA-512",
}
_RSA: Final = "1.2.840.113549.1.1.1"
_EC: Final = "1.2.840.10045.2.1"
_CURVES: Final = {
    "1.2.840.10045.3.1.7": ("P-256", 256),
    "1.3.132.0.34": ("P-384", 384),
    "1.3.132.0.35": ("P-521", 521),
}
_EXTENDED_USAGES: Final = {"1.3.6.1.5.5.7.3.1": "serverAuth", "1.3.6.1.5.5.7.3.2": "clientAuth"}
_SUBJECT_KEY: Final = "2.5.29.14"
_KEY_USAGE: Final = "2.5.29.15"
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_CONSTRAINTS: Final = "2.5.29.19"
_AUTHORITY_KEY: Final = "2.5.29.35"
_EXTENDED_KEY_USAGE: Final = "2.5.29.37"
_EXTENSIONS: Final = {
    _SUBJECT_KEY: "subjectKeyIdentifier",
    _KEY_USAGE: "keyUsage",
    _ALTERNATIVE_NAMES: "subjectAltName",
    _CONSTRAINTS: "basicConstraints",
    _AUTHORITY_KEY: "authorityKeyIdentifier",
    _EXTENDED_KEY_USAGE: "extendedKeyUsage",
}
# In the order of their bits: RFC 5280 §4.2.1.3.
_KEY_USAGES: Final = (
    "digitalSignature",
    "nonRepudiation",
    "keyEncipherment",
    "dataEncipherment",
    "keyAgreement",
    "keyCertSign",
    "cRLSign",
    "encipherOnly",
    "decipherOnly",
)
_MIN_RSA_BITS: Final = 2048
_FIPS_HASHES: Final = ("SHA-256", "SHA-384", "SHA-512")

Name = tuple[tuple[str, str], ...]
Moment = datetime
"""For rooms that are given the time and have no business with clocks."""


@dataclass(frozen=True)
class PublicKey:
    algorithm: str
    """RSA, ECDSA, or the object identifier of another kind."""
    bits: int
    """0 where the kind is unknown to us."""
    curve: str
    encoded: bytes = field(repr=False)
    """The whole SubjectPublicKeyInfo: equal for a certificate and the key that belongs to it."""
    identifier: bytes
    """SHA-1 of the key's bits, the usual key identifier: RFC 5280 §4.2.1.2."""

    @property
    def title(self) -> str:
        return f"{self.algorithm} {self.curve or self.bits or ''}".strip()

    @property
    def is_strong(self) -> bool:
        """Whether FIPS 140 lets it sign."""
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
    """Extended key usages; empty where the certificate limits none."""
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IpAddress, ...]
    key_identifier: bytes | None
    authority_identifier: bytes | None
    path_length: int | None
    """How many authorities may follow below; None: any number."""
    key_usages: tuple[str, ...]
    """Empty where the certificate says nothing about it."""
    critical: frozenset[str]
    """Extensions that a reader must understand."""

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
        """Everything that a server with it may be dialled by."""
        return (*self.dns_names, *(str(address) for address in self.ip_addresses))

    def time_left(self, now: datetime) -> timedelta:
        return self.not_after - now


def read_certificates(pem: bytes) -> list[Certificate]:
    """Read every certificate of a bundle, at least one.

    Raises:
        BundleError: no PEM, or what is in it is no certificate.
    """
    return [read_certificate(block) for block in certificate_blocks(pem)]


def read_certificate(encoded: bytes) -> Certificate:
    try:
        return _certificate(encoded)
    except (ValueError, IndexError) as error:
        raise BundleError(f"no readable certificate: {error}") from error


def read_public_key(encoded: bytes) -> PublicKey:
    """Read a SubjectPublicKeyInfo: what `openssl pkey -pubout` writes."""
    try:
        return _public_key(der.only(encoded, der.SEQUENCE))
    except (ValueError, IndexError) as error:
        raise BundleError(f"no readable public key: {error}") from error


def distinguished_name(name: Name) -> str:
    """Write a name as people read it, most general part first."""
    return ", ".join(f"{kind}={value}" for kind, value in name)


def _certificate(encoded: bytes) -> Certificate:
    signed, algorithm, _ = der.elements(der.only(encoded, der.SEQUENCE).content)[:3]
    fields = der.elements(der.expect(signed, der.SEQUENCE).content)
    # Version 1 leaves its number out, and such certificates have no extensions.
    fields = fields[1:] if fields[0].tag == 0xA0 else fields
    start, end = der.elements(der.expect(fields[3], der.SEQUENCE).content)[:2]
    extensions, critical = _extensions(fields[6:])
    dns_names, addresses = _alternative_names(extensions)
    return Certificate(
        encoded=encoded,
        serial=der.integer(fields[0]),
        subject=_name(fields[4]),
        issuer=_name(fields[2]),
        not_before=der.moment(start),
        not_after=der.moment(end),
        key=_public_key(fields[5]),
        signature_hash=_signature_hash(algorithm),
        is_authority=_is_authority(extensions),
        usages=_extended_usages(extensions),
        dns_names=dns_names,
        ip_addresses=addresses,
        key_identifier=_key_identifier(extensions),
        authority_identifier=_authority_identifier(extensions),
        path_length=_path_length(extensions),
        key_usages=_key_usages(extensions),
        critical=critical,
    )


def _name(element: Element) -> Name:
    parts = []
    for group in der.elements(der.expect(element, der.SEQUENCE).content):
        for attribute in der.elements(der.expect(group, der.SET).content):
            kind, value = der.elements(der.expect(attribute, der.SEQUENCE).content)[:2]
            identifier = der.oid(kind)
            parts.append((_ATTRIBUTES.get(identifier, identifier), der.text(value)))
    return tuple(parts)


def _common_name(name: Name) -> str:
    return next((value for kind, value in reversed(name) if kind == "CN"), distinguished_name(name))


def _signature_hash(element: Element) -> str:
    identifier = der.oid(der.elements(der.expect(element, der.SEQUENCE).content)[0])
    return _SIGNATURE_HASHES.get(identifier, identifier)


def _public_key(element: Element) -> PublicKey:
    algorithm, key = der.elements(der.expect(element, der.SEQUENCE).content)[:2]
    kinds = der.elements(der.expect(algorithm, der.SEQUENCE).content)
    kind, octets = der.oid(kinds[0]), der.bits(key)
    # Only an identifier that everyone uses, not a signature: FIPS hosts would refuse SHA-1 without being told so.
    identifier = hashlib.sha1(octets, usedforsecurity=False).digest()
    if kind == _RSA:
        modulus = der.integer(der.elements(der.only(octets, der.SEQUENCE).content)[0])
        return PublicKey("RSA", modulus.bit_length(), "", element.encoded, identifier)
    if kind == _EC:
        curve, size = _CURVES.get(der.oid(kinds[1]), ("", 0))
        return PublicKey("ECDSA", size, curve, element.encoded, identifier)
    return PublicKey(kind, 0, "", element.encoded, identifier)


def _extensions(fields: list[Element]) -> tuple[dict[str, bytes], frozenset[str]]:
    found: dict[str, bytes] = {}
    critical = set()
    for wrapper in (one for one in fields if one.tag == 0xA3):
        for extension in der.elements(der.only(wrapper.content, der.SEQUENCE).content):
            parts = der.elements(der.expect(extension, der.SEQUENCE).content)
            identifier = der.oid(parts[0])
            found[identifier] = der.expect(parts[-1], der.OCTET_STRING).content
            # The middle one, "critical", is left out where it is false.
            if len(parts) > 2 and der.boolean(parts[1]):
                critical.add(_EXTENSIONS.get(identifier, identifier))
    return found, frozenset(critical)


def _constraints(extensions: dict[str, bytes]) -> list[Element]:
    if _CONSTRAINTS not in extensions:
        return []
    return der.elements(der.only(extensions[_CONSTRAINTS], der.SEQUENCE).content)


def _is_authority(extensions: dict[str, bytes]) -> bool:
    parts = _constraints(extensions)
    return bool(parts) and parts[0].tag == der.BOOLEAN and der.boolean(parts[0])


def _path_length(extensions: dict[str, bytes]) -> int | None:
    return next((der.integer(part) for part in _constraints(extensions) if part.tag == der.INTEGER), None)


def _key_usages(extensions: dict[str, bytes]) -> tuple[str, ...]:
    if _KEY_USAGE not in extensions:
        return ()
    octets = der.bits(der.only(extensions[_KEY_USAGE], der.BIT_STRING))
    return tuple(
        name for at, name in enumerate(_KEY_USAGES) if at // 8 < len(octets) and octets[at // 8] & 0x80 >> at % 8
    )


def _extended_usages(extensions: dict[str, bytes]) -> tuple[str, ...]:
    if _EXTENDED_KEY_USAGE not in extensions:
        return ()
    parts = der.elements(der.only(extensions[_EXTENDED_KEY_USAGE], der.SEQUENCE).content)
    return tuple(_EXTENDED_USAGES.get(der.oid(part), der.oid(part)) for part in parts)


def _alternative_names(extensions: dict[str, bytes]) -> tuple[tuple[str, ...], tuple[IpAddress, ...]]:
    if _ALTERNATIVE_NAMES not in extensions:
        return (), ()
    parts = der.elements(der.only(extensions[_ALTERNATIVE_NAMES], der.SEQUENCE).content)
    names = tuple(part.content.decode("latin-1") for part in parts if part.tag == 0x82)
    return names, tuple(_address(part.content) for part in parts if part.tag == 0x87)


def _address(octets: bytes) -> IpAddress:
    try:
        return ipaddress.ip_address(octets)
    except ValueError as error:
        raise DerError(f"an address of {len(octets)} octets") from error


def _key_identifier(extensions: dict[str, bytes]) -> bytes | None:
    if _SUBJECT_KEY not in extensions:
        return None
    return der.only(extensions[_SUBJECT_KEY], der.OCTET_STRING).content


def _authority_identifier(extensions: dict[str, bytes]) -> bytes | None:
    if _AUTHORITY_KEY not in extensions:
        return None
    parts = der.elements(der.only(extensions[_AUTHORITY_KEY], der.SEQUENCE).content)
    return next((part.content for part in parts if part.tag == 0x80), None)
