"""Why a certificate has to be made anew, one reason at a time."""

from datetime import timedelta

import pytest
from tests.support.hosted_certificates import NOW

from umbilical.pki.authority import Authority
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.hosted_judgement import leaf_reason, signer_reason
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile, Usage, client_profile, server_profile

EC = KeyType.ECDSA_P256
YEAR = timedelta(days=365)
SIGNER = Authority.create("signer", NOW, 10 * YEAR, EC)
PROFILE = Profile("agent", (Usage.CLIENT,), ("kubernetes",), key_type=EC)
PAIR = SIGNER.issue(PROFILE, NOW, YEAR)


def first(pair: KeyPair) -> Certificate:
    return read_certificates(pair.certificate)[0]


def reason(
    pair: KeyPair | None = PAIR, profile: Profile = PROFILE, *, signer: Authority = SIGNER, days: int = 0
) -> str:
    return leaf_reason(pair, profile, first(signer.pair), YEAR, 0.33, NOW + timedelta(days=days))


def test_a_good_certificate_has_no_reason() -> None:
    assert reason() == ""


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (client_profile("another", ("kubernetes",), EC), "its subject changed"),
        (client_profile("agent", ("others",), EC), "its subject changed"),
        (Profile("agent", (Usage.SERVER,), ("kubernetes",), key_type=EC), "its usages changed"),
        (
            Profile("agent", (Usage.CLIENT,), ("kubernetes",), ("a.example",), key_type=EC),
            "its names changed: a.example",
        ),
        (client_profile("agent", ("kubernetes",)), "another kind of key is asked for"),
    ],
)
def test_another_wish_is_told(profile: Profile, why: str) -> None:
    assert reason(profile=profile) == why


def test_the_same_names_in_another_order_are_the_same() -> None:
    one, other = (server_profile("server", names, EC) for names in (("a", "10.0.0.1"), ("10.0.0.1", "a")))
    assert reason(SIGNER.issue(one, NOW, YEAR), other) == ""


def test_a_signer_of_the_same_name_with_another_key_is_another_signer() -> None:
    twin = Authority.create("signer", NOW, 10 * YEAR, EC)
    assert reason(signer=twin) == "its signer changed"


@pytest.mark.parametrize(
    ("days", "why"), [(240, ""), (250, "days were left"), (366, "it expired at"), (-1, "it is not valid before")]
)
def test_time_is_told(days: int, why: str) -> None:
    found = reason(days=days)
    assert why in found
    assert bool(found) == bool(why)


def test_what_is_missing_or_cannot_be_read_is_told() -> None:
    assert reason(None) == "there was none"
    assert "no readable certificate" in reason(KeyPair(b"", PAIR.key))
    assert "no readable private key" in reason(KeyPair(PAIR.certificate, b"nothing"))
    assert "does not belong" in reason(KeyPair(PAIR.certificate, SIGNER.pair.key))


def test_a_leaf_is_no_signer() -> None:
    assert signer_reason(PAIR, 0.33, NOW) == "it may not sign"
    assert signer_reason(SIGNER.pair, 0.33, NOW) == ""
    assert "days were left" in signer_reason(SIGNER.pair, 0.33, NOW + 7 * YEAR)
