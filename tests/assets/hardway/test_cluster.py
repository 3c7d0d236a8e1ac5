"""The resolved cluster: what follows from its fields is computed here and nowhere else."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from tests.support.hardway import cluster

from umbilical.assets.hardway.cluster import Profile, Role, Switch


def test_names_and_urls_follow_from_name_and_domain() -> None:
    of = cluster()
    assert of.domain == "ocp4.example.com"
    assert (of.api_name, of.internal_api_name) == ("api.ocp4.example.com", "api-int.ocp4.example.com")
    assert of.api_url == "https://api.ocp4.example.com:6443"
    assert of.internal_api_url == "https://api-int.ocp4.example.com:6443"
    assert of.apps_domain == "apps.ocp4.example.com"


@pytest.mark.parametrize(
    ("services", "service", "dns"),
    [("172.30.0.0/16", "172.30.0.1", "172.30.0.10"), ("fd02::/112", "fd02::1", "fd02::a")],
)
def test_the_first_service_address_is_the_apis_and_the_tenth_the_resolvers(
    services: str, service: str, dns: str
) -> None:
    of = cluster()
    of = replace(of, networks=replace(of.networks, services=ip_network(services)))
    assert (of.service_ip, of.dns_ip) == (ip_address(service), ip_address(dns))


def test_nodes_are_found_by_role_and_by_id() -> None:
    of = cluster(masters=3, workers=2)
    assert of.bootstrap.role is Role.BOOTSTRAP
    assert [node.id for node in of.masters] == ["master-0", "master-1", "master-2"]
    assert [node.id for node in of.workers] == ["worker-0", "worker-1"]
    assert of.members == of.masters + of.workers
    assert of.node("worker-1") == of.workers[1]
    with pytest.raises(StopIteration):
        of.node("worker-2")


def test_ingress_runs_on_workers_or_else_on_masters() -> None:
    assert cluster(workers=2).routers == cluster(workers=2).workers
    assert cluster(workers=0).routers == cluster(workers=0).masters


@pytest.mark.parametrize("wish", list(Switch))
@pytest.mark.parametrize("profile", list(Profile))
def test_kube_proxy_is_there_where_it_is_wanted_or_nothing_else_implements_services(
    profile: Profile, wish: Switch
) -> None:
    of = cluster(profile, kube_proxy=wish)
    expected = {Switch.ON: True, Switch.OFF: False, Switch.AUTO: not of.is_openshift}
    assert of.has_kube_proxy is expected[wish]
