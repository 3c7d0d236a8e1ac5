"""Which certificates of a tunnel are issued again, and which stay."""

from datetime import UTC, datetime, timedelta

import pytest

from umbilical.fault import PkiError
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_renewal import AUTHORITY_LIFETIME, TunnelPairs, TunnelRenewal, renew_tunnel
from umbilical.pki.tunnel_set import TunnelLeaf, TunnelRole

NOW = datetime.now(UTC)
EC = KeyType.ECDSA_P256
YEAR = timedelta(days=365)
ADDRESSES = ("tunnel.example", "10.0.0.9")


def renewal(
    existing: TunnelPairs, now: datetime = NOW, addresses: tuple[str, ...] = ADDRESSES, lifetime: timedelta = YEAR
) -> TunnelRenewal:
    leaves = [TunnelLeaf(role, EC, addresses if role is TunnelRole.SERVER else ()) for role in TunnelRole]
    return renew_tunnel(existing, leaves, lifetime, EC, now, Authority)


def pairs(of: TunnelRenewal) -> TunnelPairs:
    return TunnelPairs(of.authority.signer.pair, of.issued)


FIRST = renewal(TunnelPairs())


def test_the_first_time_everything_is_issued_and_the_ca_lives_longest() -> None:
    assert FIRST.has_new_authority
    assert set(FIRST.issued) == set(TunnelRole)
    assert FIRST.authority.certificate.time_left(NOW) > AUTHORITY_LIFETIME - timedelta(seconds=2)
    server = read_certificates(FIRST.issued[TunnelRole.SERVER].certificate)[0]
    assert set(server.names) == set(ADDRESSES)
    assert YEAR - timedelta(seconds=2) < server.time_left(NOW) <= YEAR


def test_nothing_is_issued_while_two_thirds_of_the_lifetime_are_not_over() -> None:
    again = renewal(pairs(FIRST), NOW + YEAR * 0.66)
    assert (again.has_new_authority, again.issued, again.reasons) == (False, {}, {})


def test_in_the_last_third_of_the_lifetime_every_certificate_is_issued_again_by_the_same_ca() -> None:
    again = renewal(pairs(FIRST), NOW + YEAR * 0.67)
    assert not again.has_new_authority
    assert again.authority.bundle == FIRST.authority.bundle
    assert set(again.reasons.values()) == {"only 120 of 365 days are left"}


def test_another_address_renews_the_server_alone_and_the_reason_names_it() -> None:
    again = renewal(pairs(FIRST), addresses=(*ADDRESSES, "10.0.0.10"))
    assert again.reasons == {TunnelRole.SERVER: "its names changed: 10.0.0.10"}


def test_another_lifetime_renews_everything() -> None:
    assert set(renewal(pairs(FIRST), lifetime=YEAR / 5).reasons.values()) == {"its lifetime is 365 days, not 73"}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (None, "there was none"),
        (KeyPair(b"nothing", b"nothing"), "no readable certificate"),
        (renewal(TunnelPairs()).issued[TunnelRole.AGENT], "its signer changed"),
        (
            KeyPair(FIRST.issued[TunnelRole.AGENT].certificate, FIRST.issued[TunnelRole.CLIENT].key),
            "the private key does not belong to the certificate",
        ),
    ],
)
def test_a_certificate_that_cannot_be_used_is_issued_again(pair: KeyPair | None, reason: str) -> None:
    leaves = dict(FIRST.issued)
    del leaves[TunnelRole.AGENT]
    if pair is not None:
        leaves[TunnelRole.AGENT] = pair
    again = renewal(TunnelPairs(FIRST.authority.signer.pair, leaves))
    assert set(again.reasons) == {TunnelRole.AGENT}
    assert again.reasons[TunnelRole.AGENT].startswith(reason)


def test_a_ca_that_cannot_sign_is_reported_and_nothing_is_issued() -> None:
    other = renewal(TunnelPairs()).authority.signer.pair
    mixed = KeyPair(FIRST.authority.signer.pair.certificate, other.key)
    with pytest.raises(PkiError, match="UMB151"):
        renewal(TunnelPairs(mixed, FIRST.issued))
