"""Rows of etcd."""

from umbilical.pki.control_plane_set import NODE
from umbilical.pki.hardway_row import BOTH, CLIENT
from umbilical.pki.hardway_table_etcd import ETCD


def test_members_serve_and_ask_with_each_of_their_certificates() -> None:
    members = [row for row in ETCD if NODE in row.id]
    assert {row.id for row in members} == {f"etcd-{kind}-{NODE}" for kind in ("peer", "serving", "serving-metrics")}
    assert {row.usages for row in members} == {BOTH}


def test_metrics_have_a_signer_of_their_own() -> None:
    assert {row.signer for row in ETCD if "metric" in row.id} == {"", "etcd-metric-signer"}


def test_clients_only_ask() -> None:
    client = next(row for row in ETCD if row.id == "etcd-client")
    assert (client.usages, client.organizations) == (CLIENT, ("system:etcd", "etcd-client"))
