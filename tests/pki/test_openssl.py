"""What OpenSSL says of what we sign."""

import ipaddress
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.hardway_pki import Forgery
from tests.support.hosted_certificates import hosted_set
from tests.support.tunnel_directories import openssl_verifies, run_openssl

from umbilical.fault import PkiError
from umbilical.hosted.pki.table import LEAVES, HostedLeaf, Signers, Trust
from umbilical.pki.authority import Authority, decode_certificates, decode_key
from umbilical.pki.certificate import read_certificates
from umbilical.pki.openssl import Openssl
from umbilical.pki.pem import BundleError, KeyPair, holds_key
from umbilical.pki.profiles import Backend, CertificateSigner, KeyType, Profile, Usage, client_profile, server_profile

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
HOSTS = ["api.example.com", "10.0.0.9", "2001:db8::9"]
pytestmark = pytest.mark.real("openssl")


class Witness:
    """Runs the real program, and remembers what could be seen of it from outside."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.commands: list[Sequence[str]] = []
        self.seen_files: dict[str, bytes] = {}

    def __call__(self, command: Sequence[str], stdin: bytes) -> bytes:
        self.commands.append(command)
        printed = run_openssl(command, stdin)
        self.seen_files |= {path.name: path.read_bytes() for path in self.scratch.iterdir()}
        return printed


@pytest.fixture
def openssl(tmp_path: Path) -> Openssl:
    return Openssl(run_openssl, tmp_path)


def certificate(pair: KeyPair) -> x509.Certificate:
    return decode_certificates(pair.certificate)[0]


def profile_of_extensions(pair: KeyPair) -> dict[str, object]:
    """Everything that a certificate says, but for what is drawn: identifiers are told by whom they name."""
    found: dict[str, object] = {}
    for extension in certificate(pair).extensions:
        value: object = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier | x509.AuthorityKeyIdentifier):
            value = type(value)
        found[extension.oid.dotted_string] = (extension.critical, value)
    return found


def both_issue(openssl: Openssl, profile: Profile, key_type: KeyType) -> list[tuple[CertificateSigner, KeyPair]]:
    backends: list[Backend] = [openssl, Authority]
    signers = [backend.create("konnectivity-signer", NOW, DAY, key_type, ["openshift"]) for backend in backends]
    return [(signer, signer.issue(profile, NOW, DAY)) for signer in signers]


@pytest.mark.parametrize("key_type", list(KeyType))
@pytest.mark.parametrize("usage", ["server", "client"])
def test_both_back_ends_give_the_same_profile(openssl: Openssl, usage: str, key_type: KeyType) -> None:
    server = server_profile("konnectivity-server", HOSTS, key_type)
    profile = server if usage == "server" else client_profile("agent", ["a", "b"], key_type)
    (ours, our_leaf), (theirs, their_leaf) = both_issue(openssl, profile, key_type)
    for first, second in ((ours.pair, theirs.pair), (our_leaf, their_leaf)):
        left, right = certificate(first), certificate(second)
        assert profile_of_extensions(first) == profile_of_extensions(second)
        assert left.subject.public_bytes() == right.subject.public_bytes()
        assert left.issuer.public_bytes() == right.issuer.public_bytes()
        assert left.signature_algorithm_oid == right.signature_algorithm_oid
        assert left.not_valid_before_utc == right.not_valid_before_utc
        assert left.not_valid_after_utc == right.not_valid_after_utc
        assert type(left.public_key()) is type(right.public_key())
        assert left.version == right.version == x509.Version.v3
        assert decode_key(first.key).public_key() == left.public_key()
        assert first.key.startswith(b"-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize("key_type", list(KeyType))
def test_the_real_verifier_accepts_purpose_and_names_of_both(
    openssl: Openssl, key_type: KeyType, tmp_path: Path
) -> None:
    profile = server_profile("konnectivity-server", HOSTS, key_type)
    for number, (signer, leaf) in enumerate(both_issue(openssl, profile, key_type)):
        agent = signer.issue(client_profile("konnectivity-agent", key_type=key_type), NOW, DAY)
        ca, server_file, agent_file = (tmp_path / f"{number}.{name}" for name in ("ca", "server", "agent"))
        ca.write_bytes(signer.pair.certificate)
        server_file.write_bytes(leaf.certificate)
        agent_file.write_bytes(agent.certificate)
        for name in (("-verify_hostname", HOSTS[0]), ("-verify_ip", HOSTS[1]), ("-verify_ip", HOSTS[2])):
            assert openssl_verifies(ca, server_file, "-purpose", "sslserver", *name)
        assert openssl_verifies(ca, agent_file, "-purpose", "sslclient")
        assert not openssl_verifies(ca, server_file, "-purpose", "sslclient")
        assert not openssl_verifies(ca, agent_file, "-purpose", "sslserver")
        assert not openssl_verifies(ca, server_file, "-verify_ip", "10.0.0.8")


def test_keys_are_in_no_argument_and_in_no_file(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    authority = Openssl(witness, tmp_path).create("s", NOW, DAY)
    leaf = authority.issue(server_profile("x", HOSTS), NOW, DAY)
    Openssl(witness, tmp_path).load(authority.pair)
    secrets = [line for pair in (authority.pair, leaf) for line in pair.key.decode().splitlines()[1:-1]]
    seen = " ".join(part for command in witness.commands for part in command)
    assert len(witness.commands) == 7
    assert not any(secret in seen for secret in secrets)
    assert "request.csr" in witness.seen_files
    assert not any(holds_key(content) for content in witness.seen_files.values())


def test_either_back_end_takes_up_what_the_other_made(openssl: Openssl) -> None:
    backends: list[tuple[Backend, Backend]] = [(openssl, Authority), (Authority, openssl)]
    for key_type in KeyType:
        for maker, other in backends:
            made = maker.create("one", NOW, DAY, key_type).pair
            leaf = other.load(made).issue(client_profile("c"), NOW, DAY)
            certificate(leaf).verify_directly_issued_by(certificate(made))


def test_of_a_bundle_the_certificate_of_the_key_signs(openssl: Openssl) -> None:
    old, new = (Authority.create(name, NOW, DAY, KeyType.ECDSA_P256) for name in ("old", "new"))
    bundle = KeyPair(new.certificate_pem + old.certificate_pem, old.pair.key)
    for loaded in (openssl.load(bundle), Authority.load(bundle)):
        assert loaded.pair.certificate == old.certificate_pem
        issuer = certificate(loaded.issue(client_profile("c", key_type=KeyType.ECDSA_P256), NOW, DAY)).issuer
        assert issuer.rfc4514_string() == "CN=old"


def test_an_issuer_without_an_identifier_gets_the_usual_one(openssl: Openssl) -> None:
    bare = Forgery("bare", is_authority=True, without=(x509.SubjectKeyIdentifier,)).signed_by(None, NOW)
    leaf = certificate(openssl.load(bare).issue(client_profile("c"), NOW, DAY))
    found = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert found == x509.AuthorityKeyIdentifier.from_issuer_public_key(certificate(bare).public_key())  # type: ignore[arg-type]


def test_what_is_no_authority_is_refused_as_by_the_library(tmp_path: Path) -> None:
    def run(command: Sequence[str], stdin: bytes) -> bytes:
        try:
            return run_openssl(command, stdin)
        except AssertionError as error:
            raise PkiError("UMB154", "openssl failed", str(error), "") from None

    openssl = Openssl(run, tmp_path)
    authority = Authority.create("a", NOW, DAY, KeyType.ECDSA_P256)
    other = Authority.create("b", NOW, DAY, KeyType.ECDSA_P256)
    leaf = authority.issue(client_profile("c", key_type=KeyType.ECDSA_P256), NOW, DAY)
    for pair, why in (
        (KeyPair(authority.certificate_pem, other.pair.key), "does not belong"),
        (leaf, "may not sign"),
        (KeyPair(authority.certificate_pem, b"nonsense"), "no readable private key"),
        (KeyPair(b"nonsense", authority.pair.key), "no readable certificate"),
        (KeyPair(authority.certificate_pem, _locked(authority.pair.key)), "no readable private key"),
    ):
        with pytest.raises(BundleError, match=why):
            openssl.load(pair)


def _locked(pem: bytes) -> bytes:
    return decode_key(pem).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x17F), min_size=1, max_size=30))
def test_any_name_comes_out_as_it_went_in_or_is_refused(openssl: Openssl, name: str) -> None:
    if not name.isprintable() or name != name.strip():
        with pytest.raises(PkiError, match="UMB150"):
            openssl.create(name, NOW, DAY, KeyType.ECDSA_P256)
        return
    pair = openssl.create(name, NOW, DAY, KeyType.ECDSA_P256).pair
    assert certificate(pair).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == name


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), min_size=1, max_size=6, unique=True),
    st.lists(st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z]{1,5}){0,3}", fullmatch=True), max_size=4),
)
def test_any_list_of_addresses_is_the_same_in_both(openssl: Openssl, addresses: list[str], names: list[str]) -> None:
    profile = server_profile("s", [*names, *addresses], KeyType.ECDSA_P256)
    found = []
    for _, leaf in both_issue(openssl, profile, KeyType.ECDSA_P256):
        extensions = certificate(leaf).extensions
        found.append(extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    assert found[0] == found[1]
    assert found[0].get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(text) for text in addresses]


def test_a_program_that_answers_nonsense_is_told(tmp_path: Path) -> None:
    with pytest.raises(PkiError, match="openssl ca printed no certificate"):
        Openssl(lambda command, stdin: b"hello", tmp_path).create("s", NOW, DAY)


@pytest.mark.parametrize("key_type", KeyType)
def test_a_user_name_past_the_standards_length_is_written_by_both(
    openssl: Openssl, tmp_path: Path, key_type: KeyType
) -> None:
    name = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    backends: list[Backend] = [Authority, openssl]
    for number, backend in enumerate(backends):
        signer = backend.create("signer", NOW, DAY, key_type)
        made = signer.issue(client_profile(name, ("system:serviceaccounts",), key_type), NOW, DAY)
        found = read_certificates(made.certificate)[0]
        assert found.common_name == name
        signer_file, leaf_file = tmp_path / f"{number}-signer.crt", tmp_path / f"{number}-leaf.crt"
        signer_file.write_bytes(signer.pair.certificate)
        leaf_file.write_bytes(made.certificate)
        assert openssl_verifies(signer_file, leaf_file, "-purpose", "sslclient")


PURPOSES = {
    Trust.CLIENTS: "sslserver",
    Trust.AGENTS: "sslserver",
    Trust.FRONTEND: "sslclient",
    Trust.AGENT_LISTENER: "sslclient",
}


def passes(folder: Path, leaf: HostedLeaf, trust: Trust, layout: Signers = Signers.SEPARATE) -> bool:
    made = hosted_set(layout)
    (folder / "ca.crt").write_bytes(made.trusted_by(trust))
    (folder / "leaf.crt").write_bytes(made.leaves[leaf.id].certificate)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", "-purpose", PURPOSES[trust], "leaf.crt"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


def test_a_certificate_passes_where_it_is_meant_to_be_shown_and_nowhere_else(tmp_path: Path) -> None:
    for trust in list(Trust):
        for leaf in LEAVES:
            assert passes(tmp_path, leaf, trust) is (leaf.verified_by is trust)


def test_a_single_signer_keeps_servers_and_clients_apart_by_their_usage_alone(tmp_path: Path) -> None:
    for leaf in LEAVES:
        for trust in Trust:
            is_right_side = (leaf.usage is Usage.SERVER) == (PURPOSES[trust] == "sslserver")
            assert passes(tmp_path, leaf, trust, Signers.SINGLE) is is_right_side
