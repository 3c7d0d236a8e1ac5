"""The checks of `umbilical pki verify`, over the facts that `directory` gathers: what is judged, why, and the cure."""

import dataclasses
import ipaddress
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from umbilical.checks.check import Check, Finding, Verdict, failed, judge, passed, skipped, warned
from umbilical.pki.certificate import Certificate, moment, span
from umbilical.pki.directory import DirectoryFacts, KeyFile, LeafFacts
from umbilical.pki.tunnel_set import Role

WARN_LEFT: Final = timedelta(hours=6)
"""An installation that begins now may need about as long, waiting for people included."""
HEADINGS: Final = {
    "ca": "Authority",
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
class Question:
    """The directory, and what is asked about it."""

    facts: DirectoryFacts
    now: datetime
    addresses: tuple[str, ...] = ()
    """What agents dial; empty where nobody said."""
    min_left: timedelta = timedelta(minutes=30)

    def leaf(self, role: Role) -> LeafFacts:
        return self.facts.leaves[role]


class LeafJudge(Protocol):
    def __call__(self, question: Question, role: Role) -> Verdict: ...


def findings(question: Question) -> list[Finding]:
    """Judge the directory: the authority, every certificate that was looked at, and all of them together."""
    checks = list(_authority_checks())
    for role in question.facts.leaves:
        checks += _leaf_checks(role)
    if {Role.SERVER, Role.AGENT} <= question.facts.leaves.keys():
        checks.append(_HANDSHAKE)
    # The words are to be pasted, so they name this directory.
    folder = shlex.quote(str(question.facts.folder))
    return [dataclasses.replace(one, fix=one.fix.replace("DIR", folder)) for one in judge(checks, question)]


def _authority_checks() -> Iterable[Check[Question]]:
    return (
        Check(
            "ca.file",
            "ca.crt holds authorities only",
            "what is not an authority verifies nobody, and both sides refuse each other",
            f"make a new set: {_MAKE}",
            _authority_file,
        ),
        Check(
            "ca.time",
            "an authority is valid for long enough",
            "when it ends, every certificate below it ends with it",
            f"{_ROTATE} --signer",
            _authority_time,
        ),
        Check(
            "ca.strength",
            "authorities' keys suit FIPS",
            "a host in FIPS mode refuses them in every handshake",
            f"make a new set: {_MAKE} --overwrite",
            _authority_strength,
        ),
        Check(
            "ca.key",
            "ca.key, if it is here, belongs to ca.crt and is its owner's alone",
            "whoever reads it can be any agent and any server",
            "chmod 600 DIR/ca.key; better, keep it elsewhere",
            _authority_key,
        ),
        Check(
            "ca.folder",
            "only its owner can put files into the directory",
            "whoever can, replaces a key that he cannot read",
            "chmod 700 DIR",
            _folder_mode,
        ),
    )


def _leaf_checks(role: Role) -> Iterable[Check[Question]]:
    for suffix, title, why, fix, judge_leaf in _LEAF_CHECKS:
        told, reason, remedy = (text.format(role=role.value, usage=role.usage) for text in (title, why, fix))
        yield Check(f"{role.value}.{suffix}", told, reason, remedy, partial(judge_leaf, role=role))
    if role is Role.SERVER:
        yield _NAMES


def _authority_file(question: Question) -> Verdict:
    file = question.facts.authority
    if not file.certificates:
        return failed(f"{file.path.name}: {file.trouble}")
    wrong = [one.common_name for one in file.certificates if not one.is_authority]
    if wrong:
        return failed(f"no authority: {', '.join(wrong)}")
    return passed(", ".join(one.common_name for one in file.certificates))


def _authority_time(question: Question) -> Verdict:
    if not question.facts.authority.certificates:
        return skipped("no authority to look at")
    best = max(question.facts.authority.certificates, key=lambda one: one.not_after)
    return _time_verdict(question, best, best.not_after, best.common_name)


def _authority_strength(question: Question) -> Verdict:
    if not question.facts.authority.certificates:
        return skipped("no authority to look at")
    # A root's own signature is never verified: it is trusted because it lies here.
    weak = [one for one in question.facts.authority.certificates if not _is_strong(one, is_anchor=one.is_self_issued)]
    if weak:
        return failed("; ".join(f"{one.common_name}: {one.key.title}, {one.signature_hash}" for one in weak))
    return passed()


def _authority_key(question: Question) -> Verdict:
    key = question.facts.authority_key
    if key.mode is None:
        return passed("it is kept elsewhere")
    if key.refusal is not None:
        return failed(f"ca.key: {key.refusal.why}")
    return _mode_verdict(key)


def _folder_mode(question: Question) -> Verdict:
    mode = question.facts.folder_mode
    shown = f"{question.facts.folder} has mode {mode:04o}"
    if mode & 0o002:
        return failed(shown)
    return warned(shown) if mode & 0o020 else passed(shown)


def _leaf_file(question: Question, role: Role) -> Verdict:
    leaf = question.leaf(role)
    if leaf.certificate is None:
        return failed(f"{leaf.file.path.name}: {leaf.file.trouble}")
    return passed(leaf.certificate.common_name)


def _leaf_key(question: Question, role: Role) -> Verdict:
    key = question.leaf(role).key
    if key.mode is None and key.refusal is not None:
        return failed(f"{key.path.name}: {key.refusal.why}")
    if question.leaf(role).certificate is None:
        return skipped("no certificate to compare it with")
    return failed(f"{key.path.name}: {key.refusal.why}") if key.refusal else passed()


def _leaf_mode(question: Question, role: Role) -> Verdict:
    key = question.leaf(role).key
    return skipped("no key file") if key.mode is None else _mode_verdict(key)


def _leaf_chain(question: Question, role: Role) -> Verdict:
    leaf = question.leaf(role)
    if not question.facts.authority.certificates:
        return skipped("no authority to verify it with")
    if not leaf.is_loadable:
        return skipped("certificate and key cannot be loaded")
    if leaf.chain is None:
        return passed()
    if leaf.chain.is_purpose:
        return skipped(f"not looked at: {leaf.chain.why}")
    return failed(f"{leaf.file.path.name}: {leaf.chain.why}")


def _leaf_usage(question: Question, role: Role) -> Verdict:
    certificate = question.leaf(role).certificate
    if certificate is None:
        return skipped("no certificate to look at")
    shown = ", ".join(certificate.usages) or "none"
    if role.usage not in certificate.usages:
        return failed(f"extended key usage: {shown}")
    return failed("it is an authority itself") if certificate.is_authority else passed(shown)


def _leaf_time(question: Question, role: Role) -> Verdict:
    certificate = question.leaf(role).certificate
    if certificate is None:
        return skipped("no certificate to look at")
    issuer = question.facts.issuer_of(certificate)
    if issuer is not None and issuer.not_after < certificate.not_after:
        return _time_verdict(question, certificate, issuer.not_after, f"{issuer.common_name}, which signed it,")
    return _time_verdict(question, certificate, certificate.not_after, certificate.common_name)


def _leaf_strength(question: Question, role: Role) -> Verdict:
    certificate = question.leaf(role).certificate
    if certificate is None:
        return skipped("no certificate to look at")
    shown = f"{certificate.key.title}, {certificate.signature_hash}"
    return passed(shown) if _is_strong(certificate, is_anchor=False) else failed(shown)


def _server_names(question: Question) -> Verdict:
    certificate = question.leaf(Role.SERVER).certificate
    if certificate is None:
        return skipped("no certificate to look at")
    shown = ", ".join(certificate.names) or "nothing"
    missing = [address for address in question.addresses if not _covers(certificate, address)]
    if missing:
        return failed(f"agents dial {', '.join(missing)}; the certificate names {shown}")
    return passed(shown) if certificate.names else failed("the certificate names no address at all")


def _connection(question: Question) -> Verdict:
    results = question.facts.connections
    if not results:
        return skipped("one of the files cannot be used, see above")
    refused = [f"{address}: {refusal.why}" for address, refusal in results.items() if refusal is not None]
    return failed("; ".join(refused)) if refused else passed(", ".join(results))


_LEAF_CHECKS: Final[tuple[tuple[str, str, str, str, LeafJudge], ...]] = (
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
        "the {role} stops at start, or keeps what it had before",
        f"{_ROTATE} --only {{role}}",
        _leaf_key,
    ),
    (
        "mode",
        "{role}.key is its owner's alone",
        "whoever reads it can pass as the {role}",
        "chmod 600 DIR/{role}.key",
        _leaf_mode,
    ),
    (
        "chain",
        "{role}.crt was signed by an authority of ca.crt",
        "the other side ends the handshake: unknown authority",
        f"{_ROTATE} --only {{role}}; for another CA, join both in ca.crt",
        _leaf_chain,
    ),
    (
        "usage",
        "{role}.crt is made for this use ({usage})",
        "the other side ends the handshake: unsuitable purpose",
        "umbilical pki issue --dir DIR --kind {role} --overwrite",
        _leaf_usage,
    ),
    (
        "time",
        "{role}.crt is valid for long enough",
        "from its end on, no new connection is accepted",
        f"{_ROTATE} --only {{role}}; clocks that differ: date -u",
        _leaf_time,
    ),
    (
        "strength",
        "{role}.crt suits FIPS: RSA 2048 or P-256, SHA-256",
        "a host in FIPS mode refuses it in every handshake",
        f"{_ROTATE} --only {{role}}",
        _leaf_strength,
    ),
)
_NAMES: Final = Check(
    "server.names",
    "server.crt names every address that agents dial",
    "agents end the handshake: the certificate is another host's",
    "umbilical pki issue --dir DIR --kind server --overwrite --address ADDRESS …",
    _server_names,
)
_HANDSHAKE: Final = Check(
    "handshake.mutual",
    "an agent and the server accept each other in a TLS handshake",
    "no agent connects, and kube-apiserver reaches no webhook",
    "repair what failed above; see the details: umbilical pki inspect DIR",
    _connection,
)


def _time_verdict(question: Question, certificate: Certificate, end: datetime, subject: str) -> Verdict:
    left = end - question.now
    if certificate.not_before > question.now:
        early = span(certificate.not_before - question.now)
        return failed(f"{subject} begins in {early}, at {moment(certificate.not_before)}: is this clock right?")
    if left <= timedelta():
        return failed(f"{subject} expired {span(-left)} ago, at {moment(end)}")
    shown = f"{subject} has {span(left)} left, until {moment(end)}"
    if left < question.min_left:
        return failed(f"{shown}; {span(question.min_left)} are asked for")
    return warned(shown) if left < WARN_LEFT else passed(shown)


def _mode_verdict(key: KeyFile) -> Verdict:
    shown = f"{key.path.name} has mode {key.mode or 0:04o}"
    if (key.mode or 0) & _OTHERS:
        return failed(f"{shown}: everybody on this machine can use it")
    return warned(f"{shown}: its group can use it") if (key.mode or 0) & _GROUP else passed(shown)


def _is_strong(certificate: Certificate, *, is_anchor: bool) -> bool:
    return certificate.key.is_strong and (is_anchor or certificate.is_strongly_signed)


def _covers(certificate: Certificate, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in certificate.ip_addresses
    except ValueError:
        names = [name.lower() for name in certificate.dns_names]
        # A star stands for one whole label, the first: RFC 6125 §6.4.3.
        return address in names or f"*.{address.partition('.')[2]}" in names
