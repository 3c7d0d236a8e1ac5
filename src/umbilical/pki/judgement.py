"""Whether a certificate that is there is still the one that is wanted. The empty reason means that it is."""

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa

from umbilical.pki.bundle import decode_certificates, decode_own_key, public_half
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, KeyPair, public_key_block
from umbilical.pki.profiles import NOT_ITS_KEY, KeyType, Profile
from umbilical.pki.tunnel_set import key_type_of

MISSING: Final = "there was none"
OTHER_KEY_TYPE: Final = "another kind of key is asked for"


def is_signed_by(certificate: Certificate, authority: Certificate) -> bool:
    """Tell it by the signature: names and identifiers are the same after a key is drawn anew."""
    issuer = x509.load_der_x509_certificate(authority.encoded)
    try:
        x509.load_der_x509_certificate(certificate.encoded).verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def pair_trouble(pair: KeyPair) -> str:
    """Tell whether a certificate and its key can be read and belong together."""
    try:
        certificate = decode_certificates(pair.certificate)[0]
        key = decode_own_key(pair.key)
        read_certificates(pair.certificate)
    except BundleError as error:
        return str(error)
    return "" if certificate.public_key() == key.public_key() else NOT_ITS_KEY


def validity_reason(certificate: Certificate, now: datetime) -> str:
    if certificate.not_before > now:
        return f"it is not valid before {certificate.not_before:%Y-%m-%d %H:%M} UTC"
    if certificate.time_left(now) <= timedelta():
        return f"it expired at {certificate.not_after:%Y-%m-%d %H:%M} UTC"
    return ""


def profile_reason(certificate: Certificate, profile: Profile) -> str:
    subject = {("CN", profile.common_name), *(("O", name) for name in profile.organizations)}
    if set(certificate.subject) != subject or certificate.is_authority:
        return "its subject changed"
    if set(certificate.usages) != {usage.value for usage in profile.usages}:
        return "its usages changed"
    wanted = {*profile.dns_names, *map(str, profile.ip_addresses)}
    if set(certificate.names) != wanted:
        return f"its names changed: {', '.join(sorted(set(certificate.names) ^ wanted))}"
    return key_type_reason(certificate, profile.key_type)


def key_type_reason(certificate: Certificate, wanted: KeyType) -> str:
    return "" if key_type_of(certificate) is wanted else OTHER_KEY_TYPE


def key_trouble(pair: KeyPair) -> str:
    """Tell whether a bare key, as tokens are signed with, can be read and its public half is the one beside it."""
    try:
        key = decode_own_key(pair.key)
        public = public_key_block(pair.certificate)
    except BundleError as error:
        return str(error)
    if not isinstance(key, rsa.RSAPrivateKey):
        return OTHER_KEY_TYPE
    return "" if public_half(key) == public else "the public key is another key's"
