"""Rows of servers, and the administrator's."""

from umbilical.pki.hardway_row import BOTH, SERVER
from umbilical.pki.hardway_table_serving import API, MACHINE_CONFIG


def test_kube_apiserver_only_serves_with_its_four_certificates() -> None:
    servers = [row for row in API if row.id.endswith("-server")]
    assert len(servers) == 4
    assert {row.usages for row in servers} == {SERVER}
    assert {(row.common_name, row.organizations) for row in servers} == {("system:kube-apiserver", ("kube-master",))}


def test_the_administrator_is_who_the_installer_makes() -> None:
    admin = next(row for row in API if row.id == "admin-kubeconfig-client")
    assert (admin.common_name, admin.organizations, admin.usages) == ("system:admin", ("system:masters",), BOTH)


def test_root_ca_signs_for_machine_configuration_alone() -> None:
    assert {row.id for row in MACHINE_CONFIG if row.signer == "root-ca"} == {
        "machine-config-server",
        "journal-gatewayd",
    }
    assert not [row for row in API if row.signer == "root-ca"]
