"""Validation of chains and certificates, compared with OpenSSL."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.support.hardway_pki import Forgery
from tests.support.hosted_certificates import NOW
from tests.support.tunnel_directories import ADDRESS, make_files, new_authority, now, openssl_verifies

from umbilical.pki.authority import Authority, decode_key
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.control_plane_set import bare_key
from umbilical.pki.directory import PairFiles, belongs, check_client_chain, check_server_chain, connect
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, Profile, Usage, client_profile
from umbilical.pki.validation import (
    authority_trouble,
    chain_trouble,
    identifier_trouble,
    is_signed_by,
    key_trouble,
    key_type_reason,
    pair_trouble,
    profile_reason,
    validity_reason,
)

THEN: Final = datetime.now(UTC).replace(microsecond=0)
DAY: Final = timedelta(days=1)
PURPOSES: Final = {Usage.SERVER: "sslserver", Usage.CLIENT: "sslclient"}


def authority(name: str, signer: KeyPair | None = None, path_length: int | None = None) -> KeyPair:
    return Forgery(name, is_authority=True, path_length=path_length).signed_by(signer, THEN)


def leaf(signer: KeyPair, **odd: Any) -> KeyPair:
    return replace(Forgery("leaf", usages=(Usage.SERVER,), dns_names=("a.example",)), **odd).signed_by(signer, THEN)


ROOT: Final = authority("root")
TWIN: Final = authority("root")
BETWEEN: Final = authority("between", ROOT)
SHORT_ROOT: Final = authority("short", path_length=0)
BELOW_SHORT: Final = authority("below", SHORT_ROOT)
UNIDENTIFIED: Final = Forgery("root", is_authority=True, without=(x509.SubjectKeyIdentifier,)).signed_by(None, THEN)


@dataclass(frozen=True)
class Case:
    leaf: KeyPair
    trusted: tuple[KeyPair, ...]
    why: str = ""
    """Empty: it verifies."""
    purpose: Usage = Usage.SERVER


CASES: Final = {
    "one link": Case(leaf(ROOT), (ROOT,)),
    "two links": Case(leaf(BETWEEN), (BETWEEN, ROOT)),
    "two links in the other order": Case(leaf(BETWEEN), (ROOT, BETWEEN)),
    "one among others": Case(leaf(ROOT), (TWIN, SHORT_ROOT, ROOT)),
    "a short path that is long enough": Case(leaf(SHORT_ROOT), (SHORT_ROOT,)),
    "an intermediate alone": Case(leaf(BETWEEN), (BETWEEN,), "unable to get issuer certificate: root"),
    "a stranger": Case(leaf(ROOT), (BETWEEN, SHORT_ROOT), "unable to get issuer certificate: root"),
    "a twin by name": Case(leaf(ROOT), (TWIN,), "unable to get issuer certificate: root"),
    "another purpose": Case(leaf(ROOT), (ROOT,), "it lacks the extended key usage clientAuth", Usage.CLIENT),
    "a path that is too long": Case(leaf(BELOW_SHORT), (BELOW_SHORT, SHORT_ROOT), "path length constraint exceeded"),
    "a leaf that signed": Case(leaf(leaf(ROOT)), (leaf(ROOT),), "unable to get issuer certificate"),
    "an end that is past": Case(
        Forgery("leaf", usages=(Usage.SERVER,)).signed_by(ROOT, THEN - 3 * DAY), (ROOT,), "leaf: it expired"
    ),
    "a beginning that is to come": Case(
        Forgery("leaf", usages=(Usage.SERVER,)).signed_by(ROOT, THEN + DAY), (ROOT,), "leaf: it is not valid before"
    ),
    "no identifier of its own": Case(leaf(ROOT, without=(x509.SubjectKeyIdentifier,)), (ROOT,)),
    "an authority without an identifier": Case(
        leaf(UNIDENTIFIED, without=(x509.AuthorityKeyIdentifier,)), (UNIDENTIFIED,), "it has no"
    ),
    "no identifier of its signer": Case(
        leaf(ROOT, without=(x509.AuthorityKeyIdentifier,)), (ROOT,), "it has no authorityKeyIdentifier"
    ),
}


@pytest.mark.real("openssl")
def test_a_chain_is_verified_as_openssl_does(tmp_path: Path) -> None:
    for case in CASES.values():
        bundle, certificate = tmp_path / "bundle.crt", tmp_path / "leaf.crt"
        bundle.write_bytes(b"".join(one.certificate for one in case.trusted))
        certificate.write_bytes(case.leaf.certificate)
        trusted = read_certificates(bundle.read_bytes())
        found = chain_trouble(read_certificates(case.leaf.certificate)[0], trusted, case.purpose, THEN)
        assert case.why in found
        assert bool(found) == bool(case.why)
        assert openssl_verifies(bundle, certificate, "-purpose", PURPOSES[case.purpose]) == (not found)


def test_a_root_is_trusted_in_the_bundle_alone_and_a_leaf_that_signed_others_is_no_authority() -> None:
    root, twin = (read_certificates(one.certificate)[0] for one in (ROOT, TWIN))
    assert chain_trouble(root, [twin, root], Usage.SERVER, THEN) == ""
    assert "is not in the bundle" in chain_trouble(root, [twin], Usage.SERVER, THEN)
    signing = Forgery("leaf").signed_by(ROOT, THEN)
    signed = Forgery("more", usages=(Usage.CLIENT,)).signed_by(signing, THEN)
    trusted = [read_certificates(one.certificate)[0] for one in (signing, ROOT)]
    found = chain_trouble(read_certificates(signed.certificate)[0], trusted, Usage.CLIENT, THEN)
    assert found == "leaf: it may not sign certificates"


def test_a_chain_that_is_longer_than_anybodys_is_not_followed() -> None:
    links = [ROOT]
    for number in range(12):
        links.append(authority(f"link-{number}", links[-1]))
    trusted = [read_certificates(one.certificate)[0] for one in links]
    end = read_certificates(leaf(links[-1]).certificate)[0]
    assert "unable to get issuer certificate" in chain_trouble(end, trusted, Usage.SERVER, THEN)


def test_what_an_authority_lacks_is_told() -> None:
    for odd, why in (
        ({"is_authority": False}, "it may not sign certificates"),
        ({"softened": (x509.BasicConstraints,)}, "its basicConstraints are not critical"),
        ({"without": (x509.KeyUsage,)}, "its keyUsage lacks keyCertSign"),
        ({}, ""),
    ):
        forgery = replace(Forgery("x", is_authority=True), **odd)
        assert authority_trouble(read_certificates(forgery.signed_by(None, THEN).certificate)[0]) == why


def test_a_missing_identifier_is_told_and_a_root_needs_none_of_a_signer() -> None:
    assert identifier_trouble(read_certificates(ROOT.certificate)[0]) == ""
    assert identifier_trouble(read_certificates(UNIDENTIFIED.certificate)[0]) == "it has no subjectKeyIdentifier"
    nameless = leaf(ROOT, without=(x509.AuthorityKeyIdentifier,))
    assert identifier_trouble(read_certificates(nameless.certificate)[0]) == "it has no authorityKeyIdentifier"


EC = KeyType.ECDSA_P256
ONE_DAY = timedelta(days=1)
SIGNER = Authority.create("signer", NOW, 10 * ONE_DAY, EC)
PROFILE = Profile("agent", (Usage.CLIENT,), ("kubernetes",), key_type=EC)
PAIR = SIGNER.issue(PROFILE, NOW, ONE_DAY)


def first(pair: KeyPair) -> Certificate:
    return read_certificates(pair.certificate)[0]


def test_signatures_pairs_dates_and_profiles_are_checked() -> None:
    twin = Authority.create("signer", NOW, 10 * ONE_DAY, EC)
    assert not is_signed_by(first(PAIR), first(twin.pair))
    assert is_signed_by(first(PAIR), first(SIGNER.pair))
    assert pair_trouble(PAIR) == ""
    assert "does not belong" in pair_trouble(KeyPair(PAIR.certificate, SIGNER.pair.key))
    assert "no readable private key" in pair_trouble(KeyPair(PAIR.certificate, PAIR.certificate))
    assert validity_reason(first(PAIR), NOW) == ""
    assert "it expired at" in validity_reason(first(PAIR), NOW + ONE_DAY)
    assert "it is not valid before" in validity_reason(first(PAIR), NOW - ONE_DAY)
    assert profile_reason(first(PAIR), PROFILE) == ""
    assert profile_reason(first(PAIR), client_profile("agent", (), EC)) == "its subject changed"
    assert profile_reason(first(PAIR), client_profile("agent", ("kubernetes",))) == "another key type is wanted"
    assert key_type_reason(first(PAIR), EC) == ""


def test_a_bare_key_is_rsa_and_lies_beside_its_own_public_half() -> None:
    one, other = (bare_key(Authority.create(name, NOW, ONE_DAY)) for name in ("one", "other"))
    assert key_trouble(one) == ""
    assert key_trouble(KeyPair(other.certificate, one.key)) == "the public key does not belong to the private key"
    assert key_trouble(bare_key(SIGNER)) == "another key type is wanted"
    assert "no readable public key" in key_trouble(KeyPair(PAIR.certificate, one.key))
    assert "no readable private key" in key_trouble(KeyPair(one.certificate, b""))


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def pair(folder: Path, name: str) -> PairFiles:
    return PairFiles(folder / f"{name}.crt", folder / f"{name}.key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "good", make_files(new_authority(), addresses=(ADDRESS, "::1", "api.example.com")))


def test_a_whole_set_is_accepted(folder: Path) -> None:
    ca, server, agent = folder / "ca.crt", pair(folder, "server"), pair(folder, "agent")
    assert belongs(server) is None
    assert check_server_chain(server, ca) is None
    assert check_client_chain(agent, ca) is None
    assert [connect(server, agent, ca, address) for address in (ADDRESS, "::1", "api.example.com")] == [None] * 3


def test_a_key_that_is_anothers_encrypted_or_missing_is_refused(folder: Path) -> None:
    refusal = belongs(PairFiles(folder / "server.crt", folder / "agent.key"))
    assert refusal is not None
    assert "mismatch" in refusal.why
    key = decode_key((folder / "server.key").read_bytes())
    encryption = serialization.BestAvailableEncryption(b"x")
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    (folder / "server.key").write_bytes(locked)
    assert belongs(pair(folder, "server")) is not None
    (folder / "server.key").unlink()
    refusal = belongs(pair(folder, "server"))
    assert refusal is not None
    assert "No such file" in refusal.why


def test_another_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    stranger = write(tmp_path / "stranger", make_files(new_authority())) / "ca.crt"
    for refusal in (
        check_server_chain(pair(folder, "server"), stranger),
        check_client_chain(pair(folder, "agent"), stranger),
        connect(pair(folder, "server"), pair(folder, "agent"), stranger, ADDRESS),
    ):
        assert refusal is not None
        assert not refusal.is_purpose
        # Both signers bear the same name, so it is the identifier or the signature that gives it away.
        assert any(word in refusal.why for word in ("issuer", "signature", "self-signed"))


def test_a_wrong_purpose_is_told_as_such_and_a_wrong_address_refused(folder: Path) -> None:
    ca = folder / "ca.crt"
    refusals = [check_server_chain(pair(folder, "agent"), ca), check_client_chain(pair(folder, "server"), ca)]
    assert [refusal is not None and refusal.is_purpose for refusal in refusals] == [True, True]
    for address in ("10.0.0.8", "::2", "other.example.com"):
        refusal = connect(pair(folder, "server"), pair(folder, "agent"), folder / "ca.crt", address)
        assert refusal is not None
        assert "mismatch" in refusal.why


def test_time_counts_for_a_connection_and_not_for_the_chain(tmp_path: Path) -> None:
    then = now() - timedelta(hours=30)
    authority = new_authority(then, timedelta(hours=40))
    folder = write(tmp_path / "old", make_files(authority, then, timedelta(hours=1)))
    ca, server, agent = folder / "ca.crt", pair(folder, "server"), pair(folder, "agent")
    assert check_server_chain(server, ca) is None
    assert check_client_chain(agent, ca) is None
    refusal = connect(server, agent, ca, ADDRESS)
    assert refusal is not None
    assert "expired" in refusal.why


def test_an_empty_authority_file_is_refused(folder: Path) -> None:
    (folder / "ca.crt").write_bytes(b"")
    for walk in (check_server_chain, check_client_chain):
        assert walk(pair(folder, "server"), folder / "ca.crt") is not None
