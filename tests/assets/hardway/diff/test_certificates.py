"""Certificates by field."""

from datetime import UTC, datetime, timedelta
from functools import cache

from umbilical.assets.hardway.diff.certificates import compare_certificates, described
from umbilical.assets.hardway.diff.part import Change
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair, join_bundle
from umbilical.pki.profiles import KeyType, server_profile

NOW = datetime(2026, 11, 16, tzinfo=UTC)
DAY = timedelta(days=1)


@cache
def signer(name: str = "signer") -> Authority:
    return Authority.create(name, NOW, 10 * DAY, KeyType.ECDSA_P256)


def leaf(*names: str, life: timedelta = DAY) -> KeyPair:
    return signer().issue(server_profile("server", names, KeyType.ECDSA_P256), NOW, life)


def test_the_same_certificate_has_no_differences() -> None:
    pair = leaf("a")
    assert compare_certificates(pair.certificate, pair.certificate) == ()


def test_names_and_times_are_compared() -> None:
    parts = compare_certificates(leaf("a").certificate, leaf("a", "10.0.0.1", life=2 * DAY).certificate)
    assert parts is not None
    assert (parts[0].place, parts[0].lines) == ("names", ("+10.0.0.1",))
    told = {part.place: (part.old or "", part.new or "") for part in parts}
    assert told["not after"] == ("2026-11-17T00:00:00Z", "2026-11-18T00:00:00Z")
    assert told["key"][0] != told["key"][1]
    assert "subject" not in told


def test_bundles_are_compared_by_subject() -> None:
    one, other = signer().pair.certificate, signer("other").pair.certificate
    parts = compare_certificates(one, join_bundle(one, other))
    assert parts is not None
    assert [(part.place, part.change) for part in parts] == [("certificate CN=other", Change.CREATED)]


def test_a_member_of_a_bundle_that_was_made_anew_is_told_by_field() -> None:
    again = Authority.create("other", NOW, DAY, KeyType.ECDSA_P256).pair.certificate
    one = signer().pair.certificate
    parts = compare_certificates(join_bundle(one, signer("other").pair.certificate), join_bundle(one, again))
    assert parts is not None
    (part,) = parts
    assert part.place == "certificate CN=other"
    assert {inner.place for inner in part.parts} >= {"not after", "key", "serial"}


def test_what_is_no_certificate_is_left_to_others() -> None:
    assert compare_certificates(b"nonsense", b"other nonsense") is None


def test_a_certificate_is_described_in_one_line() -> None:
    text = described(join_bundle(signer().pair.certificate, signer("other").pair.certificate))
    assert text.startswith("CN=signer, until 2026-11-26T00:00Z, key ECDSA P-256 ")
    assert text.endswith(" and 1 more")
