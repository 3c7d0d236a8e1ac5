"""The certificates of a control plane: the table, and what is made from it."""

import ipaddress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from umbilical.host.processes import run
from umbilical.pki.authority import BACKDATE
from umbilical.pki.bundle import decode_certificates, decode_key
from umbilical.pki.certificate import Certificate, distinguished_name, read_certificates
from umbilical.pki.control_plane_set import (
    KUBERNETES,
    TWO_DAYS,
    Consumer,
    ControlPlaneNames,
    ControlPlaneSet,
    Kind,
    Names,
    NodeNames,
    first_addresses,
    make_control_plane_set,
)
from umbilical.pki.errors import PkiError
from umbilical.pki.openssl import Openssl
from umbilical.pki.pem import public_key_block
from umbilical.pki.profiles import KeyType, Usage

NOW = datetime.now(UTC)
EC = KeyType.ECDSA_P256
NAMES = ControlPlaneNames(
    node_ips=("10.91.0.10", "10.91.0.11", "fd91::10"),
    service_ips=("10.93.0.1", "fd93::1"),
    etcd_ips=("10.91.0.10", "fd91::10"),
    names=("api.example.com",),
    nodes=(NodeNames("master-0", ("10.91.0.11",)), NodeNames("worker-0", ("10.91.0.21", "fd91::21"))),
)


@pytest.fixture(scope="module")
def made() -> ControlPlaneSet:
    return make_control_plane_set(NAMES, NOW, key_type=EC)


def _certificate(made: ControlPlaneSet, id_: str) -> Certificate:
    return read_certificates(made[id_].certificate)[0]


def test_every_leaf_names_a_signer_that_stands_before_it() -> None:
    signers: set[str] = set()
    for row in KUBERNETES:
        if row.kind is Kind.AUTHORITY:
            signers.add(row.id)
        assert (row.kind is not Kind.LEAF) or row.signer in signers


def test_ids_are_unique_and_no_two_rows_of_one_consumer_share_a_file() -> None:
    assert len({row.id for row in KUBERNETES}) == len(KUBERNETES)
    assert len({row.file for row in KUBERNETES}) == len(KUBERNETES)


def test_only_who_serves_has_names() -> None:
    for row in KUBERNETES:
        assert (row.names is not Names.NONE) == (Usage.SERVER in row.usages), row.id


def test_the_api_is_known_by_every_name_that_it_is_dialled_by(made: ControlPlaneSet) -> None:
    certificate = _certificate(made, "apiserver")
    assert certificate.dns_names == (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "api.example.com",
    )
    assert [str(address) for address in certificate.ip_addresses] == [
        "127.0.0.1", "::1", "10.93.0.1", "fd93::1", "10.91.0.10", "10.91.0.11", "fd91::10",
    ]  # fmt: skip
    assert certificate.usages == ("serverAuth",)


@pytest.mark.parametrize("id_", ["etcd-server", "etcd-peer"])
def test_etcd_is_server_and_client_with_the_same_certificate(made: ControlPlaneSet, id_: str) -> None:
    certificate = _certificate(made, id_)
    assert certificate.usages == ("serverAuth", "clientAuth")
    assert certificate.names == ("localhost", "127.0.0.1", "::1", "10.91.0.10", "fd91::10")
    assert certificate.issuer_name == "etcd-ca"


@pytest.mark.parametrize(
    ("id_", "subject"),
    [
        ("admin", "O=system:masters, CN=system:admin"),
        ("controller-manager", "O=system:masters, CN=system:kube-controller-manager"),
        ("scheduler", "O=system:masters, CN=system:kube-scheduler"),
        ("kube-proxy", "CN=system:kube-proxy"),
        ("kubelet-client:worker-0", "O=system:nodes, CN=system:node:worker-0"),
        ("front-proxy-client", "CN=front-proxy-client"),
        ("etcd-client", "CN=system:etcd-client"),
    ],
)
def test_clients_bear_the_names_that_rbac_knows(made: ControlPlaneSet, id_: str, subject: str) -> None:
    certificate = _certificate(made, id_)
    assert distinguished_name(certificate.subject) == subject
    assert certificate.usages == ("clientAuth",)
    assert certificate.names == ()


def test_every_node_has_its_own_pair_for_its_own_addresses(made: ControlPlaneSet) -> None:
    assert _certificate(made, "kubelet:worker-0").names == ("worker-0", "10.91.0.21", "fd91::21")
    assert _certificate(made, "kubelet:master-0").names == ("master-0", "10.91.0.11")
    assert made["kubelet:worker-0"].key != made["kubelet:master-0"].key


def test_all_begin_an_hour_ago_and_live_two_days(made: ControlPlaneSet) -> None:
    start = NOW.replace(microsecond=0)
    certificates = [_certificate(made, row.id) for row in made.rows if row.kind is not Kind.KEY]
    assert {one.not_before for one in certificates} == {start - BACKDATE}
    assert {one.not_after for one in certificates} == {start + TWO_DAYS}


def test_every_signature_is_by_the_signer_of_its_row(made: ControlPlaneSet) -> None:
    for row in made.rows:
        if row.kind is Kind.LEAF:
            signer = decode_certificates(made[row.signer].certificate)[0]
            decode_certificates(made[row.id].certificate)[0].verify_directly_issued_by(signer)


@pytest.mark.parametrize("key_type", list(KeyType))
def test_tokens_are_signed_by_a_key_whose_public_half_is_beside_it(key_type: KeyType) -> None:
    [row] = [row for row in KUBERNETES if row.kind is Kind.KEY]
    made = make_control_plane_set(NAMES, NOW, key_type=key_type, table=[row])
    pair = made[row.id]
    from_key = decode_key(pair.key).public_key()
    assert load_pem_public_key(pair.certificate) == from_key
    assert public_key_block(pair.certificate)


def test_a_leaf_never_outlives_its_signer() -> None:
    table = [replace(row, lifetime=timedelta(hours=3)) if row.id == "etcd-ca" else row for row in KUBERNETES]
    made = make_control_plane_set(NAMES, NOW, timedelta(hours=9), EC, table=table)
    left = {id_: _certificate(made, id_).time_left(NOW.replace(microsecond=0)) for id_ in ("etcd-client", "admin")}
    assert left == {"etcd-client": timedelta(hours=3), "admin": timedelta(hours=9)}


def test_who_gets_which_files(made: ControlPlaneSet) -> None:
    assert [file.path for file in made.files(Consumer.ETCD)] == [
        "etcd/ca.crt", "etcd/server.crt", "etcd/server.key", "etcd/peer.crt", "etcd/peer.key",
    ]  # fmt: skip
    assert [file.path for file in made.files(Consumer.CONTROLLER_MANAGER)] == ["ca.crt", "ca.key", "sa.pub", "sa.key"]
    assert [file.path for file in made.files(Consumer.KUBELET)] == ["ca.crt"]
    assert [file.path for file in made.files(Consumer.KUBELET, node="worker-0")] == [
        "ca.crt", "kubelet.crt", "kubelet.key",
    ]  # fmt: skip
    assert made.files(Consumer.SCHEDULER) == []


def test_no_signer_leaves_its_key_with_kube_apiserver(made: ControlPlaneSet) -> None:
    keys = {file.path for file in made.files(Consumer.KUBE_APISERVER) if file.is_secret}
    assert keys == {
        "sa.key", "apiserver.key", "apiserver-etcd-client.key", "apiserver-kubelet-client.key",
        "front-proxy-client.key",
    }  # fmt: skip


def test_what_is_secret_is_a_key_and_stays_out_of_repr(made: ControlPlaneSet) -> None:
    files = made.files(*Consumer, node="worker-0")
    for file in files:
        assert file.is_secret == (b"PRIVATE KEY" in file.content) == file.path.endswith(".key")
        assert "BEGIN" not in repr(file)


def test_a_bad_address_is_refused_before_any_key_is_drawn() -> None:
    class Untouched:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(name)

    names = replace(NAMES, nodes=(NodeNames("worker-0", ("0.0.0.0",)),))
    with pytest.raises(PkiError) as refusal:
        make_control_plane_set(names, NOW, backend=Untouched())  # type: ignore[arg-type]
    assert refusal.value.code == "UMB150"


@pytest.mark.real("openssl")
def test_the_openssl_program_makes_the_same_set(tmp_path: Path, made: ControlPlaneSet) -> None:
    backend = Openssl(lambda command, stdin: run(command, 60, stdin).encode(), tmp_path)
    few = [row for row in KUBERNETES if row.id in ("kubernetes-ca", "service-account", "apiserver", "admin")]
    other = make_control_plane_set(NAMES, NOW, key_type=EC, table=few, backend=backend)
    for id_ in ("apiserver", "admin"):
        ours, theirs = _certificate(made, id_), _certificate(other, id_)
        assert (ours.names, ours.usages, ours.subject) == (theirs.names, theirs.usages, theirs.subject)
    assert public_key_block(other["service-account"].certificate)


def test_the_kubernetes_service_has_the_first_address_of_each_range() -> None:
    networks = [ipaddress.ip_network("172.30.0.0/16"), ipaddress.ip_network("fd02::/112")]
    assert first_addresses(networks) == ("172.30.0.1", "fd02::1")
