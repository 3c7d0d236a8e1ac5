"""Which component of a hosted control plane reaches what by which proxy, what no proxy may be asked for, and the
Secrets of the user's own proxy, since a proxy's URL may hold a password.
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
"""Services of catalogs that run in the control-plane namespace instead of the data plane."""


class ProxyKind(Enum):
    SOCKS5 = "socks5"
    HTTPS = "https"


class NameResolution(Enum):
    """Who turns names into addresses."""

    AGENT = "agent"
    HOSTED = "guest"
    """HyperShift's SOCKS5 proxy asks the management cluster unless told otherwise, which is the wrong view of the
    data plane's names; the hosted cluster's DNS answers for its Services as well."""
    HOSTED_THEN_MANAGEMENT = "guest-then-management"
    """For what must work before there are nodes."""


HEALTH_PORTS: Final = MappingProxyType({ProxyKind.SOCKS5: 8190, ProxyKind.HTTPS: 8192})
"""Liveness, readiness and metrics; apart, since one pod has both."""


@dataclass(frozen=True)
class Proxy:
    kind: ProxyKind
    port: int = names.FRONTEND_PORT
    names: NameResolution = NameResolution.HOSTED
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
class ControlPlaneComponent:
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
    ControlPlaneComponent(
        "openshift-apiserver",
        (_HTTPS,),
        "imports of images honour the user's proxy; webhooks are in the data plane",
        _HTTP_BY_HTTPS,
    ),
    ControlPlaneComponent(
        "openshift-oauth-apiserver",
        (_SOCKS5,),
        "admission webhooks in the data plane",
        _HTTP_BY_SOCKS5,
    ),
    ControlPlaneComponent(
        "oauth-openshift",
        (
            Proxy(ProxyKind.HTTPS, names.OAUTH_HTTPS_PORT, to_cloud_apis=True),
            Proxy(ProxyKind.SOCKS5, names=NameResolution.HOSTED_THEN_MANAGEMENT),
        ),
        "identity providers by HTTP through the user's proxy, by LDAP without; both before there are nodes",
        {**_HTTP_BY_HTTPS, "ALL_PROXY": ProxyKind.SOCKS5},
        # HyperShift adds hosts of IBM's login on IBM's cloud; they are among the cloud APIs already.
        ("oauth-openshift",),
    ),
    ControlPlaneComponent(
        "ingress-operator",
        (Proxy(ProxyKind.HTTPS, to_cloud_apis=True),),
        "canary checks through the data plane, and DNS records at the cloud before there are nodes",
        _HTTP_BY_HTTPS,
    ),
    ControlPlaneComponent(
        "cluster-network-operator",
        (Proxy(ProxyKind.SOCKS5, names=NameResolution.AGENT),),
        "checks of the user's proxy, whose name must stay a name, or it would be asked twice (OCPBUGS-26762)",
    ),
    ControlPlaneComponent(
        "ovnkube-control-plane",
        # The container that the network operator gives it; a second one would find the port taken.
        (Proxy(ProxyKind.SOCKS5, container="socks-proxy"),),
        "interconnect of OVN",
        {"ALL_PROXY": ProxyKind.SOCKS5},
    ),
    ControlPlaneComponent("olm-operator", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
    ControlPlaneComponent("catalog-operator", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
    ControlPlaneComponent("packageserver", (_SOCKS5,), "gRPC to catalogs in the data plane", _GRPC, CATALOGS),
)
COMPONENTS: Final = MappingProxyType({component.name: component for component in _TABLE})


def chosen(spec: HostedSpec) -> tuple[ControlPlaneComponent, ...]:
    return tuple(COMPONENTS[name] for name in spec.components)


LOOPBACK: Final = ("127.0.0.1", "localhost")
HOSTED_SUFFIXES: Final = (".svc", ".cluster.local", ".hypershift.local")
"""Names that only the hosted cluster or its control plane knows."""
METADATA: Final = "169.254.169.254"
"""Where a cloud's machines ask who they are: an address of the link, whichever cloud it is."""
CONTROL_PLANE: Final = (names.KUBE_APISERVER, "etcd-client", "audit-webhook")
"""Services beside the components, by the short names under which those know them."""


def for_user_proxy(spec: HostedSpec) -> str:
    """What the HTTP proxy sends through the tunnel and not to the user's proxy behind it."""
    networks = [str(network) for network in spec.networks.all if network.prefixlen > 0]
    return _joined([*LOOPBACK, *HOSTED_SUFFIXES, METADATA, *networks, *spec.proxy.no_proxy])


def for_component(spec: HostedSpec, more: Iterable[str] = ()) -> str:
    """What a component dials by itself: whatever stands in its own namespace never enters the tunnel."""
    suffixes = (f".{spec.namespace}.svc", f".{spec.namespace}.svc.{spec.cluster_domain}")
    return _joined([*LOOPBACK, *CONTROL_PLANE, *suffixes, *more])


def for_sidecar(spec: HostedSpec) -> str:
    """What a proxy dials without the management cluster's: the servers and the hosted API are beside it."""
    return for_component(spec, (names.SERVER_LOCAL, *spec.management_proxy.no_proxy))


def for_kube_apiserver(spec: HostedSpec, management: Iterable[str] = ()) -> str:
    """What kube-apiserver sends to the tunnel's server though its pod has a proxy: all of the hosted cluster.

    Without the machines' networks a proxy that looks into TLS would answer for kubelets (OCPBUGS-86693).
    """
    networks = [str(network) for network in spec.networks.all if network.prefixlen > 0]
    own = (names.KUBE_APISERVER, names.SERVER_LOCAL, names.SERVER)
    return _joined([*management, *LOOPBACK, *own, *networks])


def _joined(entries: Iterable[str]) -> str:
    """Sorted, so that what is rendered does not change with the order of a spec; blanks are the user's, not Go's."""
    return ",".join(sorted({entry.strip() for entry in entries if entry.strip()}))


def proxy_secret(spec: HostedSpec, namespace: str) -> list[Object]:
    """The user's, for sidecars and for agents on nodes."""
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
    """For sidecars that dial clouds' APIs by themselves; others have no use for it."""
    dials = any(proxy.to_cloud_apis for component in chosen(spec) for proxy in component.proxies)
    if not (dials and spec.management_proxy.is_set):
        return []
    variables = {"HTTPS_PROXY": spec.management_proxy.https, "NO_PROXY": for_sidecar(spec)}
    head = metadata(spec, names.MANAGEMENT_PROXY_SECRET, spec.namespace)
    return [secret(head, {name: value.encode() for name, value in variables.items()})]
