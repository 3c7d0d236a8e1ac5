"""The table as a whole: everything is signed by what stands before it, and says why it is there."""

import pytest

from umbilical.pki.control_plane_set import Kind
from umbilical.pki.hardway_row import Life, Scope
from umbilical.pki.hardway_set import SIGNERS, Bundle
from umbilical.pki.hardway_table import TABLE, rows

SCOPES = (Scope.OPENSHIFT, Scope.KUBERNETES)
NODES = ("bootstrap", "master-0")
ROOT_FAMILY = {"root-ca", "machine-config-server", "journal-gatewayd"}
ONLY_OPENSHIFT = ROOT_FAMILY | {"aggregator-ca", "apiserver-proxy", "etcd-metric-signer", "etcd-metric-client"}


@pytest.mark.parametrize("scope", SCOPES)
def test_ids_are_unique_and_signers_come_first(scope: Scope) -> None:
    known: set[str] = set()
    for row in rows(scope, NODES):
        assert row.id not in known
        assert not row.signer or row.signer in known
        known.add(row.id)


def test_the_profiles_differ_in_what_openshifts_operators_take_over() -> None:
    openshift, kubernetes = ({row.id for row in rows(scope, NODES)} for scope in SCOPES)
    metrics = {f"etcd-serving-metrics-{node}" for node in NODES}
    assert openshift - kubernetes == ONLY_OPENSHIFT | metrics
    assert kubernetes - openshift == {"kube-proxy"}
    assert (len(openshift), len(kubernetes)) == (36, 28)


@pytest.mark.parametrize("scope", SCOPES)
def test_every_leaf_is_checked_with_something_that_holds_its_signer(scope: Scope) -> None:
    bundles = {bundle.value: SIGNERS[bundle] for bundle in Bundle}
    for row in rows(scope, NODES):
        if row.kind is Kind.LEAF:
            assert row.usages
            assert row.verified_by
            assert all(row.signer in bundles.get(trusted, (trusted,)) for trusted in row.verified_by)


def test_bundles_hold_signers_of_the_table_only() -> None:
    signers = {row.id for row in TABLE if row.kind is Kind.AUTHORITY}
    assert {one for bundle in SIGNERS.values() for one in bundle} <= signers


def test_no_signer_has_another_above_it() -> None:
    assert all(not row.signer for row in TABLE if row.kind is not Kind.LEAF)


def test_what_an_installer_gives_a_day_is_short() -> None:
    assert {row.id for row in TABLE if row.life is Life.SHORT} == {
        "kube-apiserver-localhost-server",
        "kube-apiserver-service-network-server",
        "kube-apiserver-lb-server",
        "kube-apiserver-internal-lb-server",
        "kubelet-signer",
        "aggregator-signer",
        "aggregator-client",
        "aggregator-ca",
        "apiserver-proxy",
    }


def test_every_row_is_explained() -> None:
    for row in TABLE:
        assert all(vars(row.words).values()), row.id
