"""HAProxy's two configurations: before the pivot with the bootstrap node, and after it without.

Before the pivot every request goes to the bootstrap node's kube-apiserver, the only one with the tunnel. The masters
are `backup` servers and checked all the time, so that the pivot is a reload to servers that are known to be ready.
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
"""Port of the health endpoint of OpenShift's routers, plain HTTP."""
HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443

_GLOBAL: Final = """\
global
    maxconn 4000
    # Log state changes of servers, but not connections.
    log stderr format raw local0 notice
    # expose-fd: at a reload the new process takes over the listening sockets, so no connection is refused.
    stats socket {socket} mode 600 level admin expose-fd listeners
    stats timeout 1m
    # After a reload the old process serves its connections; this ends long watches.
    hard-stop-after 1h
{service}
defaults
    mode tcp
    log global
    balance roundrobin
    # If a server refuses a connection, the next one is tried at once.
    retries 3
    option redispatch 1
    timeout connect 5s
    timeout queue 1m
    timeout check 10s
    # Watches, exec and port-forward may be idle for long; a timeout of a minute would close them.
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
    # Sessions stay open when a server goes down: kube-apiserver still serves for a while after /readyz fails.
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
    """A frontend and a backend of the same name."""

    name: str
    vip: IpAddress
    port: int
    health: str
    """Path of an HTTP GET that returns 200 if the server is ready."""
    check: str
    """HAProxy's check options of a server."""
    servers: tuple[ClusterNode, ...]
    spares: tuple[ClusterNode, ...] = ()
    """Backup servers: checked like the servers, used if none of those is up."""
    note: str = ""


def haproxy_bootstrap(cluster: Cluster) -> bytes:
    """Return the configuration until the pivot."""
    return _config(cluster, _services(cluster, (cluster.bootstrap,), cluster.masters))


def haproxy_final(cluster: Cluster) -> bytes:
    """Return the configuration after the pivot."""
    return _config(cluster, _services(cluster, cluster.masters, ()))


def _services(
    cluster: Cluster, servers: tuple[ClusterNode, ...], spares: tuple[ClusterNode, ...]
) -> Iterator[BalancedService]:
    places, networks = balancer_places(cluster), cluster.networks
    over_tls = "check check-ssl verify required ca-file {}"
    note = "Without check-ssl the HTTP check would mark every server DOWN, because they use TLS."
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
        *(["    # Use all backup servers, not only the first one.", "    option allbackups"] if service.spares else []),
        *(_server(service, node, "") for node in service.servers),
        *(_server(service, node, " backup") for node in service.spares),
    ]
    return "\n".join(lines) + "\n"


def _server(service: BalancedService, node: ClusterNode, suffix: str) -> str:
    return f"    server {node.name} {socket_address(node.address, service.port)} {service.check}{suffix}"


def socket_address(address: IpAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
