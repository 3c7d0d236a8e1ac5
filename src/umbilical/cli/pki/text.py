"""Certificates formatted for a terminal and as JSON."""

from datetime import datetime, timedelta
from typing import Any

import click

from umbilical.checks.report import printable
from umbilical.pki.certificate import Certificate, distinguished_name, moment, span
from umbilical.pki.tunnel_set import TunnelAuthority


def expiry(certificate: Certificate, now: datetime) -> str:
    left = certificate.time_left(now)
    if left <= timedelta():
        return f"expired {span(-left)} ago"
    if certificate.not_before > now:
        return f"becomes valid in {span(certificate.not_before - now)}"
    return f"expires in {span(left)}"


def kind(certificate: Certificate) -> str:
    if certificate.is_authority:
        return "authority"
    roles = {"serverAuth": "server", "clientAuth": "client"}
    return "+".join(roles[usage] for usage in certificate.usages if usage in roles) or "leaf"


def alternative_names(certificate: Certificate) -> list[str]:
    names = [f"DNS:{name}" for name in certificate.dns_names]
    return names + [f"IP:{address}" for address in certificate.ip_addresses]


def short_line(certificate: Certificate, now: datetime) -> str:
    names = alternative_names(certificate)
    parts = [
        f"X.509 {kind(certificate)} ({certificate.key.title})",
        f"[Serial {serial(certificate)[:4]}..]",
        f"CN={certificate.common_name}",
        *([f"SAN {','.join(names)}"] if names else []),
        expiry(certificate, now),
        "self-signed" if certificate.is_self_issued else f"signed-by {certificate.issuer_name}",
    ]
    return " ".join(parts)


def long_lines(certificate: Certificate, now: datetime) -> list[str]:
    rows = {
        "kind": f"{kind(certificate)}, {certificate.key.title}, {certificate.signature_hash}",
        "subject": distinguished_name(certificate.subject),
        "issuer": distinguished_name(certificate.issuer),
        "names": ", ".join(alternative_names(certificate)) or "-",
        "usage": ", ".join(certificate.usages) or "-",
        "valid": f"{moment(certificate.not_before)} to {moment(certificate.not_after)}, {expiry(certificate, now)}",
        "serial": serial(certificate),
        "key id": _hex(certificate.key_identifier) or "-",
        "issuer's": _hex(certificate.authority_identifier) or "-",
    }
    return [f"  {name:<9} {value}" for name, value in rows.items()]


def as_value(certificate: Certificate, now: datetime) -> dict[str, Any]:
    """Return the certificate as a JSON object; times are RFC 3339."""
    return {
        "kind": kind(certificate),
        "subject": distinguished_name(certificate.subject),
        "issuer": distinguished_name(certificate.issuer),
        "commonName": certificate.common_name,
        "serial": serial(certificate),
        "notBefore": certificate.not_before.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "notAfter": certificate.not_after.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "secondsLeft": int(certificate.time_left(now).total_seconds()),
        "key": {"algorithm": certificate.key.algorithm, "bits": certificate.key.bits, "curve": certificate.key.curve},
        "signatureHash": certificate.signature_hash,
        "isAuthority": certificate.is_authority,
        "usages": list(certificate.usages),
        "dnsNames": list(certificate.dns_names),
        "ipAddresses": [str(address) for address in certificate.ip_addresses],
        "keyIdentifier": _hex(certificate.key_identifier),
        "authorityKeyIdentifier": _hex(certificate.authority_identifier),
    }


def print_shortened(authority: TunnelAuthority, now: datetime, ttl: timedelta) -> None:
    """Print a note when the CA shortens the requested validity."""
    left = authority.lifetime(now, ttl)
    if left < ttl:
        name, end = authority.certificate.common_name, moment(authority.certificate.not_after)
        click.echo(
            printable(f"note: certificates expire in {span(left)}, not {span(ttl)}: the CA {name} expires at {end}"),
            err=True,
        )


def serial(certificate: Certificate) -> str:
    return f"{certificate.serial:x}"


def _hex(identifier: bytes | None) -> str:
    return identifier.hex(":") if identifier else ""
