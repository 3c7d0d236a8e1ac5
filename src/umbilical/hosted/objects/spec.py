"""The spec of a hosted control plane's tunnel: names, how agents reach the servers, certificates, proxies.

Values only. `spec_reading` reads them from YAML; `problems` validates fields against each other.
"""

import dataclasses
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.pki.table import Signers
from umbilical.manifests.objects import IpAddress, IpNetwork
from umbilical.pki.profiles import KeyType

__all__ = ["HostedSpec", "IpAddress", "IpNetwork", "KeyType", "Signers"]

# Kubernetes' default range for node ports.
NODE_PORTS: Final = range(30000, 32768)
HTTPS_PORT: Final = 443


class Strategy(Enum):
    """How agents outside the management cluster reach the servers."""

    ROUTE = "route"
    NODE_PORT = "nodeport"
    LOAD_BALANCER = "loadbalancer"


class ServerProgram(Enum):
    """Which programs run: ours have flags that upstream's do not."""

    UMBILICAL = "umbilical"
    UPSTREAM = "upstream"


class ServerCount(Enum):
    """How agents learn how many servers there are."""

    REPLICAS = "replicas"
    LEASES = "leases"
    """Each server publishes a lease in the hosted cluster; correct during a rollout too, unlike a fixed number."""


class TlsProfile(Enum):
    INTERMEDIATE = "intermediate"
    MODERN = "modern"


class Workload(Enum):
    """The kind of kube-apiserver's workload."""

    DEPLOYMENT = "Deployment"
    STATIC_POD = "Pod"


@dataclass(frozen=True)
class HostedImages:
    server: str
    agent: str
    proxy: str
    """For the sidecars of components: always ours, because upstream's images have no proxies."""


@dataclass(frozen=True)
class Publishing:
    strategy: Strategy
    host: str
    """A name or an address. It is part of the certificate, so it must be known at rendering."""
    port: int
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the Route, for a router that selects Routes by label."""

    @property
    def address(self) -> IpAddress | None:
        """The host, if it is an address."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


@dataclass(frozen=True)
class Agents:
    host_network: bool = True
    """For agents on nodes: with the host's network they work before there is a pod network."""
    dns_policy: str = "Default"
    """Default is the node's resolver: the cluster's own may depend on the agents."""
    control_plane_replicas: int = 2
    control_plane_user: int = 0
    """User ID of the control-plane agents; 0: assigned by the management cluster's SCC."""


@dataclass(frozen=True)
class HostedNetworks:
    """Networks of the hosted cluster."""

    cluster: tuple[IpNetwork, ...] = ()
    service: tuple[IpNetwork, ...] = ()
    machine: tuple[IpNetwork, ...] = ()

    @property
    def all(self) -> tuple[IpNetwork, ...]:
        return (*self.cluster, *self.service, *self.machine)


@dataclass(frozen=True)
class KubeApiserver:
    name: str = names.KUBE_APISERVER
    workload: Workload = Workload.DEPLOYMENT
    manifest: str = ""
    """A file to patch, relative to the spec file; empty: only a patch is written."""
    container: str = names.KUBE_APISERVER
    """Name of the container that gets the egress selector."""
    labels: Mapping[str, str] = field(default_factory=lambda: {"app": names.KUBE_APISERVER})
    """Pod labels that Services and NetworkPolicies select."""
    ports: tuple[int, ...] = (6443,)
    """Ports that stay open to everybody: the first policy that selects a pod closes all others."""
    has_egress_flag: bool = True
    """False if kube-apiserver is configured by a file, which must then name the egress file itself."""


@dataclass(frozen=True)
class ApiGroup:
    group: str
    version: str = "v1"
    group_priority: int = 9900
    version_priority: int = 15

    @property
    def name(self) -> str:
        return f"{self.version}.{self.group}"


@dataclass(frozen=True)
class AggregatedApi:
    """A Service of the control-plane namespace that serves API groups of the hosted cluster."""

    service: str
    addresses: tuple[IpAddress, ...] = ()
    """Its ClusterIPs. Empty: looked up at rendering with --management-kubeconfig."""
    groups: tuple[ApiGroup, ...] = ()


@dataclass(frozen=True)
class Leases:
    kubeconfig_secret: str = ""
    """Secret in the control-plane namespace with the servers' kubeconfig for the hosted cluster (key `kubeconfig`)."""
    user: str = "system:konnectivity-server"
    """User of that kubeconfig; gets permission for leases only."""


@dataclass(frozen=True)
class Pki:
    signers: Signers = Signers.SEPARATE
    key_type: KeyType = KeyType.RSA_2048
    authority_days: int = 3650
    certificate_days: int = 365
    renew_percent: int = 33
    """A certificate is renewed when less than this percentage of its lifetime is left."""
    signers_in_cluster: bool = False
    """Whether the signers' keys are also stored as Secrets; otherwise they stay in the `--pki` directory."""


@dataclass(frozen=True)
class DataPlaneProxy:
    """The user's proxy for traffic that leaves the data plane. Not in `repr`: URLs may hold passwords."""

    http: str = field(default="", repr=False)
    https: str = field(default="", repr=False)
    no_proxy: tuple[str, ...] = ()
    trusted_ca: str = ""
    """ConfigMap of the control-plane namespace with the CA of a proxy with an https:// URL (key `ca-bundle.crt`)."""

    @property
    def is_set(self) -> bool:
        return bool(self.http or self.https)


@dataclass(frozen=True)
class ManagementProxy:
    """Proxy for traffic that leaves the management cluster. Not in `repr`: a URL may hold a password."""

    https: str = field(default="", repr=False)
    no_proxy: tuple[str, ...] = ()

    @property
    def is_set(self) -> bool:
        return bool(self.https)


@dataclass(frozen=True)
class Monitoring:
    enabled: bool = True
    namespaces: tuple[str, ...] = ("openshift-monitoring", "openshift-user-workload-monitoring")
    """Namespaces of Prometheus; from outside the namespace only they may reach the health port."""


@dataclass(frozen=True)
class HostedSpec:
    name: str
    """Name of the hosted cluster."""
    namespace: str
    """Namespace of its control plane in the management cluster."""
    images: HostedImages
    publishing: Publishing
    networks: HostedNetworks
    replicas: int = 3
    """Replicas of kube-apiserver, and thus of servers."""
    server: ServerProgram = ServerProgram.UMBILICAL
    server_count: ServerCount = ServerCount.REPLICAS
    leases: Leases = Leases()
    agents: Agents = Agents()
    kube_apiserver: KubeApiserver = field(default_factory=KubeApiserver)
    aggregated_apis: tuple[AggregatedApi, ...] = ()
    aggregated_authority: str = ""
    """PEM of the CA by which kube-apiserver verifies the aggregated API servers."""
    tls_profile: TlsProfile = TlsProfile.INTERMEDIATE
    pki: Pki = Pki()
    proxy: DataPlaneProxy = DataPlaneProxy()
    management_proxy: ManagementProxy = ManagementProxy()
    monitoring: Monitoring = Monitoring()
    components: tuple[str, ...] = ()
    """Deployments that get proxies as sidecars; of `names.COMPONENTS`."""
    cluster_domain: str = "cluster.local"
    """Cluster domain of the management cluster."""
    priority_class: str = "hypershift-api-critical"
    """PriorityClass of the control-plane agent: kube-apiserver's, because API calls depend on both."""

    @property
    def is_ours(self) -> bool:
        return self.server is ServerProgram.UMBILICAL

    @property
    def frontend_names(self) -> tuple[str, ...]:
        """Names and addresses by which clients dial; loopback is for port forwarding and kube-apiserver's own pod."""
        return ("localhost", *self._service_names(names.SERVER_LOCAL), "127.0.0.1")

    @property
    def agent_listener_names(self) -> tuple[str, ...]:
        """Names and addresses by which agents dial, those in the management cluster first."""
        return tuple(dict.fromkeys((*self._service_names(names.SERVER), self.publishing.host)))

    @property
    def frontend_url(self) -> str:
        return f"https://{names.SERVER_LOCAL}:{names.FRONTEND_PORT}"

    @property
    def known_addresses(self) -> tuple[IpAddress, ...]:
        """The known addresses that the control-plane agent serves."""
        return tuple(dict.fromkeys(one for api in self.aggregated_apis for one in api.addresses))

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every object."""
        key, value = names.PART_LABEL
        return {key: value, "app.kubernetes.io/instance": self.name}

    def replace(self, **changes: Any) -> "HostedSpec":
        return dataclasses.replace(self, **changes)

    def with_addresses(self, found: Mapping[str, tuple[IpAddress, ...]]) -> "HostedSpec":
        """Return the spec with addresses by Service name; Services that it does not name are added."""
        known = [
            dataclasses.replace(api, addresses=tuple(found.get(api.service) or api.addresses))
            for api in self.aggregated_apis
        ]
        named = {api.service for api in known}
        new = [AggregatedApi(name, tuple(addresses)) for name, addresses in found.items() if name not in named]
        return self.replace(aggregated_apis=(*known, *new))

    def _service_names(self, service: str) -> tuple[str, ...]:
        return service, f"{service}.{self.namespace}.svc", f"{service}.{self.namespace}.svc.{self.cluster_domain}"


def problems(spec: HostedSpec) -> Iterator[str]:
    """Yield every contradiction as one sentence."""
    yield from _publishing_problems(spec.publishing)
    yield from _count_problems(spec)
    yield from _aggregation_problems(spec)
    yield from _network_problems(spec.networks)
    if spec.proxy.trusted_ca and not spec.proxy.is_set:
        yield "proxy.trustedCa is given without a proxy"
    if spec.pki.certificate_days >= spec.pki.authority_days:
        yield "pki.certificateDays must be less than pki.authorityDays: a certificate must not outlive its signer"


def _publishing_problems(publishing: Publishing) -> Iterator[str]:
    if publishing.strategy is Strategy.ROUTE and publishing.address is not None:
        yield f"publish.host {publishing.host} is an address, but a Route is found by the name in the TLS handshake"
    if publishing.strategy is Strategy.NODE_PORT and publishing.port not in NODE_PORTS:
        yield f"publish.port {publishing.port} is not a node port: use {NODE_PORTS.start} to {NODE_PORTS.stop - 1}"
    if publishing.labels and publishing.strategy is not Strategy.ROUTE:
        yield "publish.labels are allowed only with strategy route"
    address = publishing.address
    if address is not None and (address.is_unspecified or address.is_multicast):
        yield f"publish.host {publishing.host} is not an address to connect to"


def _count_problems(spec: HostedSpec) -> Iterator[str]:
    if spec.server_count is ServerCount.LEASES and not spec.leases.kubeconfig_secret:
        yield "serverCount leases needs leases.kubeconfigSecret: servers publish leases in the hosted cluster"
    if spec.kube_apiserver.workload is Workload.STATIC_POD and spec.server_count is ServerCount.LEASES:
        yield "serverCount leases needs a Secret, and a static pod cannot use one"
    if not spec.kube_apiserver.ports:
        yield "kubeApiserver.ports is empty: network policies would close kube-apiserver to everybody"
    if spec.kube_apiserver.workload is Workload.STATIC_POD and not spec.kube_apiserver.manifest:
        yield "kubeApiserver.manifest is required for a static pod: it cannot be patched in the cluster"


def _aggregation_problems(spec: HostedSpec) -> Iterator[str]:
    services = [api.service for api in spec.aggregated_apis]
    yield from (f"aggregatedApis names {one} twice" for one in _doubles(services))
    groups = [group.name for api in spec.aggregated_apis for group in api.groups]
    yield from (f"aggregatedApis gives {one} to two services" for one in _doubles(groups))
    if groups and not spec.aggregated_authority:
        yield "aggregatedAuthority is required: kube-apiserver verifies the servers of aggregatedApis with it"
    for address in spec.known_addresses:
        if any(address in network for network in spec.networks.all if network.version == address.version):
            # kube-apiserver dials it through the tunnel: an agent on a node might get the dial.
            yield f"aggregatedApis address {address} is also in a network of the hosted cluster"


def _network_problems(networks: HostedNetworks) -> Iterator[str]:
    if not networks.service:
        yield "networks.service is required: proxies need the addresses of the hosted cluster"
    everywhere = networks.all
    for number, one in enumerate(everywhere):
        for other in everywhere[number + 1 :]:
            if one.version == other.version and one.overlaps(other):
                yield f"networks {one} and {other} overlap"


def _doubles(values: list[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})
