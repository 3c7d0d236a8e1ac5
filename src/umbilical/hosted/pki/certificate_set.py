"""The certificate set of a hosted control plane's tunnel: create, store as files, validate, renew, rotate signers."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from umbilical.fault import PkiError
from umbilical.hosted.pki.table import (
    CLUSTER,
    LEAVES,
    ORGANIZATION,
    SERVER,
    HostedLeaf,
    Signers,
    Trust,
    signer_ids,
    signer_of,
)
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError, KeyPair, encode_blocks, join_bundle
from umbilical.pki.profiles import Backend, CertificateSigner, KeyType, Profile, split_names, usable_addresses
from umbilical.pki.validation import is_signed_by, leaf_reason, pair_trouble, time_reason


def signer_reason(pair: KeyPair, share: float, now: datetime) -> str:
    trouble = pair_trouble(pair)
    if trouble:
        return trouble
    certificate = read_certificates(pair.certificate)[0]
    if not certificate.is_authority:
        return "it is not a CA certificate"
    return time_reason(certificate, share, now)


ROTATED: Final = "rotation was requested"
LAYOUT_FILE: Final = "layout"
"""Names the layout in use: files of a previous layout stay until they are deleted."""


@dataclass(frozen=True)
class ListenerNames:
    """Names and addresses of the two listeners."""

    frontend: tuple[str, ...]
    agent_listener: tuple[str, ...]

    def of(self, leaf: HostedLeaf) -> tuple[str, ...]:
        return {SERVER.id: self.frontend, CLUSTER.id: self.agent_listener}.get(leaf.id, ())


@dataclass(frozen=True)
class CertificateSettings:
    signers: Signers = Signers.SEPARATE
    key_type: KeyType = KeyType.RSA_2048
    authority_lifetime: timedelta = timedelta(days=3650)
    lifetime: timedelta = timedelta(days=365)
    renewal_share: float = 0.33
    """Renew when less than this share of the lifetime is left, from 0 to 1."""


@dataclass(frozen=True)
class SignerState:
    pair: KeyPair
    """The current signer."""
    bundle: bytes
    """All trusted signers, the current one first."""


@dataclass(frozen=True)
class HostedSet:
    layout: Signers
    signers: Mapping[str, SignerState] = field(repr=False)
    leaves: Mapping[str, KeyPair] = field(repr=False)

    def signer_for(self, trust: Trust) -> SignerState:
        return self.signers[signer_of(trust, self.layout)]

    def trusted_by(self, trust: Trust) -> bytes:
        """Return the PEM bundle by which this party verifies certificates."""
        return self.signer_for(trust).bundle

    def issuer_of(self, leaf: HostedLeaf) -> Certificate:
        """Return its issuer: during a rotation this may be a previous signer."""
        certificate = read_certificates(self.leaves[leaf.id].certificate)[0]
        candidates = read_certificates(self.trusted_by(leaf.verified_by))
        return next((one for one in candidates if is_signed_by(certificate, one)), candidates[0])

    def files(self) -> dict[str, bytes]:
        """Return everything that a later renewal needs, by file name."""
        found = {LAYOUT_FILE: f"{self.layout.value}\n".encode()}
        for id_, state in self.signers.items():
            found |= {f"{id_}.crt": state.bundle, f"{id_}.key": state.pair.key}
        for id_, pair in self.leaves.items():
            found |= {f"{id_}.crt": pair.certificate, f"{id_}.key": pair.key}
        return found

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> "HostedSet":
        """Read the files of `files`; a renewal creates missing leaves. Raises PkiError: a signer is missing."""
        layout = _layout(files)
        missing = [
            f"{id_}.{end}" for id_ in signer_ids(layout) for end in ("crt", "key") if f"{id_}.{end}" not in files
        ]
        if missing:
            raise _unusable(f"it lacks {', '.join(missing)}")
        signers = {id_: _signer_state(id_, files[f"{id_}.crt"], files[f"{id_}.key"]) for id_ in signer_ids(layout)}
        leaves = {
            leaf.id: KeyPair(files[f"{leaf.id}.crt"], files[f"{leaf.id}.key"])
            for leaf in LEAVES
            if f"{leaf.id}.crt" in files and f"{leaf.id}.key" in files
        }
        return cls(layout, signers, leaves)


@dataclass(frozen=True)
class HostedSetChange:
    id: str
    why: str
    is_new: bool = True
    """True: it was created; False: only its trust bundle changed."""


@dataclass(frozen=True)
class HostedSetRenewal:
    set: HostedSet
    changes: tuple[HostedSetChange, ...]
    """What was created, and why; empty if nothing changed."""


def authority_hash(certificate: Certificate) -> str:
    """Return the SHA-256 fingerprint of a CA certificate, as `openssl x509 -fingerprint -sha256` prints it."""
    return hashlib.sha256(certificate.encoded).hexdigest()


def renew(
    existing: HostedSet | None,
    names: ListenerNames,
    terms: CertificateSettings,
    now: datetime,
    backend: Backend,
    *,
    rotate: bool = False,
    retire: bool = False,
) -> HostedSetRenewal:
    """Create what is missing, invalid or due; everything else stays unchanged.

    With `rotate` every signer gets a successor; certificates stay, because the successor is not trusted yet. The next
    call signs them again. With `retire` previous signers are no longer trusted.

    Raises PkiError: a name is not valid in a certificate, or certificates changed in a call with `retire`.
    """
    profiles = {leaf.id: _profile(leaf, names, terms.key_type) for leaf in LEAVES}
    work = _Renewer(existing, terms, now, backend)
    for id_ in signer_ids(terms.signers):
        work.renew_signer(id_, rotate=rotate)
    for leaf in LEAVES:
        work.renew_leaf(leaf, profiles[leaf.id])
    if retire:
        work.retire()
    return work.result()


class _Renewer:
    def __init__(self, existing: HostedSet | None, terms: CertificateSettings, now: datetime, backend: Backend) -> None:
        self._existing = existing
        self._terms = terms
        self._now = now.replace(microsecond=0)
        self._backend = backend
        self._signers: dict[str, SignerState] = {}
        self._signing: dict[str, CertificateSigner] = {}
        """The signer for this call: the predecessor while the successor is not trusted yet."""
        self._leaves: dict[str, KeyPair] = {}
        self._changes: list[HostedSetChange] = []

    def renew_signer(self, id_: str, *, rotate: bool) -> None:
        old = self._predecessor(id_)
        is_same = self._existing is not None and id_ in self._existing.signers
        reason = self._signer_reason(old, is_same=is_same, rotate=rotate)
        if old is not None and not reason:
            self._signers[id_] = SignerState(old.pair, self._still_valid(old.bundle))
            self._signing[id_] = self._backend.load(old.pair)
            return
        made = self._create(id_)
        self._changes.append(HostedSetChange(id_, reason))
        kept = [] if old is None else [self._still_valid(self._predecessors_bundle(id_))]
        self._signers[id_] = SignerState(made.pair, join_bundle(made.pair.certificate, *filter(None, kept)))
        self._signing[id_] = made if old is None or not self._can_sign(old) else self._backend.load(old.pair)

    def renew_leaf(self, leaf: HostedLeaf, profile: Profile) -> None:
        id_ = signer_of(leaf.verified_by, self._terms.signers)
        signer = read_certificates(self._signing[id_].pair.certificate)[0]
        lifetime = min(self._terms.lifetime, signer.time_left(self._now))
        old = None if self._existing is None else self._existing.leaves.get(leaf.id)
        reason = leaf_reason(old, profile, signer, self._terms.lifetime, self._terms.renewal_share, self._now)
        if old is not None and not reason:
            self._leaves[leaf.id] = old
            return
        self._changes.append(HostedSetChange(leaf.id, reason))
        self._leaves[leaf.id] = self._signing[id_].issue(profile, self._now, lifetime)

    def retire(self) -> None:
        if self._changes:
            changed = ", ".join(change.id for change in self._changes)
            why = f"{changed} changed in this run; peers that still use the old ones would be refused"
            remedy = "run umbilical hosted render without --retire-signers, apply that everywhere, then retire"
            raise PkiError("UMB554", "old signers were not retired", why, remedy)
        for id_, state in self._signers.items():
            if len(read_certificates(state.bundle)) > 1:
                self._changes.append(HostedSetChange(id_, "previous signers are no longer trusted", is_new=False))
            self._signers[id_] = SignerState(state.pair, state.pair.certificate)

    def result(self) -> HostedSetRenewal:
        return HostedSetRenewal(HostedSet(self._terms.signers, self._signers, self._leaves), tuple(self._changes))

    def _trusts(self, id_: str) -> list[Trust]:
        return [trust for trust in Trust if signer_of(trust, self._terms.signers) == id_]

    def _predecessor(self, id_: str) -> SignerState | None:
        """Return the signer that this one replaces, also in a set of another layout."""
        if self._existing is None:
            return None
        return self._existing.signers.get(id_) or self._existing.signer_for(self._trusts(id_)[0])

    def _predecessors_bundle(self, id_: str) -> bytes:
        assert self._existing is not None
        return join_bundle(*(self._existing.trusted_by(trust) for trust in self._trusts(id_)))

    def _signer_reason(self, old: SignerState | None, *, is_same: bool, rotate: bool) -> str:
        if old is None:
            return "it did not exist"
        if not is_same:
            return f"the layout is {self._terms.signers.value} now"
        if rotate:
            return ROTATED
        return signer_reason(old.pair, self._terms.renewal_share, self._now)

    def _can_sign(self, old: SignerState) -> bool:
        """Return whether it can still sign in this call."""
        return signer_reason(old.pair, 0.0, self._now) == ""

    def _still_valid(self, bundle: bytes) -> bytes:
        return encode_blocks(one.encoded for one in read_certificates(bundle) if one.not_after > self._now)

    def _create(self, id_: str) -> CertificateSigner:
        terms = self._terms
        return self._backend.create(id_, self._now, terms.authority_lifetime, terms.key_type, (ORGANIZATION,))


def _profile(leaf: HostedLeaf, names: ListenerNames, key_type: KeyType) -> Profile:
    dns_names, addresses = split_names(usable_addresses(names.of(leaf)))
    return Profile(leaf.common_name, (leaf.usage,), (ORGANIZATION,), dns_names, addresses, key_type)


def _layout(files: Mapping[str, bytes]) -> Signers:
    try:
        return Signers(files.get(LAYOUT_FILE, b"").decode().strip())
    except ValueError:
        raise _unusable(f"its file {LAYOUT_FILE} does not contain separate or single") from None


def _signer_state(id_: str, bundle: bytes, key: bytes) -> SignerState:
    """Use the first certificate of a bundle as the current signer."""
    try:
        first = read_certificates(bundle)[0]
    except BundleError as error:
        raise _unusable(f"{id_}.crt: {error}") from None
    return SignerState(KeyPair(encode_blocks([first.encoded]), key), bundle)


def _unusable(why: str) -> PkiError:
    remedy = "restore it from a backup; with an empty directory everything is created anew"
    return PkiError("UMB553", "the certificate directory is incomplete or invalid", why, remedy)
