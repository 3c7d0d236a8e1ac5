"""Renews the certificates of one tunnel: issues what is missing, wrong or due, and keeps everything else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Backend, KeyType
from umbilical.pki.tunnel_set import TunnelAuthority, TunnelLeaf, TunnelRole, create_authority, load_authority
from umbilical.pki.validation import leaf_reason

RENEWAL_SHARE: Final = 1 / 3
"""A certificate is due when less than this share of its lifetime is left, as with cert-manager."""
AUTHORITY_LIFETIME: Final = timedelta(days=3650)
"""A new CA must reach servers and agents together with new certificates, so it is made once."""


@dataclass(frozen=True)
class TunnelPairs:
    """The CA and the certificates, each with its key."""

    authority: KeyPair | None = None
    leaves: Mapping[TunnelRole, KeyPair] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class TunnelRenewal:
    authority: TunnelAuthority
    has_new_authority: bool
    issued: Mapping[TunnelRole, KeyPair] = field(repr=False)
    reasons: Mapping[TunnelRole, str]
    """Why each of them was issued."""


def renew_tunnel(
    existing: TunnelPairs,
    leaves: Sequence[TunnelLeaf],
    lifetime: timedelta,
    key_type: KeyType,
    now: datetime,
    backend: Backend,
) -> TunnelRenewal:
    """Issue what is missing, wrong or due. Raises PkiError: the existing CA cannot sign."""
    if existing.authority is None:
        authority = create_authority(backend, now, AUTHORITY_LIFETIME, key_type)
    else:
        authority = load_authority(backend, existing.authority, now)

    def reason(leaf: TunnelLeaf) -> str:
        pair, signer = existing.leaves.get(leaf.role), authority.certificate
        return leaf_reason(pair, leaf.profile, signer, lifetime, RENEWAL_SHARE, now)

    due = {leaf.role: why for leaf in leaves if (why := reason(leaf))}
    issued = {leaf.role: authority.issue(leaf, now, lifetime) for leaf in leaves if leaf.role in due}
    return TunnelRenewal(authority, existing.authority is None, issued, due)
