"""The spec's own rules: names, addresses, and what contradicts itself."""

import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.spec import (
    AggregatedApi,
    ApiGroup,
    DataPlaneProxy,
    KubeApiserver,
    Leases,
    Networks,
    Pki,
    Publishing,
    Server,
    ServerCount,
    Strategy,
    Workload,
    problems,
)

ADDRESS = ipaddress.ip_address("172.30.12.7")


def networks(*texts: str) -> Networks:
    return Networks(*((ipaddress.ip_network(text),) for text in texts))


def test_a_good_spec_has_no_problem() -> None:
    assert list(problems(hosted_spec())) == []


def test_the_frontend_is_known_by_loopback_and_by_its_service() -> None:
    assert hosted_spec().frontend_names == (
        "localhost",
        "konnectivity-server-local",
        "konnectivity-server-local.clusters-guest.svc",
        "konnectivity-server-local.clusters-guest.svc.cluster.local",
        "127.0.0.1",
    )


def test_agents_know_the_servers_by_service_and_by_the_published_host() -> None:
    assert hosted_spec().agent_listener_names == (
        "konnectivity-server",
        "konnectivity-server.clusters-guest.svc",
        "konnectivity-server.clusters-guest.svc.cluster.local",
        "konnectivity.guest.example",
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"publishing": Publishing(Strategy.ROUTE, "10.0.0.9", 443)}, "publish.host 10.0.0.9 is an address"),
        ({"publishing": Publishing(Strategy.NODE_PORT, "10.0.0.9", 8091)}, "publish.port 8091 is no port of nodes"),
        ({"publishing": Publishing(Strategy.LOAD_BALANCER, "0.0.0.0", 8091)}, "nobody can connect"),
        ({"publishing": Publishing(Strategy.LOAD_BALANCER, "a.b", 8091, {"a": "b"})}, "publish.labels are for a Route"),
        ({"server_count": ServerCount.LEASES}, "needs leases.kubeconfigSecret"),
        ({"kube_apiserver": KubeApiserver(workload=Workload.STATIC_POD)}, "kubeApiserver.manifest is needed"),
        ({"kube_apiserver": KubeApiserver(ports=())}, "kubeApiserver.ports is empty"),
        ({"networks": Networks()}, "networks.service is needed"),
        ({"proxy": DataPlaneProxy(trusted_ca="bundle")}, "without a proxy"),
        ({"pki": Pki(authority_days=365)}, "pki.certificateDays must be less"),
        ({"aggregated_authority": ""}, "aggregatedAuthority is needed"),
        ({"aggregated_apis": (AggregatedApi("a"), AggregatedApi("a"))}, "names a twice"),
        (
            {"aggregated_apis": (AggregatedApi("a", (), (ApiGroup("g"),)), AggregatedApi("b", (), (ApiGroup("g"),)))},
            "gives v1.g to two services",
        ),
        (
            {"aggregated_apis": (AggregatedApi("a", (ipaddress.ip_address("172.31.0.9"),)),)},
            "172.31.0.9 lies in a network of the hosted cluster",
        ),
        (
            {"networks": networks("10.0.0.0/8", "172.31.0.0/16", "10.1.0.0/16")},
            "networks 10.0.0.0/8 and 10.1.0.0/16 overlap",
        ),
    ],
)
def test_what_contradicts_itself_is_told(changes: dict[str, Any], told: str) -> None:
    found = list(problems(hosted_spec(**changes)))
    assert len(found) == 1
    assert told in found[0]


def test_leases_cannot_be_published_by_a_static_pod() -> None:
    static = KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml")
    spec = hosted_spec(kube_apiserver=static, server_count=ServerCount.LEASES, leases=Leases("secret"))
    assert list(problems(spec)) == ["serverCount leases needs a Secret, and a static pod cannot use one"]


def test_addresses_that_were_looked_up_are_put_in_and_unknown_services_added() -> None:
    spec = hosted_spec(aggregated_apis=(AggregatedApi("named"), AggregatedApi("given", (ADDRESS,))))
    looked_up = {"named": "172.30.0.1", "labelled": "fd00::5"}
    found = spec.with_addresses({name: (ipaddress.ip_address(text),) for name, text in looked_up.items()})
    assert [(api.service, [str(one) for one in api.addresses]) for api in found.aggregated_apis] == [
        ("named", ["172.30.0.1"]),
        ("given", ["172.30.12.7"]),
        ("labelled", ["fd00::5"]),
    ]
    assert [str(one) for one in found.known_addresses] == ["172.30.0.1", "172.30.12.7", "fd00::5"]


def test_a_service_that_was_made_anew_has_its_new_address() -> None:
    spec = hosted_spec(aggregated_apis=(AggregatedApi("a", (ADDRESS,)),))
    moved = ipaddress.ip_address("172.30.99.9")
    assert spec.with_addresses({"a": (moved,)}).known_addresses == (moved,)


def test_passwords_of_a_proxy_do_not_slip_into_a_log() -> None:
    spec = hosted_spec(
        proxy=DataPlaneProxy(http="http://user:hunter2@proxy:3128", https="http://user:hunter2@proxy:3128")
    )
    assert spec.proxy.is_set
    assert "hunter2" not in repr(spec)


def test_the_server_is_ours_unless_said_otherwise() -> None:
    assert hosted_spec().is_ours
    assert not replace(hosted_spec(), server=Server.UPSTREAM).is_ours
