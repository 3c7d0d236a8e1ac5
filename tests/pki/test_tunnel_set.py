"""The certificates of one tunnel."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from umbilical.fault import PkiError
from umbilical.pki.authority import Authority, decode_key, encode_pair
from umbilical.pki.certificate import distinguished_name, read_certificates
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, client_profile
from umbilical.pki.tunnel_set import (
    DAY,
    TunnelLeaf,
    TunnelRole,
    create_authority,
    issue_set,
    key_type_of,
    load_authority,
)

NOW = datetime.now(UTC)
EC = KeyType.ECDSA_P256


def test_the_signer_is_called_as_the_installer_calls_it() -> None:
    certificate = create_authority(Authority, NOW, DAY, EC).certificate
    assert distinguished_name(certificate.subject) == "O=openshift, CN=konnectivity-signer"
    assert certificate.not_after == NOW.replace(microsecond=0) + DAY


def test_a_set_holds_two_files_for_each_role() -> None:
    authority = create_authority(Authority, NOW, DAY, EC)
    files = issue_set(
        authority,
        [TunnelLeaf(role, EC, ("10.0.0.9",) if role is TunnelRole.SERVER else ()) for role in TunnelRole],
        NOW,
        DAY,
    )
    assert list(files) == ["server.crt", "server.key", "agent.crt", "agent.key", "client.crt", "client.key"]
    found = {role: read_certificates(files[role.certificate_file])[0] for role in TunnelRole}
    assert {role: (one.common_name, one.usages, one.names) for role, one in found.items()} == {
        TunnelRole.SERVER: ("konnectivity-server", ("serverAuth",), ("10.0.0.9",)),
        TunnelRole.AGENT: ("konnectivity-agent", ("clientAuth",), ()),
        TunnelRole.CLIENT: ("konnectivity-client", ("clientAuth",), ()),
    }


def test_a_leaf_never_outlives_its_authority_has_its_name_and_a_successor_the_kind_of_key() -> None:
    authority = create_authority(Authority, NOW - timedelta(hours=23), DAY, EC)
    assert authority.lifetime(NOW, DAY) == timedelta(hours=1)
    assert authority.lifetime(NOW, timedelta(minutes=5)) == timedelta(minutes=5)
    leaf = read_certificates(authority.issue(TunnelLeaf(TunnelRole.AGENT, EC), NOW, DAY).certificate)[0]
    assert leaf.not_after == authority.certificate.not_after
    assert TunnelLeaf(TunnelRole.AGENT, EC, common_name="edge-7").profile.common_name == "edge-7"
    for key_type in list(KeyType):
        assert key_type_of(create_authority(Authority, NOW, DAY, key_type).certificate) is key_type


def test_an_authority_that_exists_is_taken_up_with_its_whole_bundle() -> None:
    old, new = (Authority.create(name, NOW, DAY, EC) for name in ("old", "new"))
    bundle = new.certificate_pem + old.certificate_pem
    found = load_authority(Authority, KeyPair(bundle, new.pair.key), NOW)
    assert (found.bundle, found.certificate.common_name) == (bundle, "new")


def small_authority() -> KeyPair:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "small")])
    builder = (
        x509.CertificateBuilder()
        .serial_number(1)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    return encode_pair(builder.sign(key, hashes.SHA256()), key)


def locked(pair: KeyPair) -> KeyPair:
    encryption = serialization.BestAvailableEncryption(b"x")
    key = decode_key(pair.key).private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return KeyPair(pair.certificate, key)


def unusable_authorities() -> dict[str, KeyPair]:
    fresh = Authority.create("a", NOW, DAY, EC)
    return {
        "expired": Authority.create("a", NOW - 2 * DAY, DAY, EC).pair,
        "not valid before": Authority.create("a", NOW + DAY, DAY, EC).pair,
        "does not belong": KeyPair(fresh.pair.certificate, Authority.create("b", NOW, DAY, EC).pair.key),
        "may not sign": fresh.issue(client_profile("c", key_type=EC), NOW, DAY),
        "RSA 1024": small_authority(),
        "encrypted": locked(fresh.pair),
        "no readable certificate": KeyPair(b"", fresh.pair.key),
    }


def test_an_authority_that_cannot_sign_is_refused_with_the_reason() -> None:
    for why in list(unusable_authorities()):
        with pytest.raises(PkiError, match=why) as refused:
            load_authority(Authority, unusable_authorities()[why], NOW)
        assert refused.value.code == "UMB151"
