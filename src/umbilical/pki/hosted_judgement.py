"""Why a certificate of a hosted control plane has to be made anew. The empty reason means that it is good."""

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from umbilical.pki.bundle import decode_certificates, decode_key
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, KeyPair
from umbilical.pki.profiles import BACKDATE, NOT_ITS_KEY, Profile
from umbilical.pki.tunnel_set import key_type_of

_SECOND: Final = timedelta(seconds=1)
"""Certificates know no smaller part of time."""


def leaf_reason(
    pair: KeyPair | None, profile: Profile, signer: Certificate, lifetime: timedelta, share: float, now: datetime
) -> str:
    if pair is None:
        return "there was none"
    trouble = pair_trouble(pair)
    if trouble:
        return trouble
    certificate = read_certificates(pair.certificate)[0]
    return (
        _profile_reason(certificate, profile)
        # By its signature. HyperShift compares a hash in an annotation, and rewrites that instead of the certificate.
        or ("" if is_signed_by(certificate, signer) else "its signer changed")
        or _life_reason(certificate, min(lifetime, _longest(certificate, signer)))
        or time_reason(certificate, share, now)
    )


def signer_reason(pair: KeyPair, share: float, now: datetime) -> str:
    trouble = pair_trouble(pair)
    if trouble:
        return trouble
    certificate = read_certificates(pair.certificate)[0]
    if not certificate.is_authority:
        return "it may not sign"
    return time_reason(certificate, share, now)


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
        key = decode_key(pair.key)
        read_certificates(pair.certificate)
    except BundleError as error:
        return str(error)
    return "" if certificate.public_key() == key.public_key() else NOT_ITS_KEY


def time_reason(certificate: Certificate, share: float, now: datetime) -> str:
    left = certificate.time_left(now)
    if certificate.not_before > now:
        return f"it is not valid before {certificate.not_before:%Y-%m-%d %H:%M} UTC"
    if left <= timedelta():
        return f"it expired at {certificate.not_after:%Y-%m-%d %H:%M} UTC"
    if left < share * _life(certificate):
        return f"only {left.days} of {_life(certificate).days} days were left"
    return ""


def _profile_reason(certificate: Certificate, profile: Profile) -> str:
    subject = {("CN", profile.common_name), *(("O", name) for name in profile.organizations)}
    if set(certificate.subject) != subject or certificate.is_authority:
        return "its subject changed"
    if set(certificate.usages) != {usage.value for usage in profile.usages}:
        return "its usages changed"
    wanted = {*profile.dns_names, *map(str, profile.ip_addresses)}
    if set(certificate.names) != wanted:
        return f"its names changed: {', '.join(sorted(set(certificate.names) ^ wanted))}"
    return "" if key_type_of(certificate) is profile.key_type else "another kind of key is asked for"


def _life_reason(certificate: Certificate, wanted: timedelta) -> str:
    if abs(_life(certificate) - wanted) <= _SECOND:
        return ""
    return f"it was made for {_life(certificate).days} days, and {wanted.days} are asked for"


def _life(certificate: Certificate) -> timedelta:
    """From when it was made to its end; it begins earlier, for clocks that run apart."""
    return certificate.not_after - certificate.not_before - BACKDATE


def _longest(certificate: Certificate, signer: Certificate) -> timedelta:
    """How long its signer could let it live when it was made."""
    return signer.not_after - certificate.not_before - BACKDATE
