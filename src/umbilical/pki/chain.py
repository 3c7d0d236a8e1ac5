"""Whether a certificate verifies against a bundle, by the rules of OpenSSL: the last link must have signed itself.

Go takes any certificate of a bundle as an anchor; curl, Python and everything else on OpenSSL do not. What both demand
is demanded here, as `openssl verify -x509_strict -purpose ...` does. `chain_trouble` says the first thing amiss.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from umbilical.pki.certificate import Certificate
from umbilical.pki.judgement import is_signed_by, validity_reason
from umbilical.pki.profiles import Usage

MAX_LINKS: Final = 8
"""More than anybody has; a ring of authorities that sign each other would have no end."""


def chain_trouble(leaf: Certificate, trusted: Sequence[Certificate], purpose: Usage, now: datetime) -> str:
    """Tell why this bundle does not verify the leaf for a server or a client; empty where it does."""
    if leaf.usages and purpose.value not in leaf.usages:
        return f"it is not for {purpose.value}"
    links = [leaf]
    while not _is_root(links[-1]):
        issuer = _issuer(links[-1], trusted)
        if issuer is None or len(links) > MAX_LINKS:
            return f"unable to get issuer certificate: {links[-1].issuer_name} is not in the bundle"
        links.append(issuer)
    if leaf is links[-1] and not any(one.encoded == leaf.encoded for one in trusted):
        return "it signed itself, and is not in the bundle"
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
    # OpenSSL asks for an identifier of its own in authorities only.
    trouble = validity_reason(one, now) or _issuer_identifier_trouble(one)
    if not trouble and place:
        trouble = identifier_trouble(one) or authority_trouble(one)
    # Authorities between it and the leaf; the leaf itself is not counted, be it an authority or not.
    if not trouble and place and one.path_length is not None and place - 1 > one.path_length:
        trouble = "path length constraint exceeded"
    return f"{one.common_name}: {trouble}" if trouble else ""


def authority_trouble(certificate: Certificate) -> str:
    """Tell what a certificate lacks to sign others."""
    if not certificate.is_authority:
        return "it may not sign certificates"
    if "basicConstraints" not in certificate.critical:
        return "its basicConstraints are not critical"
    return "" if "keyCertSign" in certificate.key_usages else "its keyUsage lacks keyCertSign"


def identifier_trouble(certificate: Certificate) -> str:
    """Tell which identifier is missing: Python 3.13 and later refuse such by default (VERIFY_X509_STRICT)."""
    if certificate.key_identifier is None:
        return "it has no subjectKeyIdentifier"
    return _issuer_identifier_trouble(certificate)


def _issuer_identifier_trouble(certificate: Certificate) -> str:
    if certificate.authority_identifier is None and not certificate.is_self_issued:
        return "it has no authorityKeyIdentifier"
    return ""
