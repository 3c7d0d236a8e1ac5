"""The checks of `umbilical pki verify`, over the facts that `directory` gathers."""

import dataclasses
import ipaddress
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from umbilical.checks.check import Check, Finding, Verdict, failed, passed, run_checks, skipped, warned
from umbilical.pki.certificate import Certificate, moment, span
from umbilical.pki.directory import DirectoryFacts, KeyFile, LeafFacts
from umbilical.pki.tunnel_set import TunnelRole

WARN_LEFT: Final = timedelta(hours=6)
"""About as long as an installation takes that starts now, with pauses."""
HEADINGS: Final = {
    "ca": "CA",
    "server": "Server certificate",
    "agent": "Agent certificate",
    "client": "Client certificate",
    "handshake": "Agent and server together",
}
_OTHERS: Final = 0o007
_GROUP: Final = 0o070
_MAKE: Final = "umbilical pki init --dir DIR --address ADDRESS"
_ROTATE: Final = "umbilical pki rotate --dir DIR"


@dataclass(frozen=True)
class DirectoryInput:
    """The directory's facts, and what to check them against."""

    facts: DirectoryFacts
    now: datetime
    addresses: tuple[str, ...] = ()
    """Addresses that agents dial; empty: unknown."""
    min_left: timedelta = timedelta(minutes=30)

    def leaf(self, role: TunnelRole) -> LeafFacts:
        return self.facts.leaves[role]


class LeafPredicate(Protocol):
    def __call__(self, inputs: DirectoryInput, role: TunnelRole) -> Verdict: ...


def findings(inputs: DirectoryInput) -> list[Finding]:
    """Run the checks of the CA, of every certificate, and of the handshake."""
    checks = list(_authority_checks())
    for role in inputs.facts.leaves:
        checks += _leaf_checks(role)
    if {TunnelRole.SERVER, TunnelRole.AGENT} <= inputs.facts.leaves.keys():
        checks.append(_HANDSHAKE)
    # Users paste the fix, so it names this directory.
    folder = shlex.quote(str(inputs.facts.folder))
    return [dataclasses.replace(one, fix=one.fix.replace("DIR", folder)) for one in run_checks(checks, inputs)]


def _authority_checks() -> Iterable[Check[DirectoryInput]]:
    return (
        Check(
            "ca.file",
            "ca.crt holds CA certificates only",
            "other certificates verify nothing, so server and agents refuse each other",
            f"create a new set: {_MAKE}",
            _authority_file,
        ),
        Check(
            "ca.time",
            "a CA is valid for long enough",
            "when the CA expires, no certificate that it signed is accepted",
            f"{_ROTATE} --signer",
            _authority_time,
        ),
        Check(
            "ca.strength",
            "CA keys are allowed by FIPS",
            "a host in FIPS mode refuses other keys in every handshake",
            f"create a new set: {_MAKE} --overwrite",
            _authority_strength,
        ),
        Check(
            "ca.key",
            "ca.key, if present, belongs to ca.crt and only its owner can read it",
            "a reader of ca.key can impersonate every agent and server",
            "chmod 600 DIR/ca.key; better, store it elsewhere",
            _authority_key,
        ),
        Check(
            "ca.folder",
            "only the owner can write to the directory",
            "a user who can write there can replace keys that he cannot read",
            "chmod 700 DIR",
            _folder_mode,
        ),
    )


def _leaf_checks(role: TunnelRole) -> Iterable[Check[DirectoryInput]]:
    for suffix, title, why, fix, predicate in _LEAF_CHECKS:
        claim, reason, remedy = (text.format(role=role.value, usage=role.usage) for text in (title, why, fix))
        yield Check(f"{role.value}.{suffix}", claim, reason, remedy, partial(predicate, role=role))
    if role is TunnelRole.SERVER:
        yield _NAMES


def _authority_file(inputs: DirectoryInput) -> Verdict:
    file = inputs.facts.authority
    if not file.certificates:
        return failed(f"{file.path.name}: {file.trouble}")
    wrong = [one.common_name for one in file.certificates if not one.is_authority]
    if wrong:
        return failed(f"not a CA: {', '.join(wrong)}")
    return passed(", ".join(one.common_name for one in file.certificates))


def _authority_time(inputs: DirectoryInput) -> Verdict:
    if not inputs.facts.authority.certificates:
        return skipped("ca.crt holds no CA")
    best = max(inputs.facts.authority.certificates, key=lambda one: one.not_after)
    return _time_verdict(inputs, best, best.not_after, best.common_name)


def _authority_strength(inputs: DirectoryInput) -> Verdict:
    if not inputs.facts.authority.certificates:
        return skipped("ca.crt holds no CA")
    # Verifiers do not check the signature of a root: it is trusted because it is in ca.crt.
    weak = [one for one in inputs.facts.authority.certificates if not _is_strong(one, is_anchor=one.is_self_issued)]
    if weak:
        return failed("; ".join(f"{one.common_name}: {one.key.title}, {one.signature_hash}" for one in weak))
    return passed()


def _authority_key(inputs: DirectoryInput) -> Verdict:
    key = inputs.facts.authority_key
    if key.mode is None:
        return passed("ca.key is not in this directory")
    if key.refusal is not None:
        return failed(f"ca.key: {key.refusal.why}")
    return _mode_verdict(key)


def _folder_mode(inputs: DirectoryInput) -> Verdict:
    mode = inputs.facts.folder_mode
    shown = f"{inputs.facts.folder} has mode {mode:04o}"
    if mode & 0o002:
        return failed(shown)
    return warned(shown) if mode & 0o020 else passed(shown)


def _leaf_file(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    leaf = inputs.leaf(role)
    if leaf.certificate is None:
        return failed(f"{leaf.file.path.name}: {leaf.file.trouble}")
    return passed(leaf.certificate.common_name)


def _leaf_key(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    key = inputs.leaf(role).key
    if key.mode is None and key.refusal is not None:
        return failed(f"{key.path.name}: {key.refusal.why}")
    if inputs.leaf(role).certificate is None:
        return skipped("there is no certificate to compare it with")
    return failed(f"{key.path.name}: {key.refusal.why}") if key.refusal else passed()


def _leaf_mode(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    key = inputs.leaf(role).key
    return skipped("no key file") if key.mode is None else _mode_verdict(key)


def _leaf_chain(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    leaf = inputs.leaf(role)
    if not inputs.facts.authority.certificates:
        return skipped("ca.crt holds no CA")
    if not leaf.is_loadable:
        return skipped("certificate and key cannot be loaded")
    if leaf.chain is None:
        return passed()
    if leaf.chain.is_purpose:
        return skipped(f"OpenSSL stopped earlier: {leaf.chain.why}")
    return failed(f"{leaf.file.path.name}: {leaf.chain.why}")


def _leaf_usage(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    certificate = inputs.leaf(role).certificate
    if certificate is None:
        return skipped("there is no certificate")
    shown = ", ".join(certificate.usages) or "none"
    if role.usage not in certificate.usages:
        return failed(f"extended key usage: {shown}")
    return failed("it is a CA certificate") if certificate.is_authority else passed(shown)


def _leaf_time(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    certificate = inputs.leaf(role).certificate
    if certificate is None:
        return skipped("there is no certificate")
    issuer = inputs.facts.issuer_of(certificate)
    if issuer is not None and issuer.not_after < certificate.not_after:
        return _time_verdict(inputs, certificate, issuer.not_after, f"its CA {issuer.common_name}")
    return _time_verdict(inputs, certificate, certificate.not_after, certificate.common_name)


def _leaf_strength(inputs: DirectoryInput, role: TunnelRole) -> Verdict:
    certificate = inputs.leaf(role).certificate
    if certificate is None:
        return skipped("there is no certificate")
    shown = f"{certificate.key.title}, {certificate.signature_hash}"
    return passed(shown) if _is_strong(certificate, is_anchor=False) else failed(shown)


def _server_names(inputs: DirectoryInput) -> Verdict:
    certificate = inputs.leaf(TunnelRole.SERVER).certificate
    if certificate is None:
        return skipped("there is no certificate")
    shown = ", ".join(certificate.names) or "nothing"
    missing = [address for address in inputs.addresses if not _covers(certificate, address)]
    if missing:
        return failed(f"agents dial {', '.join(missing)}; the certificate names {shown}")
    return passed(shown) if certificate.names else failed("the certificate names no address")


def _connection(inputs: DirectoryInput) -> Verdict:
    results = inputs.facts.connections
    if not results:
        return skipped("a file is missing or invalid, see above")
    refused = [f"{address}: {refusal.why}" for address, refusal in results.items() if refusal is not None]
    return failed("; ".join(refused)) if refused else passed(", ".join(results))


_LEAF_CHECKS: Final[tuple[tuple[str, str, str, str, LeafPredicate], ...]] = (
    (
        "file",
        "{role}.crt holds a certificate",
        "the {role} cannot start without it",
        "umbilical pki issue --dir DIR --kind {role}",
        _leaf_file,
    ),
    (
        "key",
        "{role}.key belongs to {role}.crt",
        "the {role} does not start, or keeps using its old certificate",
        f"{_ROTATE} --only {{role}}",
        _leaf_key,
    ),
    (
        "mode",
        "only the owner can read {role}.key",
        "a reader of the key can impersonate the {role}",
        "chmod 600 DIR/{role}.key",
        _leaf_mode,
    ),
    (
        "chain",
        "{role}.crt was signed by a CA in ca.crt",
        "the other side ends the handshake: unknown authority",
        f"{_ROTATE} --only {{role}}; if another CA signed it, add that CA to ca.crt",
        _leaf_chain,
    ),
    (
        "usage",
        "{role}.crt has the extended key usage {usage}",
        "the other side ends the handshake: unsuitable purpose",
        "umbilical pki issue --dir DIR --kind {role} --overwrite",
        _leaf_usage,
    ),
    (
        "time",
        "{role}.crt is valid for long enough",
        "after it expires, no new connection is accepted",
        f"{_ROTATE} --only {{role}}; compare clocks: date -u",
        _leaf_time,
    ),
    (
        "strength",
        "{role}.crt is allowed by FIPS: RSA 2048 or P-256, SHA-256",
        "a host in FIPS mode refuses other certificates in every handshake",
        f"{_ROTATE} --only {{role}}",
        _leaf_strength,
    ),
)
_NAMES: Final = Check(
    "server.names",
    "server.crt names every address that agents dial",
    "agents end the handshake: the certificate is for another host",
    "umbilical pki issue --dir DIR --kind server --overwrite --address ADDRESS …",
    _server_names,
)
_HANDSHAKE: Final = Check(
    "handshake.mutual",
    "an agent and the server accept each other in a TLS handshake",
    "no agent connects, and kube-apiserver reaches no webhook",
    "fix what failed above; details: umbilical pki inspect DIR",
    _connection,
)


def _time_verdict(inputs: DirectoryInput, certificate: Certificate, end: datetime, subject: str) -> Verdict:
    left = end - inputs.now
    if certificate.not_before > inputs.now:
        early = span(certificate.not_before - inputs.now)
        return failed(f"{subject} becomes valid in {early}, at {moment(certificate.not_before)}; is the clock right?")
    if left <= timedelta():
        return failed(f"{subject} expired {span(-left)} ago, at {moment(end)}")
    shown = f"{subject} has {span(left)} left, until {moment(end)}"
    if left < inputs.min_left:
        return failed(f"{shown}; --min-left is {span(inputs.min_left)}")
    return warned(shown) if left < WARN_LEFT else passed(shown)


def _mode_verdict(key: KeyFile) -> Verdict:
    shown = f"{key.path.name} has mode {key.mode or 0:04o}"
    if (key.mode or 0) & _OTHERS:
        return failed(f"{shown}: every user of this machine can access it")
    return warned(f"{shown}: its group can access it") if (key.mode or 0) & _GROUP else passed(shown)


def _is_strong(certificate: Certificate, *, is_anchor: bool) -> bool:
    return certificate.key.is_strong and (is_anchor or certificate.is_strongly_signed)


def _covers(certificate: Certificate, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in certificate.ip_addresses
    except ValueError:
        names = [name.lower() for name in certificate.dns_names]
        # A wildcard matches exactly the first label: RFC 6125 §6.4.3.
        return address in names or f"*.{address.partition('.')[2]}" in names
