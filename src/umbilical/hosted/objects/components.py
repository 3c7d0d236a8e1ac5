"""Which component of a hosted control plane reaches the data plane by which proxy: HyperShift's table, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import HostedSpec

CATALOGS: Final = ("certified-operators", "community-operators", "redhat-marketplace", "redhat-operators")
"""Services of catalogs that run in the control-plane namespace instead of the data plane."""


class ProxyKind(Enum):
    SOCKS5 = "socks5"
    HTTPS = "https"


class Names(Enum):
    """Who turns names into addresses."""

    AGENT = "agent"
    GUEST = "guest"
    """HyperShift's SOCKS5 proxy asks the management cluster unless told otherwise, which is the wrong view of the
    data plane's names; the hosted cluster's DNS answers for its Services as well."""
    GUEST_THEN_MANAGEMENT = "guest-then-management"
    """For what must work before there are nodes."""


HEALTH_PORTS: Final = MappingProxyType({ProxyKind.SOCKS5: 8190, ProxyKind.HTTPS: 8192})
"""Liveness, readiness and metrics; apart, since one pod has both."""


@dataclass(frozen=True)
class Proxy:
    kind: ProxyKind
    port: int = names.FRONTEND_PORT
    names: Names = Names.GUEST
    to_cloud_apis: bool = False
    """Whether hosts of clouds' APIs are dialled from the pod itself: they are needed before there are nodes."""
    container: str = ""
    """Empty: as HyperShift calls them."""

    @property
    def container_name(self) -> str:
        return self.container or f"konnectivity-proxy-{self.kind.value}"

    @property
    def url(self) -> str:
        scheme = "socks5" if self.kind is ProxyKind.SOCKS5 else "http"
        return f"{scheme}://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Component:
    """A Deployment of the control-plane namespace; its main container has the same name."""

    name: str
    proxies: tuple[Proxy, ...]
    why: str
    variables: Mapping[str, ProxyKind] = field(default_factory=dict)
    """By which the main container finds a proxy; none where its code knows the address."""
    no_proxy: tuple[str, ...] = ()
    """Beside what no component sends into the tunnel."""

    def environment(self) -> dict[str, str]:
        urls = {proxy.kind: proxy.url for proxy in self.proxies}
        return {variable: urls[kind] for variable, kind in self.variables.items()}


_SOCKS5: Final = Proxy(ProxyKind.SOCKS5)
_HTTPS: Final = Proxy(ProxyKind.HTTPS)
_HTTP_BY_SOCKS5: Final = {"HTTP_PROXY": ProxyKind.SOCKS5, "HTTPS_PROXY": ProxyKind.SOCKS5}
_HTTP_BY_HTTPS: Final = {"HTTP_PROXY": ProxyKind.HTTPS, "HTTPS_PROXY": ProxyKind.HTTPS}
_GRPC: Final = {"GRPC_PROXY": ProxyKind.SOCKS5}

_TABLE: Final = (
    Component(
        "openshift-apiserver",
        (_HTTPS,),
        "imports of images honour the user's proxy; webhooks are in the data plane",
        _HTTP_BY_HTTPS,
    ),
    Component(
        "openshift-oauth-apiserver",
        (_SOCKS5,),
        "admission webhooks in the data plane",
        _HTTP_BY_SOCKS5,
    ),
    Component(
        "oauth-openshift",
        (
            Proxy(ProxyKind.HTTPS, names.OAUTH_HTTPS_PORT, to_cloud_apis=True),
            Proxy(ProxyKind.SOCKS5, names=Names.GUEST_THEN_MANAGEMENT),
        ),
        "identity providers by HTTP through the user's proxy, by LDAP without; both before there are nodes",
        {**_HTTP_BY_HTTPS, "ALL_PROXY": ProxyKind.SOCKS5},
        # HyperShift adds hosts of IBM's login on IBM's cloud; they are among the cloud APIs already.
        ("oauth-openshift",),
    ),
    Component(
        "ingress-operator",
        (Proxy(ProxyKind.HTTPS, to_cloud_apis=True),),
        "canary checks through the data plane, and DNS records at the cloud before there are nodes",
        _HTTP_BY_HTTPS,
    ),
    Component(
        "cluster-network-operator",
        (Proxy(ProxyKind.SOCKS5, names=Names.AGENT),),
        "checks of the user's proxy, whose name must stay a name, or it would be asked twice (OCPBUGS-26762)",
    ),
    Component(
        "ovnkube-control-plane",
        # The container that the network operator gives it; a second one would find the port taken.
        (Proxy(ProxyKind.SOCKS5, container="socks-proxy"),),
        "interconnect of OVN",
        {"ALL_PROXY": ProxyKind.SOCKS5},
    ),
    Component("olm-operator", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
    Component("catalog-operator", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
    Component("packageserver", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
)
COMPONENTS: Final = MappingProxyType({component.name: component for component in _TABLE})


def chosen(spec: HostedSpec) -> tuple[Component, ...]:
    return tuple(COMPONENTS[name] for name in spec.components)
