"""Issues the certificates of the table, and renews those that are missing, wrong or about to expire.

A renewed signer signs all its certificates again. No bundle keeps the old signer: these certificates are for a cluster
that is being installed, where all files are replaced together.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from umbilical.fault import PkiError
from umbilical.hardway.config.cluster import CertificateTerms
from umbilical.hardway.pki.certificate_set import HardwaySet
from umbilical.hardway.pki.row import CertificateRow, HardwayNames, Life, profile
from umbilical.hardway.pki.table import rows
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.control_plane_set import PkiKind, bare_key
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Backend, CertificateSigner, KeyType
from umbilical.pki.validation import (
    MISSING,
    is_signed_by,
    key_trouble,
    key_type_reason,
    pair_trouble,
    profile_reason,
    validity_reason,
)

ROTATED: Final = "rotation was requested"


@dataclass(frozen=True)
class CertificateChange:
    id: str
    why: str
    """Why it was issued."""


@dataclass(frozen=True)
class CertificateRenewal:
    set: HardwaySet
    changes: tuple[CertificateChange, ...]
    """Empty if nothing was renewed."""


def renew(
    names: HardwayNames,
    existing: Mapping[str, KeyPair],
    terms: CertificateTerms,
    now: datetime,
    backend: Backend = Authority,
    rotate: Collection[str] = (),
    *,
    renew_due: bool = True,
) -> CertificateRenewal:
    """Renew what is missing, wrong, or expires within the installation budget; keep everything else.

    Without `renew_due` no certificate is renewed for its age: a running cluster keeps what it was built with.

    Raises PkiError: `rotate` names an unknown row, the lifetime is too short, or the signer has expired.
    """
    wanted = tuple(rows(names.scope, (member.id for member in names.members)))
    _check(terms, rotate, {row.id for row in wanted})
    work = _Renewer(names, existing, terms, now, backend, renew_due=renew_due)
    for row in wanted:
        work.renew(row, is_rotated=row.id in rotate)
    return CertificateRenewal(HardwaySet(work.pairs), tuple(work.changes))


class _Renewer:
    def __init__(
        self,
        names: HardwayNames,
        existing: Mapping[str, KeyPair],
        terms: CertificateTerms,
        now: datetime,
        backend: Backend,
        *,
        renew_due: bool,
    ) -> None:
        self._names = names
        self._existing = existing
        self._terms = terms
        self._now = now.replace(microsecond=0)
        self._backend = backend
        self._renew_due = renew_due
        self._signers: dict[str, CertificateSigner] = {}
        """Loaded when they have to sign something: loading checks the key, which is slow."""
        self._certificates: dict[str, Certificate] = {}
        self.pairs: dict[str, KeyPair] = {}
        self.changes: list[CertificateChange] = []

    def renew(self, row: CertificateRow, *, is_rotated: bool) -> None:
        old = self._existing.get(row.id)
        reason = ROTATED if is_rotated and old is not None else self._reason(row, old)
        if old is None or reason:
            self.changes.append(CertificateChange(row.id, reason))
            self.pairs[row.id] = self._make(row)
        else:
            self.pairs[row.id] = old
        if row.kind is PkiKind.AUTHORITY:
            self._certificates[row.id] = read_certificates(self.pairs[row.id].certificate)[0]

    def _reason(self, row: CertificateRow, old: KeyPair | None) -> str:
        if old is None:
            return MISSING
        if row.kind is PkiKind.KEY:
            return key_trouble(old)
        return pair_trouble(old) or self._certificate_reason(row, read_certificates(old.certificate)[0])

    def _certificate_reason(self, row: CertificateRow, old: Certificate) -> str:
        if row.kind is PkiKind.AUTHORITY:
            reason = _signer_reason(row, old) or key_type_reason(old, self._terms.key_type)
        else:
            reason = profile_reason(old, profile(row, self._names, self._terms.key_type)) or self._signer_changed(
                row, old
            )
        if reason or not self._renew_due:
            return reason
        return validity_reason(old, self._now) or self._time_reason(old)

    def _signer_changed(self, row: CertificateRow, old: Certificate) -> str:
        return "" if is_signed_by(old, self._certificates[row.signer]) else "its signer changed"

    def _time_reason(self, old: Certificate) -> str:
        left = old.time_left(self._now)
        if left > timedelta(hours=self._terms.budget_hours):
            return ""
        return f"only {left // timedelta(hours=1)} h were left, an installation may take {self._terms.budget_hours} h"

    def _make(self, row: CertificateRow) -> KeyPair:
        if row.kind is PkiKind.KEY:
            # Always RSA: OpenShift's operators do not read ECDSA keys for tokens, and other readers need not.
            return bare_key(self._backend.create(row.id, self._now, timedelta(days=1), KeyType.RSA_2048))
        if row.kind is PkiKind.AUTHORITY:
            life = self._life(row.life)
            self._signers[row.id] = self._backend.create(row.common_name, self._now, life, self._terms.key_type)
            return self._signers[row.id].pair
        # A certificate cannot be verified after its signer has expired.
        life = min(self._life(row.life), self._certificates[row.signer].time_left(self._now))
        if life <= timedelta():
            why = f"its signer {row.signer} expired at {self._certificates[row.signer].not_after:%Y-%m-%d %H:%M} UTC"
            raise PkiError("UMB712", f"{row.id} was not issued", why, f"umbilical stage rotate {row.signer}")
        return self._signer(row.signer).issue(profile(row, self._names, self._terms.key_type), self._now, life)

    def _signer(self, id_: str) -> CertificateSigner:
        if id_ not in self._signers:
            self._signers[id_] = self._backend.load(self.pairs[id_])
        return self._signers[id_]

    def _life(self, life: Life) -> timedelta:
        return timedelta(hours=self._terms.short_hours) if life is Life.SHORT else timedelta(days=life.value)


def _signer_reason(row: CertificateRow, old: Certificate) -> str:
    if not old.is_authority:
        return "it may not sign"
    if old.subject != (("CN", row.common_name),):
        return "its subject changed"
    return "" if old.is_self_issued else "it is not self-signed, and OpenSSL does not trust an intermediate alone"


def _check(terms: CertificateTerms, rotate: Collection[str], known: Collection[str]) -> None:
    strange = sorted(set(rotate) - set(known))
    if strange:
        remedy = "list the names: umbilical explain, or ls artifacts/tls"
        what = f"{', '.join(strange)} was not rotated"
        raise PkiError("UMB710", what, "no certificate or key has this name", remedy)
    if terms.short_hours <= terms.budget_hours:
        why = f"certificates.shortHours is {terms.short_hours}, certificates.budgetHours is {terms.budget_hours}"
        remedy = "raise certificates.shortHours in cluster.yaml"
        raise PkiError("UMB711", "short-lived certificates would expire during the installation", why, remedy)
