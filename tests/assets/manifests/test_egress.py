"""The egress selector file."""

import pytest
from hypothesis import given
from tests.support.tunnel_specs import tunnel_specs

from umbilical.assets.manifests.egress import egress_selector
from umbilical.assets.spec import Mode, Shape, TunnelSpec, for_shape


@pytest.mark.parametrize(("mode", "protocol"), [(Mode.GRPC, "GRPC"), (Mode.HTTP_CONNECT, "HTTPConnect")])
def test_the_cluster_is_reached_through_the_socket_in_the_servers_mode(mode: Mode, protocol: str) -> None:
    made = egress_selector(for_shape(Shape.OPENSHIFT, mode=mode))
    assert made["egressSelections"][0] == {
        "name": "cluster",
        "connection": {
            "proxyProtocol": protocol,
            "transport": {"uds": {"udsName": "/etc/kubernetes/config/konnectivity-server.socket"}},
        },
    }


@given(tunnel_specs(*Shape))
def test_everything_else_goes_its_own_way(spec: TunnelSpec) -> None:
    _, *others = egress_selector(spec)["egressSelections"]
    direct = {"proxyProtocol": "Direct"}
    assert others == [{"name": name, "connection": direct} for name in ("controlplane", "etcd")]
