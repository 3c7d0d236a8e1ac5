"""Whether an existing certificate still matches what is wanted, and whether it verifies against a CA. An empty string
means yes; any other is the reason why not.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa

from umbilical.pki.authority import decode_certificates, decode_own_key, public_half
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, KeyPair, public_key_block
from umbilical.pki.profiles import BACKDATE, NOT_ITS_KEY, KeyType, Profile, Usage
from umbilical.pki.tunnel_set import key_type_of

MISSING: Final = "there was none"
OTHER_KEY_TYPE: Final = "another key type is wanted"
_SECOND: Final = timedelta(seconds=1)
"""Resolution of times in certificates."""


def is_signed_by(certificate: Certificate, authority: Certificate) -> bool:
    """Check the signature: names and identifiers can stay the same when the CA gets a new key."""
    issuer = x509.load_der_x509_certificate(authority.encoded)
    try:
        x509.load_der_x509_certificate(certificate.encoded).verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def pair_trouble(pair: KeyPair) -> str:
    """Check that a certificate and its key can be read and belong together."""
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


def leaf_reason(
    pair: KeyPair | None, profile: Profile, signer: Certificate, lifetime: timedelta, share: float, now: datetime
) -> str:
    """Return why a certificate must be issued again: wrong, of another signer, or less than `share` of it is left."""
    if pair is None:
        return MISSING
    trouble = pair_trouble(pair)
    if trouble:
        return trouble
    certificate = read_certificates(pair.certificate)[0]
    return (
        profile_reason(certificate, profile)
        # By its signature. HyperShift compares a hash in an annotation, and updates that instead of the certificate.
        or ("" if is_signed_by(certificate, signer) else "its signer changed")
        or _life_reason(certificate, min(lifetime, _longest(certificate, signer)))
        or time_reason(certificate, share, now)
    )


def _life_reason(certificate: Certificate, wanted: timedelta) -> str:
    life = _issued_lifetime(certificate)
    return "" if abs(life - wanted) <= _SECOND else f"its lifetime is {life.days} days, not {wanted.days}"


def _longest(certificate: Certificate, signer: Certificate) -> timedelta:
    """Return the longest lifetime that its signer allowed at issue."""
    return signer.not_after - certificate.not_before - BACKDATE


def time_reason(certificate: Certificate, share: float, now: datetime) -> str:
    """Return why it is due: it is not valid now, or less than this share of its lifetime is left."""
    reason = validity_reason(certificate, now)
    if reason:
        return reason
    left, life = certificate.time_left(now), _issued_lifetime(certificate)
    return f"only {left.days} of {life.days} days are left" if left < share * life else ""


def _issued_lifetime(certificate: Certificate) -> timedelta:
    """Return the time from issue to expiry; not_before is earlier, for clock skew."""
    return certificate.not_after - certificate.not_before - BACKDATE


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
    """Check that a key without a certificate (it signs tokens) can be read and matches its public key."""
    try:
        key = decode_own_key(pair.key)
        public = public_key_block(pair.certificate)
    except BundleError as error:
        return str(error)
    if not isinstance(key, rsa.RSAPrivateKey):
        return OTHER_KEY_TYPE
    return "" if public_half(key) == public else "the public key does not belong to the private key"


MAX_LINKS: Final = 8
"""Bounds the walk when CAs sign each other in a loop."""


def chain_trouble(leaf: Certificate, trusted: Sequence[Certificate], purpose: Usage, now: datetime) -> str:
    """Return why this bundle does not verify the leaf for `purpose`."""
    if leaf.usages and purpose.value not in leaf.usages:
        return f"it lacks the extended key usage {purpose.value}"
    links = [leaf]
    while not _is_root(links[-1]):
        issuer = _issuer(links[-1], trusted)
        if issuer is None or len(links) > MAX_LINKS:
            return f"unable to get issuer certificate: {links[-1].issuer_name} is not in the bundle"
        links.append(issuer)
    if leaf is links[-1] and not any(one.encoded == leaf.encoded for one in trusted):
        return "it is self-signed and is not in the bundle"
    return next(filter(None, (_link_trouble(links, place, now) for place in range(len(links)))), "")


def _is_root(certificate: Certificate) -> bool:
    return certificate.is_self_issued and is_signed_by(certificate, certificate)


def _issuer(certificate: Certificate, trusted: Sequence[Certificate]) -> Certificate | None:
    return next((one for one in trusted if _names_match(certificate, one) and is_signed_by(certificate, one)), None)


def _names_match(certificate: Certificate, issuer: Certificate) -> bool:
    identifier = certificate.authority_identifier
    is_its_key = identifier is None or issuer.key_identifier is None or identifier == issuer.key_identifier
    return certificate.issuer == issuer.subject and is_its_key


def _link_trouble(links: Sequence[Certificate], place: int, now: datetime) -> str:
    one = links[place]
    # OpenSSL requires a subjectKeyIdentifier in CA certificates only.
    trouble = validity_reason(one, now) or _issuer_identifier_trouble(one)
    if not trouble and place:
        trouble = identifier_trouble(one) or authority_trouble(one)
    # Counts the CAs between this one and the leaf, without the leaf.
    if not trouble and place and one.path_length is not None and place - 1 > one.path_length:
        trouble = "path length constraint exceeded"
    return f"{one.common_name}: {trouble}" if trouble else ""


def authority_trouble(certificate: Certificate) -> str:
    """Return why a certificate cannot sign others."""
    if not certificate.is_authority:
        return "it may not sign certificates"
    if "basicConstraints" not in certificate.critical:
        return "its basicConstraints are not critical"
    return "" if "keyCertSign" in certificate.key_usages else "its keyUsage lacks keyCertSign"


def identifier_trouble(certificate: Certificate) -> str:
    """Return which identifier is missing: Python 3.13 and later require both (VERIFY_X509_STRICT)."""
    if certificate.key_identifier is None:
        return "it has no subjectKeyIdentifier"
    return _issuer_identifier_trouble(certificate)


def _issuer_identifier_trouble(certificate: Certificate) -> str:
    if certificate.authority_identifier is None and not certificate.is_self_issued:
        return "it has no authorityKeyIdentifier"
    return ""
