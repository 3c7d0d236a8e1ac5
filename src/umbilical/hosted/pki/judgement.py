"""Why a certificate of a hosted control plane has to be made anew. The empty reason means that it is good."""

from datetime import datetime, timedelta
from typing import Final

from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.judgement import MISSING, is_signed_by, pair_trouble, profile_reason, validity_reason
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import BACKDATE, Profile

_SECOND: Final = timedelta(seconds=1)
"""Certificates know no smaller part of time."""


def leaf_reason(
    pair: KeyPair | None, profile: Profile, signer: Certificate, lifetime: timedelta, share: float, now: datetime
) -> str:
    if pair is None:
        return MISSING
    trouble = pair_trouble(pair)
    if trouble:
        return trouble
    certificate = read_certificates(pair.certificate)[0]
    return (
        profile_reason(certificate, profile)
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


def time_reason(certificate: Certificate, share: float, now: datetime) -> str:
    reason = validity_reason(certificate, now)
    if reason:
        return reason
    left = certificate.time_left(now)
    if left < share * _life(certificate):
        return f"only {left.days} of {_life(certificate).days} days were left"
    return ""


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
