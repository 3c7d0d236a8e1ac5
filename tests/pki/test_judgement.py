"""Whether a certificate that is there is still the one that is wanted."""

from datetime import timedelta

from tests.support.hosted_certificates import NOW

from umbilical.pki.authority import Authority
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.control_plane_set import bare_key
from umbilical.pki.judgement import (
    is_signed_by,
    key_trouble,
    key_type_reason,
    pair_trouble,
    profile_reason,
    validity_reason,
)
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile, Usage, client_profile

EC = KeyType.ECDSA_P256
DAY = timedelta(days=1)
SIGNER = Authority.create("signer", NOW, 10 * DAY, EC)
PROFILE = Profile("agent", (Usage.CLIENT,), ("kubernetes",), key_type=EC)
PAIR = SIGNER.issue(PROFILE, NOW, DAY)


def first(pair: KeyPair) -> Certificate:
    return read_certificates(pair.certificate)[0]


def test_a_signature_tells_twins_apart() -> None:
    twin = Authority.create("signer", NOW, 10 * DAY, EC)
    assert not is_signed_by(first(PAIR), first(twin.pair))
    assert is_signed_by(first(PAIR), first(SIGNER.pair))


def test_a_pair_must_be_readable_and_belong_together() -> None:
    assert pair_trouble(PAIR) == ""
    assert "does not belong" in pair_trouble(KeyPair(PAIR.certificate, SIGNER.pair.key))
    assert "no readable private key" in pair_trouble(KeyPair(PAIR.certificate, PAIR.certificate))


def test_the_dates_are_told() -> None:
    assert validity_reason(first(PAIR), NOW) == ""
    assert "it expired at" in validity_reason(first(PAIR), NOW + DAY)
    assert "it is not valid before" in validity_reason(first(PAIR), NOW - DAY)


def test_another_wish_is_told() -> None:
    assert profile_reason(first(PAIR), PROFILE) == ""
    assert profile_reason(first(PAIR), client_profile("agent", (), EC)) == "its subject changed"
    assert profile_reason(first(PAIR), client_profile("agent", ("kubernetes",))) == "another kind of key is asked for"
    assert key_type_reason(first(PAIR), EC) == ""


def test_a_bare_key_is_rsa_and_lies_beside_its_own_public_half() -> None:
    one, other = (bare_key(Authority.create(name, NOW, DAY)) for name in ("one", "other"))
    assert key_trouble(one) == ""
    assert key_trouble(KeyPair(other.certificate, one.key)) == "the public key is another key's"
    assert key_trouble(bare_key(SIGNER)) == "another kind of key is asked for"
    assert "no readable public key" in key_trouble(KeyPair(PAIR.certificate, one.key))
    assert "no readable private key" in key_trouble(KeyPair(one.certificate, b""))
