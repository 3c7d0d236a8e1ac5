"""Which names there are: the full one of a node first, and etcd's by the order of masters."""

from tests.support.hardway import cluster

from umbilical.assets.hardway.infrastructure.names import etcd_names, host_records


def test_a_node_is_called_by_its_own_name_first() -> None:
    of = cluster()
    by_address = {record.address: record.names for record in host_records(of)}
    assert [by_address[node.address][0] for node in of.nodes] == [node.name for node in of.nodes]


def test_masters_are_etcd_members_too_and_workers_are_not() -> None:
    of = cluster(masters=1, workers=1)
    by_address = {record.address: record.names for record in host_records(of)}
    assert by_address[of.masters[0].address] == ("master-0.ocp4.example.com", "etcd-0.ocp4.example.com")
    assert by_address[of.workers[0].address] == ("worker-0.ocp4.example.com",)
    assert etcd_names(of) == ["etcd-0.ocp4.example.com"]


def test_both_names_of_the_api_lead_to_one_address() -> None:
    of = cluster()
    assert host_records(of)[0].names == (of.api_name, of.internal_api_name)
    assert host_records(of)[0].address == of.networks.api_vip
