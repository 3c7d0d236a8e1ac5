"""The cluster's configuration objects."""

import pytest
from tests.support import hardway

from umbilical.assets.hardway.manifests import config_resources as config


@pytest.mark.parametrize(
    ("masters", "workers", "control_plane", "others"),
    [
        (1, 0, "SingleReplica", "SingleReplica"),
        (1, 1, "SingleReplica", "SingleReplica"),
        (1, 2, "SingleReplica", "HighlyAvailable"),
        (2, 0, "DualReplica", "HighlyAvailable"),
        (3, 0, "HighlyAvailable", "HighlyAvailable"),
        (3, 1, "HighlyAvailable", "SingleReplica"),
        (3, 2, "HighlyAvailable", "HighlyAvailable"),
        (5, 9, "HighlyAvailable", "HighlyAvailable"),
    ],
)
def test_topologies_follow_from_the_number_of_machines(
    masters: int, workers: int, control_plane: str, others: str
) -> None:
    (found,) = config.infrastructure(hardway.inputs(masters=masters, workers=workers))
    assert found["status"]["controlPlaneTopology"] == control_plane
    assert found["status"]["infrastructureTopology"] == others


def test_infrastructure_tells_its_name_its_platform_and_both_urls() -> None:
    (found,) = config.infrastructure(hardway.inputs())
    status = found["status"]
    assert status["infrastructureName"] == "ocp4-x7k2m"
    assert status["platformStatus"] == {"type": "None"}
    assert status["apiServerURL"] == "https://api.ocp4.example.com:6443"
    assert status["apiServerInternalURI"] == "https://api-int.ocp4.example.com:6443"


def test_both_network_objects_have_the_same_networks() -> None:
    (ours,) = config.network(hardway.inputs())
    (operators,) = config.operator_network(hardway.inputs())
    for field in ("clusterNetwork", "serviceNetwork"):
        assert ours["spec"][field] == operators["spec"][field]
    assert ours["spec"]["clusterNetwork"] == [{"cidr": "10.128.0.0/14", "hostPrefix": 23}]
    assert (ours["apiVersion"], operators["apiVersion"]) == ("config.openshift.io/v1", "operator.openshift.io/v1")


def test_domains_are_the_clusters_and_not_its_parents() -> None:
    assert config.dns(hardway.inputs())[0]["spec"]["baseDomain"] == "ocp4.example.com"
    assert config.ingress(hardway.inputs())[0]["spec"]["domain"] == "apps.ocp4.example.com"


@pytest.mark.parametrize(("workers", "schedulable"), [(0, True), (2, False)])
def test_masters_take_workloads_only_where_nobody_else_does(workers: int, schedulable: bool) -> None:
    assert config.scheduler(hardway.inputs(workers=workers))[0]["spec"]["mastersSchedulable"] is schedulable


def test_there_is_no_proxy() -> None:
    assert config.proxy(hardway.inputs())[0]["spec"] == {}
