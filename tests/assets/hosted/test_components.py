"""The table of components against what HyperShift does, with the differences that are meant."""

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted import names
from umbilical.assets.hosted.components import COMPONENTS, HEALTH_PORTS, Names, ProxyKind, chosen

SOCKS5, HTTPS = ProxyKind.SOCKS5, ProxyKind.HTTPS
TABLE = {
    "openshift-apiserver": ([(HTTPS, 8090, Names.GUEST, False)], {"HTTP_PROXY": "http", "HTTPS_PROXY": "http"}),
    "openshift-oauth-apiserver": (
        [(SOCKS5, 8090, Names.GUEST, False)],
        {"HTTP_PROXY": "socks5", "HTTPS_PROXY": "socks5"},
    ),
    "oauth-openshift": (
        [(HTTPS, 8092, Names.GUEST, True), (SOCKS5, 8090, Names.GUEST_THEN_MANAGEMENT, False)],
        {"HTTP_PROXY": "http", "HTTPS_PROXY": "http", "ALL_PROXY": "socks5"},
    ),
    "ingress-operator": ([(HTTPS, 8090, Names.GUEST, True)], {"HTTP_PROXY": "http", "HTTPS_PROXY": "http"}),
    "cluster-network-operator": ([(SOCKS5, 8090, Names.AGENT, False)], {}),
    "ovnkube-control-plane": ([(SOCKS5, 8090, Names.GUEST, False)], {"ALL_PROXY": "socks5"}),
    "olm-operator": ([(SOCKS5, 8090, Names.GUEST, False)], {"GRPC_PROXY": "socks5"}),
    "catalog-operator": ([(SOCKS5, 8090, Names.GUEST, False)], {"GRPC_PROXY": "socks5"}),
    "packageserver": ([(SOCKS5, 8090, Names.GUEST, False)], {"GRPC_PROXY": "socks5"}),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_a_component_has_its_proxies_and_is_pointed_at_them(name: str) -> None:
    component = COMPONENTS[name]
    proxies, variables = TABLE[name]
    assert [(one.kind, one.port, one.names, one.to_cloud_apis) for one in component.proxies] == proxies
    ports = {one.url.partition(":")[0]: one.port for one in component.proxies}
    assert component.environment() == {
        key: f"{scheme}://127.0.0.1:{ports[scheme]}" for key, scheme in variables.items()
    }
    assert component.why


def test_every_component_that_a_spec_may_name_is_in_the_table_in_the_same_order() -> None:
    assert tuple(COMPONENTS) == names.COMPONENTS == tuple(TABLE)


def test_no_two_ports_of_a_pod_are_the_same() -> None:
    for component in COMPONENTS.values():
        ports = [port for one in component.proxies for port in (one.port, HEALTH_PORTS[one.kind])]
        assert len(ports) == len(set(ports))


def test_containers_are_called_as_hypershift_calls_them() -> None:
    assert [one.container_name for one in COMPONENTS["oauth-openshift"].proxies] == [
        "konnectivity-proxy-https",
        "konnectivity-proxy-socks5",
    ]
    assert [one.container_name for one in COMPONENTS["ovnkube-control-plane"].proxies] == ["socks-proxy"]


def test_a_spec_chooses_components_by_name() -> None:
    assert [one.name for one in chosen(hosted_spec(components=("packageserver",)))] == ["packageserver"]
    assert chosen(hosted_spec(components=())) == ()
