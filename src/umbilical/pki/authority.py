"""A certificate authority that signs leaf certificates from profiles; and certificates and keys from and to PEM.

The time is passed in. Bytes only, no files.
"""

import warnings
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from umbilical.pki.pem import BundleError, KeyPair
from umbilical.pki.profiles import BACKDATE, MAX_COMMON_NAME, NOT_ITS_KEY, KeyType, Profile, Usage

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
RSA_EXPONENT: Final = 65537
_USAGE_OIDS: Final = {Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}


class Authority:
    """A CA certificate with its key. `pair` is what to store; its key signs for the whole cluster."""

    def __init__(self, certificate: x509.Certificate, key: PrivateKey) -> None:
        self._certificate = certificate
        self._key = key
        self.pair = encode_pair(certificate, key)

    @classmethod
    def create(
        cls,
        common_name: str,
        now: datetime,
        lifetime: timedelta,
        key_type: KeyType = KeyType.RSA_2048,
        organizations: Iterable[str] = (),
    ) -> "Authority":
        """Generate a key and a self-signed certificate, without a path length: intermediate CAs stay possible."""
        key = _generate_key(key_type)
        name = _name(common_name, organizations)
        builder = (
            _dated(now, lifetime)
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True, enciphers_keys=False), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, pair: KeyPair) -> "Authority":
        """Load an existing CA; from a bundle, the certificate that the key belongs to.

        Raises BundleError: not PEM, not a CA, or no certificate belongs to the key.
        """
        key = decode_key(pair.key)
        public = key.public_key()
        certificate = next((one for one in decode_certificates(pair.certificate) if one.public_key() == public), None)
        if certificate is None:
            raise BundleError(NOT_ITS_KEY)
        if not _is_authority(certificate):
            raise BundleError(f"{certificate.subject.rfc4514_string()} may not sign certificates")
        return cls(certificate, key)

    @property
    def certificate_pem(self) -> bytes:
        return self.pair.certificate

    def issue(self, profile: Profile, now: datetime, lifetime: timedelta) -> KeyPair:
        """Generate a key for the profile and sign its certificate."""
        key = _generate_key(profile.key_type)
        public = key.public_key()
        builder = (
            _dated(now, lifetime)
            .subject_name(_name(profile.common_name, profile.organizations))
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_leaf_key_usage(profile.key_type), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_USAGE_OIDS[usage] for usage in profile.usages]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(self._authority_key_identifier(), critical=False)
        )
        names = _alternative_names(profile)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return encode_pair(builder.sign(self._key, hashes.SHA256()), key)

    def _authority_key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """Copy the CA's own identifier: recomputing it with another hash rule would break the chain."""
        try:
            own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _generate_key(key_type: KeyType) -> PrivateKey:
    if key_type is KeyType.ECDSA_P256:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(RSA_EXPONENT, 2048)


def _dated(now: datetime, lifetime: timedelta) -> x509.CertificateBuilder:
    start = now.astimezone(UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - BACKDATE)
        .not_valid_after(start + lifetime)
    )


def _name(common_name: str, organizations: Iterable[str]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*groups, _common_name(common_name)])


def _common_name(text: str) -> x509.NameAttribute[str]:
    if len(text.encode()) <= MAX_COMMON_NAME:
        return x509.NameAttribute(NameOID.COMMON_NAME, text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return x509.NameAttribute(NameOID.COMMON_NAME, text, _validate=False)


def _alternative_names(profile: Profile) -> list[x509.GeneralName]:
    return [
        *(x509.DNSName(name) for name in profile.dns_names),
        *(x509.IPAddress(address) for address in profile.ip_addresses),
    ]


def _leaf_key_usage(key_type: KeyType) -> x509.KeyUsage:
    # An ECDSA key cannot encipher another key: RFC 8813 §3.
    return _key_usage(signs_certificates=False, enciphers_keys=key_type is KeyType.RSA_2048)


def _key_usage(*, signs_certificates: bool, enciphers_keys: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=enciphers_keys,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def encode_pair(certificate: x509.Certificate, key: PrivateKey) -> KeyPair:
    return KeyPair(encode_certificates([certificate]), encode_key(key))


def encode_certificates(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def decode_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read every certificate of a bundle; it must have at least one."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BundleError(f"no readable certificate: {error}") from error


def encode_key(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def decode_key(pem: bytes) -> PrivateKey:
    return _decode_key(pem, is_trusted=False)


def decode_own_key(pem: bytes) -> PrivateKey:
    """Read a key that we made, without validation: that takes 37 ms per RSA key, and a set has forty."""
    return _decode_key(pem, is_trusted=True)


def public_half(key: PrivateKey) -> bytes:
    """Return the public key as DER SubjectPublicKeyInfo, as certificates hold it."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _decode_key(pem: bytes, *, is_trusted: bool) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=is_trusted)
    except (ValueError, TypeError) as error:
        raise BundleError(f"no readable private key: {error}") from error
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise BundleError(f"the key is neither RSA nor ECDSA: {type(key).__name__}")
    return key
