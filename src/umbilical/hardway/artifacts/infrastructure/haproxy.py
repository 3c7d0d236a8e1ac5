"""HAProxy's two configurations: with the bootstrap node in front, and without it.

Before the pivot every request goes to the bootstrap node's kube-apiserver: it alone has the tunnel, and a cluster
that is half there should have one door. The masters are checked all the time and stand by (`backup`), so that the
pivot is a reload between two configurations whose servers are known to be ready.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts.infrastructure.places import (
    DEFAULT_STATS_PORT,
    BalancerPlaces,
    balancer_places,
    libvirt_of,
)
from umbilical.hardway.config.cluster import API_PORT, MACHINE_CONFIG_PORT, Cluster, ClusterNode
from umbilical.manifests.objects import IpAddress

ROUTER_HEALTH_PORT: Final = 1936
"""Plain HTTP: where OpenShift's routers tell that they are ready."""
HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443

_GLOBAL: Final = """\
global
    maxconn 4000
    # Only changes of servers are worth a line here; connections are not.
    log stderr format raw local0 notice
    # expose-fd: at a reload the new process gets the listening sockets of the old one, so nobody is refused.
    stats socket {socket} mode 600 level admin expose-fd listeners
    stats timeout 1m
    # After a reload the old process serves what it has; this ends watches that never end.
    hard-stop-after 1h
{service}
defaults
    mode tcp
    log global
    balance roundrobin
    # A server that refuses is passed over for the next one, at once and unseen by the client.
    retries 3
    option redispatch 1
    timeout connect 5s
    timeout queue 1m
    timeout check 10s
    # Watches, exec and port-forward may be silent for long: a minute here cuts them.
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
    # Sessions of a server that goes down are left alone: kube-apiserver says no to /readyz and serves on for a while.
    default-server inter 2s fall 2 rise 2
"""
_SERVICE: Final = """\
    chroot /var/lib/haproxy
    user haproxy
    group haproxy
"""
_STATS: Final = """\
frontend stats
    mode http
    bind 127.0.0.1:{port}
    stats enable
    stats uri /stats
    stats refresh 5s
"""
API_SERVICE: Final = "api"


@dataclass(frozen=True)
class BalancedService:
    """One door of the cluster: a frontend and a backend of the same name."""

    name: str
    vip: IpAddress
    port: int
    health: str
    """Path of an HTTP GET that says 200 when the server is ready."""
    check: str
    """How it is asked."""
    servers: tuple[ClusterNode, ...]
    spares: tuple[ClusterNode, ...] = ()
    """Checked like the servers, used when none of those is up."""
    note: str = ""


def haproxy_bootstrap(cluster: Cluster) -> bytes:
    """The configuration until the pivot."""
    return _config(cluster, _services(cluster, (cluster.bootstrap,), cluster.masters))


def haproxy_final(cluster: Cluster) -> bytes:
    """The configuration of a cluster that stands on its own."""
    return _config(cluster, _services(cluster, cluster.masters, ()))


def _services(
    cluster: Cluster, servers: tuple[ClusterNode, ...], spares: tuple[ClusterNode, ...]
) -> Iterator[BalancedService]:
    places, networks = balancer_places(cluster), cluster.networks
    over_tls = "check check-ssl verify required ca-file {}"
    note = "An HTTP check without check-ssl would mark every server DOWN: they speak TLS."
    api_check = over_tls.format(places.server_ca)
    yield BalancedService(API_SERVICE, networks.api_vip, API_PORT, "/readyz", api_check, servers, spares, note)
    if not cluster.is_openshift:
        return
    machine_config_check = over_tls.format(places.machine_config_ca)
    yield BalancedService(
        "machine-config", networks.api_vip, MACHINE_CONFIG_PORT, "/healthz", machine_config_check, servers, spares
    )
    for name, port in (("ingress-http", HTTP_PORT), ("ingress-https", HTTPS_PORT)):
        router_check = f"check port {ROUTER_HEALTH_PORT}"
        yield BalancedService(name, networks.ingress_vip, port, "/healthz/ready", router_check, cluster.routers)


def _config(cluster: Cluster, services: Iterable[BalancedService]) -> bytes:
    places = balancer_places(cluster)
    libvirt = libvirt_of(cluster)
    port = libvirt.stats_port if libvirt is not None else DEFAULT_STATS_PORT
    parts = [_head(places), _STATS.format(port=port), *(_section(one) for one in services)]
    return "\n".join(parts).encode()


def _head(places: BalancerPlaces) -> str:
    return _GLOBAL.format(socket=places.stats_socket, service=_SERVICE if places.is_service else "")


def _section(service: BalancedService) -> str:
    lines = [
        f"frontend {service.name}",
        f"    bind {socket_address(service.vip, service.port)}",
        f"    default_backend {service.name}",
        "",
        f"backend {service.name}",
        *([f"    # {service.note}"] if service.note else []),
        f"    option httpchk GET {service.health}",
        "    http-check expect status 200",
        *(
            ["    # All spares at once, not the first of them alone.", "    option allbackups"]
            if service.spares
            else []
        ),
        *(_server(service, node, "") for node in service.servers),
        *(_server(service, node, " backup") for node in service.spares),
    ]
    return "\n".join(lines) + "\n"


def _server(service: BalancedService, node: ClusterNode, suffix: str) -> str:
    return f"    server {node.name} {socket_address(node.address, service.port)} {service.check}{suffix}"


def socket_address(address: IpAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
