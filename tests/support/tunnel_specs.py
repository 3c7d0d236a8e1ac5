"""Hypothesis strategies for specs that can be rendered: every field moves, and none contradicts another."""

import ipaddress
from typing import Any

from hypothesis import strategies as st

from umbilical.bootstrap.patch.config_facts import cluster_facts
from umbilical.bootstrap.spec import (
    BOOTSTRAP_CONFIGS_ON_HOST,
    KUBERNETES_SOCKET_DIRECTORY,
    STRATEGIES,
    Mode,
    Resources,
    Shape,
    TunnelSpec,
    for_shape,
)
from umbilical.ignition.config import Config
from umbilical.manifests.objects import PORT_RANGE, RESERVED_PORTS, IpAddress, IpNetwork

_PORTS = st.integers(PORT_RANGE.start, PORT_RANGE.stop - 1).filter(lambda port: port not in RESERVED_PORTS)
_NAMESPACES = st.from_regex(r"umbilical-[a-z0-9]{1,20}", fullmatch=True)
_IMAGES = st.from_regex(
    r"[a-z0-9]{1,8}(\.[a-z]{1,4})?/[a-z0-9]{1,8}(:[a-z0-9.]{1,4}|@sha256:[0-9a-f]{64})", fullmatch=True
)
_QUANTITIES = st.builds(
    Resources, st.from_regex(r"[1-9][0-9]{0,3}m", fullmatch=True), st.from_regex(r"[1-9][0-9]{0,2}Mi", fullmatch=True)
)
_SUBDIRECTORIES = st.sampled_from(["", "/konnectivity", "/a/b.c"])


def networks() -> st.SearchStrategy[IpNetwork]:
    return st.builds(_network_around, st.ip_addresses(v=4) | st.ip_addresses(v=6), st.integers(0, 24))


def _network_around(address: IpAddress, host_bits: int) -> IpNetwork:
    return ipaddress.ip_network((int(address), address.max_prefixlen - host_bits), strict=False)


def addresses() -> st.SearchStrategy[IpAddress]:
    """Draw what another machine could dial."""
    drawn = st.ip_addresses(v=4) | st.ip_addresses(v=6)
    return drawn.filter(lambda address: not (address.is_unspecified or address.is_multicast or address.is_link_local))


@st.composite
def tunnel_specs(draw: st.DrawFn, *shapes: Shape) -> TunnelSpec:
    """Draw a spec of one of these shapes; of OpenShift's two where none is named."""
    shape = draw(st.sampled_from(shapes or (Shape.OPENSHIFT, Shape.SEED)))
    agent_port, health_port, admin_port = draw(st.lists(_PORTS, min_size=3, max_size=3, unique=True))
    fixed: dict[str, Any] = {}
    if shape is Shape.KUBERNETES:
        fixed = {"image": draw(_IMAGES), "node_ip": draw(addresses())}
    base = KUBERNETES_SOCKET_DIRECTORY if shape is Shape.KUBERNETES else BOOTSTRAP_CONFIGS_ON_HOST
    return for_shape(
        shape,
        **{
            "mode": draw(st.sampled_from(Mode)),
            "namespace": "kube-system" if shape is Shape.SEED else draw(st.just("kube-system") | _NAMESPACES),
            "host_network": shape is not Shape.OPENSHIFT and draw(st.booleans()),
            "socket_directory": base + draw(_SUBDIRECTORIES),
            "image": draw(st.none() | _IMAGES),
            "node_ip": draw(st.none() | addresses()),
            "use_ipv6": draw(st.booleans()),
            "machine_networks": tuple(draw(st.lists(networks(), max_size=3))),
            "agent_port": agent_port,
            "health_port": health_port,
            "admin_port": admin_port,
            "strategies": tuple(draw(st.lists(st.sampled_from(STRATEGIES), min_size=1, unique=True))),
            "resources": draw(_QUANTITIES),
            "certificate_hours": draw(st.integers(1, 24)),
            **fixed,
        },
    )


def fitting(spec: TunnelSpec, config: Config) -> TunnelSpec:
    """Leave the address to the node where the cluster of the config has none of that family, or only pods there."""
    facts = cluster_facts(config)
    services = facts.service_networks
    has_pods = any(spec.node_ip in network for network in (*facts.pod_networks, *services) if spec.node_ip)
    if has_pods or (services and spec.family != services[0].version):
        return spec.replace(node_ip=None, machine_networks=(), use_ipv6=False)
    return spec
