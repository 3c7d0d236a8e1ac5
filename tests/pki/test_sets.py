"""Authorities, and the sets that they sign."""

import ipaddress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given
from hypothesis import strategies as st

from umbilical.fault import PkiError
from umbilical.host.processes import run
from umbilical.pki.authority import Authority, decode_certificates, decode_key
from umbilical.pki.certificate import Certificate, distinguished_name, read_certificates
from umbilical.pki.control_plane_set import (
    KUBERNETES,
    TWO_DAYS,
    Consumer,
    ControlPlaneNames,
    ControlPlaneSet,
    NameSet,
    NodeNames,
    PkiKind,
    first_addresses,
    make_control_plane_set,
)
from umbilical.pki.openssl import Openssl
from umbilical.pki.pem import KeyPair, public_key_block
from umbilical.pki.profiles import (
    BACKDATE,
    KeyType,
    Profile,
    Usage,
    client_profile,
    server_profile,
    split_names,
    usable_address,
    usable_addresses,
)

NOW = datetime.now(UTC)
ONE_DAY = timedelta(days=1)
SERVER = server_profile("server", ["localhost", "127.0.0.1", "::1"], KeyType.ECDSA_P256)
CLIENT = client_profile("admin", ["system:masters"], KeyType.ECDSA_P256)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("umbilical test CA", NOW, ONE_DAY, KeyType.ECDSA_P256)


def _certificate(pair: KeyPair) -> x509.Certificate:
    return decode_certificates(pair.certificate)[0]


def test_a_leaf_begins_an_hour_ago_and_ends_with_its_lifetime(authority: Authority) -> None:
    certificate = _certificate(authority.issue(SERVER, NOW, ONE_DAY))
    start = NOW.replace(microsecond=0)
    assert certificate.not_valid_before_utc == start - BACKDATE
    assert certificate.not_valid_after_utc == start + ONE_DAY


def test_key_identifiers_link_leaf_and_authority_and_serial_numbers_differ(authority: Authority) -> None:
    own = decode_certificates(authority.certificate_pem)[0].extensions
    leaves = [_certificate(authority.issue(CLIENT, NOW, ONE_DAY)) for _ in range(3)]
    expected = own.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    leaf = leaves[0].extensions
    assert leaf.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == expected
    assert leaf.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest != expected
    assert len({one.serial_number for one in leaves}) == 3


def test_a_loaded_authority_signs_like_the_one_that_was_kept(authority: Authority) -> None:
    again = Authority.load(authority.pair)
    leaf = again.issue(SERVER, NOW, ONE_DAY)
    assert _certificate(leaf).issuer == decode_certificates(authority.certificate_pem)[0].subject
    _certificate(leaf).verify_directly_issued_by(decode_certificates(authority.certificate_pem)[0])


def test_names_and_addresses_are_parted_each_once() -> None:
    names, addresses = split_names(["api.example", "10.0.0.1", "::1", "localhost"])
    assert names == ("api.example", "localhost")
    assert addresses == (ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("::1"))
    assert split_names(["b", "a", "b", "::1", "0:0:0:0:0:0:0:1"]) == (("b", "a"), (ipaddress.ip_address("::1"),))


def test_a_server_profile_serves_and_a_client_profile_asks() -> None:
    assert server_profile("s", ["localhost"]).usages == (Usage.SERVER,)
    asked = Profile("c", (Usage.CLIENT,), ("system:masters",), key_type=KeyType.ECDSA_P256)
    assert client_profile("c", ["system:masters"], KeyType.ECDSA_P256) == asked
    assert asked.dns_names == ()


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


def _written(made: ControlPlaneSet, id_: str) -> Certificate:
    return read_certificates(made[id_].certificate)[0]


def test_rows_are_unique_name_signers_before_them_and_only_servers_have_names() -> None:
    signers: set[str] = set()
    for row in KUBERNETES:
        if row.kind is PkiKind.AUTHORITY:
            signers.add(row.id)
        assert (row.kind is not PkiKind.LEAF) or row.signer in signers
    assert len({row.id for row in KUBERNETES}) == len(KUBERNETES)
    assert len({row.file for row in KUBERNETES}) == len(KUBERNETES)
    for row in KUBERNETES:
        assert (row.names is not NameSet.NONE) == (Usage.SERVER in row.usages), row.id


def test_the_api_is_known_by_every_name_that_it_is_dialled_by(made: ControlPlaneSet) -> None:
    certificate = _written(made, "apiserver")
    assert certificate.dns_names == (
        *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        *("kubernetes.default.svc.cluster.local", "api.example.com"),
    )
    assert [str(address) for address in certificate.ip_addresses] == [
        "127.0.0.1", "::1", "10.93.0.1", "fd93::1", "10.91.0.10", "10.91.0.11", "fd91::10",
    ]  # fmt: skip
    assert certificate.usages == ("serverAuth",)


def test_etcd_is_server_and_client_with_the_same_certificate(made: ControlPlaneSet) -> None:
    for id_ in ("etcd-server", "etcd-peer"):
        certificate = _written(made, id_)
        assert certificate.usages == ("serverAuth", "clientAuth")
        assert certificate.names == ("localhost", "127.0.0.1", "::1", "10.91.0.10", "fd91::10")
        assert certificate.issuer_name == "etcd-ca"


def test_clients_bear_the_names_that_rbac_knows(made: ControlPlaneSet) -> None:
    for id_, subject in (
        ("admin", "O=system:masters, CN=system:admin"),
        ("controller-manager", "O=system:masters, CN=system:kube-controller-manager"),
        ("scheduler", "O=system:masters, CN=system:kube-scheduler"),
        ("kube-proxy", "CN=system:kube-proxy"),
        ("kubelet-client:worker-0", "O=system:nodes, CN=system:node:worker-0"),
        ("front-proxy-client", "CN=front-proxy-client"),
        ("etcd-client", "CN=system:etcd-client"),
    ):
        certificate = _written(made, id_)
        assert distinguished_name(certificate.subject) == subject
        assert certificate.usages == ("clientAuth",)
        assert certificate.names == ()


def test_every_node_has_its_own_pair_for_its_own_addresses(made: ControlPlaneSet) -> None:
    assert _written(made, "kubelet:worker-0").names == ("worker-0", "10.91.0.21", "fd91::21")
    assert _written(made, "kubelet:master-0").names == ("master-0", "10.91.0.11")
    assert made["kubelet:worker-0"].key != made["kubelet:master-0"].key


def test_all_are_signed_by_their_row_begin_an_hour_ago_and_live_two_days(made: ControlPlaneSet) -> None:
    start = NOW.replace(microsecond=0)
    certificates = [_written(made, row.id) for row in made.rows if row.kind is not PkiKind.KEY]
    assert {one.not_before for one in certificates} == {start - BACKDATE}
    assert {one.not_after for one in certificates} == {start + TWO_DAYS}
    for row in made.rows:
        if row.kind is PkiKind.LEAF:
            signer = decode_certificates(made[row.signer].certificate)[0]
            decode_certificates(made[row.id].certificate)[0].verify_directly_issued_by(signer)


def test_tokens_are_signed_by_a_key_whose_public_half_is_beside_it() -> None:
    for key_type in list(KeyType):
        [row] = [row for row in KUBERNETES if row.kind is PkiKind.KEY]
        made = make_control_plane_set(NAMES, NOW, key_type=key_type, table=[row])
        pair = made[row.id]
        from_key = decode_key(pair.key).public_key()
        assert load_pem_public_key(pair.certificate) == from_key
        assert public_key_block(pair.certificate)


def test_a_leaf_never_outlives_its_signer() -> None:
    table = [replace(row, lifetime=timedelta(hours=3)) if row.id == "etcd-ca" else row for row in KUBERNETES]
    made = make_control_plane_set(NAMES, NOW, timedelta(hours=9), EC, table=table)
    left = {id_: _written(made, id_).time_left(NOW.replace(microsecond=0)) for id_ in ("etcd-client", "admin")}
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


def test_no_signer_leaves_its_key_with_kube_apiserver_and_keys_stay_out_of_repr(made: ControlPlaneSet) -> None:
    keys = {file.path for file in made.files(Consumer.KUBE_APISERVER) if file.is_secret}
    assert keys == {
        "sa.key", "apiserver.key", "apiserver-etcd-client.key", "apiserver-kubelet-client.key",
        "front-proxy-client.key",
    }  # fmt: skip
    files = made.files(*Consumer, node="worker-0")
    for file in files:
        assert file.is_secret == (b"PRIVATE KEY" in file.content) == file.path.endswith(".key")
        assert "BEGIN" not in repr(file)


def test_a_bad_address_is_refused_before_any_key_is_drawn() -> None:
    class Untouched:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(name)

    names = replace(NAMES, nodes=(NodeNames("worker-0", ("0.0.0.0",)),))
    with pytest.raises(PkiError, match="UMB150"):
        make_control_plane_set(names, NOW, backend=Untouched())  # type: ignore[arg-type]


@pytest.mark.real("openssl")
def test_the_openssl_program_makes_the_same_set(tmp_path: Path, made: ControlPlaneSet) -> None:
    backend = Openssl(lambda command, stdin: run(command, 60, stdin).encode(), tmp_path)
    few = [row for row in KUBERNETES if row.id in ("kubernetes-ca", "service-account", "apiserver", "admin")]
    other = make_control_plane_set(NAMES, NOW, key_type=EC, table=few, backend=backend)
    for id_ in ("apiserver", "admin"):
        ours, theirs = _written(made, id_), _written(other, id_)
        assert (ours.names, ours.usages, ours.subject) == (theirs.names, theirs.usages, theirs.subject)
    assert public_key_block(other["service-account"].certificate)


def test_the_kubernetes_service_has_the_first_address_of_each_range() -> None:
    networks = [ipaddress.ip_network("172.30.0.0/16"), ipaddress.ip_network("fd02::/112")]
    assert first_addresses(networks) == ("172.30.0.1", "fd02::1")


def test_an_address_is_brought_into_its_plain_form() -> None:
    for text, plain in (
        *(("10.0.0.9", "10.0.0.9"), (" 10.0.0.9 ", "10.0.0.9"), ("2001:DB8:0:0::9", "2001:db8::9")),
        *(("[2001:db8::9]", "2001:db8::9"), ("::ffff:10.0.0.9", "::ffff:10.0.0.9")),
        *(("API.Example.com.", "api.example.com"), ("*.example.com", "*.example.com")),
        *(("bootstrap-0", "bootstrap-0"), ("xn--bcher-kva.example", "xn--bcher-kva.example")),
    ):
        assert ipaddress_or_text(usable_address(text)) == ipaddress_or_text(plain)
    assert usable_addresses(["b", "[::1]", "B.", "::0:1", "a"]) == ("b", "::1", "a"), "each once, in its order"


def ipaddress_or_text(text: str) -> object:
    names, addresses = split_names([text])
    return names or addresses


def test_what_can_be_in_no_certificate_is_refused_with_the_reason() -> None:
    refused = {
        "port": ("10.0.0.9:8091", "[::1]:8091", "api.example.com:"),
        "not an IPv6 address": ("[10.0.0.9]", "[api.example.com]", "2001:db8::g"),
        "zone": ("fe80::1%eth0",),
        "ends in a number": ("10.0.0", "10.0.0.256"),
        "unspecified or multicast": ("0.0.0.0", "::", "224.0.0.1"),
        "jq": ("null",),
        "neither an address nor a host name": ("", "a b", "under_score", "a.*.example", "a." * 127 + "example"),
        "neither an address nor a host name|not an IPv6": ("https://a.example",),
        "ASCII": ("bücher.example",),
    }
    for why, texts in refused.items():
        for text in texts:
            with pytest.raises(PkiError, match=why) as fault:
                usable_address(text)
            assert fault.value.code == "UMB150"


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_every_address_that_can_be_dialled_survives(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    text = f"[{address}]" if address.version == 6 else str(address)
    if address.is_unspecified or address.is_multicast:
        with pytest.raises(PkiError):
            usable_address(text)
    else:
        assert ipaddress.ip_address(usable_address(text)) == address


@given(st.text(max_size=40))
def test_any_text_is_made_plain_once_or_refused(text: str) -> None:
    try:
        plain = usable_address(text)
    except PkiError:
        return
    assert usable_address(plain) == plain
    assert plain.isascii()
