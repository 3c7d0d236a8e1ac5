"""Which component of a hosted control plane uses which proxy, the NO_PROXY lists, and the Secrets with the user's own
proxy, whose URL may hold a password.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.forms import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, secret

CATALOGS: Final = ("certified-operators", "community-operators", "redhat-marketplace", "redhat-operators")
"""Services of catalogs that run in the control-plane namespace, not in the data plane."""


class ProxyKind(Enum):
    SOCKS5 = "socks5"
    HTTPS = "https"


class NameResolution(Enum):
    """Where a sidecar resolves names."""

    AGENT = "agent"
    HOSTED = "guest"
    """The hosted cluster's DNS, also for its Services. HyperShift's SOCKS5 proxy uses the management cluster's DNS by
    default, which does not know the data plane's names."""
    HOSTED_THEN_MANAGEMENT = "guest-then-management"
    """For traffic that must work before there are nodes."""


HEALTH_PORTS: Final = MappingProxyType({ProxyKind.SOCKS5: 8190, ProxyKind.HTTPS: 8192})
"""Liveness, readiness and metrics. Different ports, because one pod has both proxies."""


@dataclass(frozen=True)
class Proxy:
    kind: ProxyKind
    port: int = names.FRONTEND_PORT
    resolution: NameResolution = NameResolution.HOSTED
    to_cloud_apis: bool = False
    """Whether cloud APIs are dialled directly from the pod: they are needed before there are nodes."""
    container: str = ""
    """Container name; empty: HyperShift's name."""

    @property
    def container_name(self) -> str:
        return self.container or f"konnectivity-proxy-{self.kind.value}"

    @property
    def url(self) -> str:
        scheme = "socks5" if self.kind is ProxyKind.SOCKS5 else "http"
        return f"{scheme}://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class ProxiedComponent:
    """A Deployment of the control-plane namespace; its main container has the same name."""

    name: str
    proxies: tuple[Proxy, ...]
    why: str
    variables: Mapping[str, ProxyKind] = field(default_factory=dict)
    """Environment of the main container by kind of proxy; empty if its code has the address."""
    no_proxy: tuple[str, ...] = ()
    """Added to the NO_PROXY list that all components share."""

    def environment(self) -> dict[str, str]:
        urls = {proxy.kind: proxy.url for proxy in self.proxies}
        return {variable: urls[kind] for variable, kind in self.variables.items()}


_SOCKS5: Final = Proxy(ProxyKind.SOCKS5)
_HTTPS: Final = Proxy(ProxyKind.HTTPS)
_HTTP_BY_SOCKS5: Final = {"HTTP_PROXY": ProxyKind.SOCKS5, "HTTPS_PROXY": ProxyKind.SOCKS5}
_HTTP_BY_HTTPS: Final = {"HTTP_PROXY": ProxyKind.HTTPS, "HTTPS_PROXY": ProxyKind.HTTPS}
_GRPC: Final = {"GRPC_PROXY": ProxyKind.SOCKS5}

_TABLE: Final = (
    ProxiedComponent(
        "openshift-apiserver",
        (_HTTPS,),
        "image imports use the user's proxy; webhooks are in the data plane",
        _HTTP_BY_HTTPS,
    ),
    ProxiedComponent(
        "openshift-oauth-apiserver",
        (_SOCKS5,),
        "admission webhooks in the data plane",
        _HTTP_BY_SOCKS5,
    ),
    ProxiedComponent(
        "oauth-openshift",
        (
            Proxy(ProxyKind.HTTPS, names.OAUTH_HTTPS_PORT, to_cloud_apis=True),
            Proxy(ProxyKind.SOCKS5, resolution=NameResolution.HOSTED_THEN_MANAGEMENT),
        ),
        "identity providers over HTTP with the user's proxy, over LDAP without; both before there are nodes",
        {**_HTTP_BY_HTTPS, "ALL_PROXY": ProxyKind.SOCKS5},
        # HyperShift adds the login hosts of IBM Cloud; they are among the cloud APIs already.
        ("oauth-openshift",),
    ),
    ProxiedComponent(
        "ingress-operator",
        (Proxy(ProxyKind.HTTPS, to_cloud_apis=True),),
        "canary checks through the data plane, and DNS records at the cloud before there are nodes",
        _HTTP_BY_HTTPS,
    ),
    ProxiedComponent(
        "cluster-network-operator",
        (Proxy(ProxyKind.SOCKS5, resolution=NameResolution.AGENT),),
        "checks of the user's proxy, whose name must stay unresolved (OCPBUGS-26762)",
    ),
    ProxiedComponent(
        "ovnkube-control-plane",
        # The container of the network operator; a second one could not bind the port.
        (Proxy(ProxyKind.SOCKS5, container="socks-proxy"),),
        "interconnect of OVN",
        {"ALL_PROXY": ProxyKind.SOCKS5},
    ),
    ProxiedComponent("olm-operator", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
    ProxiedComponent("catalog-operator", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
    ProxiedComponent("packageserver", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
)
COMPONENTS: Final = MappingProxyType({component.name: component for component in _TABLE})


def chosen(spec: HostedSpec) -> tuple[ProxiedComponent, ...]:
    return tuple(COMPONENTS[name] for name in spec.components)


LOOPBACK: Final = ("127.0.0.1", "localhost")
HOSTED_SUFFIXES: Final = (".svc", ".cluster.local", ".hypershift.local")
"""Names that exist only in the hosted cluster or its control plane."""
METADATA: Final = "169.254.169.254"
"""Link-local address of the metadata service, in every cloud."""
CONTROL_PLANE: Final = (names.KUBE_APISERVER, "etcd-client", "audit-webhook")
"""Services of the control-plane namespace that components use by short name."""


def for_user_proxy(spec: HostedSpec) -> str:
    """Return NO_PROXY of the HTTP proxy: hosts that it reaches through the tunnel without the user's proxy."""
    networks = [str(network) for network in spec.networks.all if network.prefixlen > 0]
    return _joined([*LOOPBACK, *HOSTED_SUFFIXES, METADATA, *networks, *spec.proxy.no_proxy])


def for_component(spec: HostedSpec, more: Iterable[str] = ()) -> str:
    """Return NO_PROXY of a component: it dials Services of its own namespace directly."""
    suffixes = (f".{spec.namespace}.svc", f".{spec.namespace}.svc.{spec.cluster_domain}")
    return _joined([*LOOPBACK, *CONTROL_PLANE, *suffixes, *more])


def for_sidecar(spec: HostedSpec) -> str:
    """Return NO_PROXY of a sidecar: the servers and kube-apiserver are in its namespace."""
    return for_component(spec, (names.SERVER_LOCAL, *spec.management_proxy.no_proxy))


def for_kube_apiserver(spec: HostedSpec, management: Iterable[str] = ()) -> str:
    """Return NO_PROXY of kube-apiserver: everything in the hosted cluster goes to the tunnel's server.

    Without the machine networks a TLS-intercepting proxy would answer for kubelets (OCPBUGS-86693).
    """
    networks = [str(network) for network in spec.networks.all if network.prefixlen > 0]
    own = (names.KUBE_APISERVER, names.SERVER_LOCAL, names.SERVER)
    return _joined([*management, *LOOPBACK, *own, *networks])


def _joined(entries: Iterable[str]) -> str:
    """Join sorted: the order in the spec must not change what is rendered."""
    return ",".join(sorted({entry.strip() for entry in entries if entry.strip()}))


def proxy_secret(spec: HostedSpec, namespace: str) -> list[Object]:
    """Return the Secret with the user's proxy, for sidecars and for agents on nodes."""
    if not spec.proxy.is_set:
        return []
    variables = {
        "HTTP_PROXY": spec.proxy.http,
        "HTTPS_PROXY": spec.proxy.https,
        "NO_PROXY": for_user_proxy(spec),
    }
    head = metadata(spec, names.PROXY_SECRET, namespace)
    return [secret(head, {name: value.encode() for name, value in variables.items()})]


def management_proxy_secret(spec: HostedSpec) -> list[Object]:
    """Return the Secret with the management cluster's proxy, for sidecars that dial cloud APIs directly."""
    dials = any(proxy.to_cloud_apis for component in chosen(spec) for proxy in component.proxies)
    if not (dials and spec.management_proxy.is_set):
        return []
    variables = {"HTTPS_PROXY": spec.management_proxy.https, "NO_PROXY": for_sidecar(spec)}
    head = metadata(spec, names.MANAGEMENT_PROXY_SECRET, spec.namespace)
    return [secret(head, {name: value.encode() for name, value in variables.items()})]
