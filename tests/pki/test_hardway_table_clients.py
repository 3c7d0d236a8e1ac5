"""Rows of clients: whose name and groups Kubernetes reads."""

from umbilical.pki.hardway_row import CLIENT, Scope
from umbilical.pki.hardway_table_clients import CONTROL_PLANE, NODES

ROWS = {(row.id, row.scope): row for row in (*CONTROL_PLANE, *NODES)}


def test_components_have_their_own_names_and_need_no_roles() -> None:
    for part in ("controller-manager", "scheduler"):
        row = ROWS[f"kube-control-plane-kube-{part}-client", Scope.BOTH]
        assert (row.common_name, row.organizations) == (f"system:kube-{part}", ("system:masters",))


def test_new_nodes_are_a_service_account_in_openshift_and_a_group_upstream() -> None:
    openshift, kubernetes = (ROWS["kubelet-client", scope] for scope in (Scope.OPENSHIFT, Scope.KUBERNETES))
    assert openshift.common_name.endswith("openshift-machine-config-operator:node-bootstrapper")
    assert (kubernetes.common_name, kubernetes.organizations) == ("system:bootstrapper", ("system:bootstrappers",))


def test_nobody_here_serves() -> None:
    assert {row.usages for row in ROWS.values() if row.signer} == {CLIENT}
