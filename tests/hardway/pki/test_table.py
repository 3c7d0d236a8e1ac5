"""The certificates of the hard way: their table, names and sets."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway import hardway_set
from tests.support.hardway_names import member, names

from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.pki.certificate_set import SIGNERS, Bundle, HardwaySet
from umbilical.hardway.pki.row import BOTH, CLIENT, SERVER, Life, Scope, profile
from umbilical.hardway.pki.table import ETCD, TABLE, rows
from umbilical.hardway.pki.table_clients import CONTROL_PLANE, NODES
from umbilical.hardway.pki.table_serving import API, MACHINE_CONFIG
from umbilical.pki.certificate import read_certificates
from umbilical.pki.control_plane_set import NODE, PkiKind
from umbilical.pki.profiles import KeyType, Profile


def made(row_id: str, scope: Scope = Scope.OPENSHIFT, **changes: object) -> Profile:
    wanted = names(scope, **changes)
    row = next(one for one in rows(scope, (member.id for member in wanted.members)) if one.id == row_id)
    return profile(row, wanted, KeyType.ECDSA_P256)


def texts(found: Profile) -> set[str]:
    return {*found.dns_names, *map(str, found.ip_addresses)}


def test_names_are_those_that_each_listener_is_dialled_by() -> None:
    assert texts(made("kube-apiserver-localhost-server")) == {"localhost", "127.0.0.1", "::1"}
    assert texts(made("kube-apiserver-lb-server")) == {"api.ocp4.example.com", "192.168.126.10"}
    for row_id in ("kube-apiserver-internal-lb-server", "machine-config-server"):
        assert texts(made(row_id)) == {"api-int.ocp4.example.com", "192.168.126.10"}
    assert texts(made("journal-gatewayd")) == {"bootstrap.ocp4.example.com", "192.168.126.100"}
    assert texts(made("admin-kubeconfig-client")) == set()


def test_the_service_is_certified_under_its_names_and_every_address_once() -> None:
    found = made("kube-apiserver-service-network-server")
    endings = ("", ".default", ".default.svc", ".default.svc.cluster.local")
    assert set(found.dns_names) == {f"{name}{end}" for name in ("kubernetes", "openshift") for end in endings}
    addresses = {"172.30.0.1", "192.168.126.10", "192.168.126.100", "192.168.126.101", "127.0.0.1", "::1"}
    assert set(map(str, found.ip_addresses)) == addresses
    found = made("kube-apiserver-service-network-server", api_vip=ip_address("192.168.126.100"))
    assert [str(one) for one in found.ip_addresses].count("192.168.126.100") == 1


def test_names_of_openshift_are_not_in_upstreams_certificates() -> None:
    for row_id in ("kube-apiserver-service-network-server", "etcd-serving-bootstrap"):
        assert not [name for name in made(row_id, Scope.KUBERNETES).dns_names if "openshift" in name]


def test_a_member_of_etcd_is_certified_for_its_own_node_alone() -> None:
    for kind in ("peer", "serving", "serving-metrics"):
        found = texts(made(f"etcd-{kind}-master-0"))
        assert {"localhost", "127.0.0.1", "::1", "192.168.126.101", "master-0.ocp4.example.com"} <= found
        assert "etcd.openshift-etcd.svc.cluster.local" in found
        assert "192.168.126.100" not in found


@pytest.mark.parametrize("row_id", ["kube-apiserver-service-network-server", "etcd-peer-bootstrap"])
@given(address=st.ip_addresses(v=6))
def test_ipv6_addresses_are_addresses_and_no_names(row_id: str, address: object) -> None:
    found = made(row_id, bootstrap=member("bootstrap", str(address)))
    assert address in found.ip_addresses
    assert str(address) not in found.dns_names


SCOPES = (Scope.OPENSHIFT, Scope.KUBERNETES)
SOME_NODES = ("bootstrap", "master-0")
ROOT_FAMILY = {"root-ca", "machine-config-server", "journal-gatewayd"}
ONLY_OPENSHIFT = ROOT_FAMILY | {"aggregator-ca", "apiserver-proxy", "etcd-metric-signer", "etcd-metric-client"}


def test_signers_come_first_have_none_above_them_and_are_the_bundles() -> None:
    for scope in SCOPES:
        known: set[str] = set()
        for row in rows(scope, SOME_NODES):
            assert row.id not in known
            assert not row.signer or row.signer in known
            known.add(row.id)
    signers = {row.id for row in TABLE if row.kind is PkiKind.AUTHORITY}
    assert {one for bundle in SIGNERS.values() for one in bundle} <= signers
    assert all(not row.signer for row in TABLE if row.kind is not PkiKind.LEAF)
    for row in TABLE:
        assert all(vars(row.words).values()), row.id


def test_the_profiles_differ_in_what_openshifts_operators_take_over() -> None:
    openshift, kubernetes = ({row.id for row in rows(scope, SOME_NODES)} for scope in SCOPES)
    metrics = {f"etcd-serving-metrics-{node}" for node in SOME_NODES}
    assert openshift - kubernetes == ONLY_OPENSHIFT | metrics
    assert kubernetes - openshift == {"kube-proxy"}
    assert (len(openshift), len(kubernetes)) == (36, 28)


def test_every_leaf_is_checked_with_something_that_holds_its_signer() -> None:
    for scope in SCOPES:
        bundles = {bundle.value: SIGNERS[bundle] for bundle in Bundle}
        for row in rows(scope, SOME_NODES):
            if row.kind is PkiKind.LEAF:
                assert row.usages
                assert row.verified_by
                assert all(row.signer in bundles.get(trusted, (trusted,)) for trusted in row.verified_by)


def test_what_an_installer_gives_a_day_is_short() -> None:
    assert {row.id for row in TABLE if row.life is Life.SHORT} == {
        *("kube-apiserver-localhost-server", "kube-apiserver-service-network-server", "kube-apiserver-lb-server"),
        *("kube-apiserver-internal-lb-server", "kubelet-signer", "aggregator-signer", "aggregator-client"),
        *("aggregator-ca", "apiserver-proxy"),
    }


def test_etcd_members_serve_and_ask_and_metrics_have_a_signer_of_their_own() -> None:
    members = [row for row in ETCD if NODE in row.id]
    assert {row.id for row in members} == {f"etcd-{kind}-{NODE}" for kind in ("peer", "serving", "serving-metrics")}
    assert {row.usages for row in members} == {BOTH}
    assert {row.signer for row in ETCD if "metric" in row.id} == {"", "etcd-metric-signer"}
    client = next(row for row in ETCD if row.id == "etcd-client")
    assert (client.usages, client.organizations) == (CLIENT, ("system:etcd", "etcd-client"))


ROWS = {(row.id, row.scope): row for row in (*CONTROL_PLANE, *NODES)}


def test_components_and_new_nodes_have_their_own_names_and_only_ask() -> None:
    for part in ("controller-manager", "scheduler"):
        row = ROWS[f"kube-control-plane-kube-{part}-client", Scope.BOTH]
        assert (row.common_name, row.organizations) == (f"system:kube-{part}", ("system:masters",))
    openshift, kubernetes = (ROWS["kubelet-client", scope] for scope in (Scope.OPENSHIFT, Scope.KUBERNETES))
    assert openshift.common_name.endswith("openshift-machine-config-operator:node-bootstrapper")
    assert (kubernetes.common_name, kubernetes.organizations) == ("system:bootstrapper", ("system:bootstrappers",))
    assert {row.usages for row in ROWS.values() if row.signer} == {CLIENT}


def test_the_api_serves_with_four_certificates_and_root_ca_signs_for_machine_configuration_alone() -> None:
    servers = [row for row in API if row.id.endswith("-server")]
    assert len(servers) == 4
    assert {row.usages for row in servers} == {SERVER}
    assert {(row.common_name, row.organizations) for row in servers} == {("system:kube-apiserver", ("kube-master",))}
    admin = next(row for row in API if row.id == "admin-kubeconfig-client")
    assert (admin.common_name, admin.organizations, admin.usages) == ("system:admin", ("system:masters",), BOTH)
    assert {row.id for row in MACHINE_CONFIG if row.signer == "root-ca"} == {
        "machine-config-server",
        "journal-gatewayd",
    }
    assert not [row for row in API if row.signer == "root-ca"]


def test_a_bundle_holds_its_signers_in_order_or_nothing() -> None:
    made = hardway_set(ClusterProfile.OPENSHIFT)
    for bundle in Bundle:
        assert [one.common_name for one in read_certificates(made.bundle(bundle))] == list(SIGNERS[bundle])
    assert hardway_set(ClusterProfile.KUBERNETES).bundle(Bundle.ETCD_METRICS_CA) == b""


def test_a_set_is_no_view_of_what_it_was_made_from() -> None:
    pairs = {"etcd-signer": hardway_set()["etcd-signer"]}
    made = HardwaySet(pairs)
    pairs.clear()
    assert list(made) == ["etcd-signer"]
