"""By which names each server is certified."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_names import member, names

from umbilical.pki.hardway_names import profile
from umbilical.pki.hardway_row import Scope
from umbilical.pki.hardway_table import rows
from umbilical.pki.profiles import KeyType, Profile


def made(row_id: str, scope: Scope = Scope.OPENSHIFT, **changes: object) -> Profile:
    wanted = names(scope, **changes)
    row = next(one for one in rows(scope, (member.id for member in wanted.members)) if one.id == row_id)
    return profile(row, wanted, KeyType.ECDSA_P256)


def texts(found: Profile) -> set[str]:
    return {*found.dns_names, *map(str, found.ip_addresses)}


def test_localhost_is_itself_by_name_and_by_both_addresses() -> None:
    assert texts(made("kube-apiserver-localhost-server")) == {"localhost", "127.0.0.1", "::1"}


def test_the_service_is_certified_under_its_names_and_every_address() -> None:
    found = made("kube-apiserver-service-network-server")
    endings = ("", ".default", ".default.svc", ".default.svc.cluster.local")
    assert set(found.dns_names) == {f"{name}{end}" for name in ("kubernetes", "openshift") for end in endings}
    addresses = {"172.30.0.1", "192.168.126.10", "192.168.126.100", "192.168.126.101", "127.0.0.1", "::1"}
    assert set(map(str, found.ip_addresses)) == addresses


def test_names_of_openshift_are_not_in_upstreams_certificates() -> None:
    for row_id in ("kube-apiserver-service-network-server", "etcd-serving-bootstrap"):
        assert not [name for name in made(row_id, Scope.KUBERNETES).dns_names if "openshift" in name]


def test_the_load_balancers_have_a_name_each_and_the_virtual_address() -> None:
    assert texts(made("kube-apiserver-lb-server")) == {"api.ocp4.example.com", "192.168.126.10"}
    for row_id in ("kube-apiserver-internal-lb-server", "machine-config-server"):
        assert texts(made(row_id)) == {"api-int.ocp4.example.com", "192.168.126.10"}


def test_the_journal_is_read_on_the_bootstrap_node() -> None:
    assert texts(made("journal-gatewayd")) == {"bootstrap.ocp4.example.com", "192.168.126.100"}


def test_a_member_of_etcd_is_certified_for_its_own_node_alone() -> None:
    for kind in ("peer", "serving", "serving-metrics"):
        found = texts(made(f"etcd-{kind}-master-0"))
        assert {"localhost", "127.0.0.1", "::1", "192.168.126.101", "master-0.ocp4.example.com"} <= found
        assert "etcd.openshift-etcd.svc.cluster.local" in found
        assert "192.168.126.100" not in found


def test_clients_are_reached_by_no_name() -> None:
    assert texts(made("admin-kubeconfig-client")) == set()


def test_a_virtual_address_that_a_node_has_too_is_there_once() -> None:
    found = made("kube-apiserver-service-network-server", api_vip=ip_address("192.168.126.100"))
    assert [str(one) for one in found.ip_addresses].count("192.168.126.100") == 1


@pytest.mark.parametrize("row_id", ["kube-apiserver-service-network-server", "etcd-peer-bootstrap"])
@given(address=st.ip_addresses(v=6))
def test_ipv6_addresses_are_addresses_and_no_names(row_id: str, address: object) -> None:
    found = made(row_id, bootstrap=member("bootstrap", str(address)))
    assert address in found.ip_addresses
    assert str(address) not in found.dns_names
