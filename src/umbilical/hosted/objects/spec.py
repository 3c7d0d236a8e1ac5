"""The one input of a hosted control plane's tunnel: what it is called, how agents reach it, who may trust whom.

Values only. `spec_reading` reads them from YAML; what no field alone can tell is judged here, in `problems`.
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

# Kubernetes' own range for ports of nodes; a cluster can have another, but then hardly a narrower one.
NODE_PORTS: Final = range(30000, 32768)
HTTPS_PORT: Final = 443


class Strategy(Enum):
    """How agents outside the management cluster reach the servers."""

    ROUTE = "route"
    NODE_PORT = "nodeport"
    LOAD_BALANCER = "loadbalancer"


class ServerProgram(Enum):
    """Whose programs run: ours know flags that upstream's refuse."""

    UMBILICAL = "umbilical"
    UPSTREAM = "upstream"


class ServerCount(Enum):
    """How agents learn how many servers there are."""

    REPLICAS = "replicas"
    LEASES = "leases"
    """Each server publishes a lease in the hosted cluster; right during a roll-out as well, when a number is wrong."""


class TlsProfile(Enum):
    INTERMEDIATE = "intermediate"
    MODERN = "modern"


class Workload(Enum):
    """What kube-apiserver is."""

    DEPLOYMENT = "Deployment"
    STATIC_POD = "Pod"


@dataclass(frozen=True)
class HostedImages:
    server: str
    agent: str
    proxy: str


@dataclass(frozen=True)
class Publishing:
    strategy: Strategy
    host: str
    """A name or an address; it is in the certificate, so it must be known before anything runs."""
    port: int
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the Route: by which a router of the control plane's own finds it."""

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
    """Of those on nodes. On the host's network they work before there is a pod network."""
    dns_policy: str = "Default"
    """The node's resolver; the cluster's own is reached through what agents make possible."""
    control_plane_replicas: int = 2
    control_plane_user: int = 0
    """As whom those beside the control plane run; 0: whoever the management cluster's SCC chooses."""


@dataclass(frozen=True)
class HostedNetworks:
    """Of the hosted cluster."""

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
    """A file to patch, named from where the spec lies; empty: only a patch is written."""
    container: str = names.KUBE_APISERVER
    """Which one gets the egress selector, where no manifest tells."""
    labels: Mapping[str, str] = field(default_factory=lambda: {"app": names.KUBE_APISERVER})
    """By which Services and policies find its pods."""
    ports: tuple[int, ...] = (6443,)
    """What everybody may reach, as ever: the first policy that selects a pod closes all that none opens."""
    has_egress_flag: bool = True
    """False where a configuration file takes the place of flags; it must then name the egress file itself."""


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
    """A Service of the control-plane namespace that answers for API groups of the hosted cluster."""

    service: str
    addresses: tuple[IpAddress, ...] = ()
    """Its ClusterIPs. Empty: not known yet, looked up at rendering, if the management cluster is at hand."""
    groups: tuple[ApiGroup, ...] = ()


@dataclass(frozen=True)
class Leases:
    kubeconfig_secret: str = ""
    """Of the control-plane namespace, key `kubeconfig`: by which servers reach the hosted cluster's API."""
    user: str = "system:konnectivity-server"
    """Who that kubeconfig is; gets the right to leases, and nothing else."""


@dataclass(frozen=True)
class Pki:
    signers: Signers = Signers.SEPARATE
    key_type: KeyType = KeyType.RSA_2048
    authority_days: int = 3650
    certificate_days: int = 365
    renew_percent: int = 33
    """A certificate is renewed when less than this part of its life is left."""
    signers_in_cluster: bool = False
    """Whether the signers' keys become Secrets as well; otherwise they stay in the directory of `--pki`."""


@dataclass(frozen=True)
class DataPlaneProxy:
    """The user's proxy for what leaves the data plane. Stays out of `repr`: URLs may hold passwords."""

    http: str = field(default="", repr=False)
    https: str = field(default="", repr=False)
    no_proxy: tuple[str, ...] = ()
    trusted_ca: str = ""
    """A ConfigMap of the control-plane namespace, key `ca-bundle.crt`: by which a proxy that speaks TLS is known."""

    @property
    def is_set(self) -> bool:
        return bool(self.http or self.https)


@dataclass(frozen=True)
class ManagementProxy:
    """By which the management cluster's pods reach what is outside. Stays out of `repr`: a URL may hold a password."""

    https: str = field(default="", repr=False)
    no_proxy: tuple[str, ...] = ()

    @property
    def is_set(self) -> bool:
        return bool(self.https)


@dataclass(frozen=True)
class Monitoring:
    enabled: bool = True
    namespaces: tuple[str, ...] = ("openshift-monitoring", "openshift-user-workload-monitoring")
    """From where metrics are read; they may reach the health port, and nobody else outside the namespace may."""


@dataclass(frozen=True)
class HostedSpec:
    name: str
    """Of the hosted cluster."""
    namespace: str
    """Of its control plane, in the management cluster."""
    images: HostedImages
    publishing: Publishing
    networks: HostedNetworks
    replicas: int = 3
    """Of kube-apiserver; there are as many servers."""
    server: ServerProgram = ServerProgram.UMBILICAL
    server_count: ServerCount = ServerCount.REPLICAS
    leases: Leases = Leases()
    agents: Agents = Agents()
    kube_apiserver: KubeApiserver = field(default_factory=KubeApiserver)
    aggregated_apis: tuple[AggregatedApi, ...] = ()
    aggregated_authority: str = ""
    """PEM: by which kube-apiserver knows the aggregated API servers."""
    tls_profile: TlsProfile = TlsProfile.INTERMEDIATE
    pki: Pki = Pki()
    proxy: DataPlaneProxy = DataPlaneProxy()
    management_proxy: ManagementProxy = ManagementProxy()
    monitoring: Monitoring = Monitoring()
    components: tuple[str, ...] = ()
    """Who gets proxies as sidecars; of `names.COMPONENTS`."""
    cluster_domain: str = "cluster.local"
    """Of the management cluster: how its Services are called in full."""
    priority_class: str = "hypershift-api-critical"
    """Of kube-apiserver; the control-plane agent has the same, since API calls hang on it."""

    @property
    def is_ours(self) -> bool:
        return self.server is ServerProgram.UMBILICAL

    @property
    def frontend_names(self) -> tuple[str, ...]:
        """By which clients dial the frontend; loopback is for port-forwarding and for kube-apiserver's own pod."""
        return ("localhost", *self._service_names(names.SERVER_LOCAL), "127.0.0.1")

    @property
    def agent_listener_names(self) -> tuple[str, ...]:
        """By which agents dial, those in the management cluster first."""
        return tuple(dict.fromkeys((*self._service_names(names.SERVER), self.publishing.host)))

    @property
    def frontend_url(self) -> str:
        return f"https://{names.SERVER_LOCAL}:{names.FRONTEND_PORT}"

    @property
    def known_addresses(self) -> tuple[IpAddress, ...]:
        """What the control-plane agent reaches, as far as it is known."""
        return tuple(dict.fromkeys(one for api in self.aggregated_apis for one in api.addresses))

    @property
    def labels(self) -> dict[str, str]:
        """What every object carries."""
        key, value = names.PART_LABEL
        return {key: value, "app.kubernetes.io/instance": self.name}

    def replace(self, **changes: Any) -> "HostedSpec":
        return dataclasses.replace(self, **changes)

    def with_addresses(self, found: Mapping[str, tuple[IpAddress, ...]]) -> "HostedSpec":
        """Put in what was looked up, by names of Services; those that the spec does not name yet are added."""
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
    """Tell what contradicts itself or cannot work, each in one sentence."""
    yield from _publishing_problems(spec.publishing)
    yield from _count_problems(spec)
    yield from _aggregation_problems(spec)
    yield from _network_problems(spec.networks)
    if spec.proxy.trusted_ca and not spec.proxy.is_set:
        yield "proxy.trustedCa is given without a proxy"
    if spec.pki.certificate_days >= spec.pki.authority_days:
        yield "pki.certificateDays must be less than pki.authorityDays: nothing outlives its signer"


def _publishing_problems(publishing: Publishing) -> Iterator[str]:
    if publishing.strategy is Strategy.ROUTE and publishing.address is not None:
        yield f"publish.host {publishing.host} is an address, and routers find a Route by a name in the TLS handshake"
    if publishing.strategy is Strategy.NODE_PORT and publishing.port not in NODE_PORTS:
        yield f"publish.port {publishing.port} is no port of nodes: {NODE_PORTS.start} to {NODE_PORTS.stop - 1}"
    if publishing.labels and publishing.strategy is not Strategy.ROUTE:
        yield "publish.labels are for a Route, and there is none"
    address = publishing.address
    if address is not None and (address.is_unspecified or address.is_multicast):
        yield f"publish.host {publishing.host}: nobody can connect to it"


def _count_problems(spec: HostedSpec) -> Iterator[str]:
    if spec.server_count is ServerCount.LEASES and not spec.leases.kubeconfig_secret:
        yield "serverCount leases needs leases.kubeconfigSecret: servers publish them in the hosted cluster"
    if spec.kube_apiserver.workload is Workload.STATIC_POD and spec.server_count is ServerCount.LEASES:
        yield "serverCount leases needs a Secret, and a static pod cannot use one"
    if not spec.kube_apiserver.ports:
        yield "kubeApiserver.ports is empty: network policies would close kube-apiserver to everybody"
    if spec.kube_apiserver.workload is Workload.STATIC_POD and not spec.kube_apiserver.manifest:
        yield "kubeApiserver.manifest is needed: a static pod is a file, and nothing patches it in the cluster"


def _aggregation_problems(spec: HostedSpec) -> Iterator[str]:
    services = [api.service for api in spec.aggregated_apis]
    yield from (f"aggregatedApis names {one} twice" for one in _doubles(services))
    groups = [group.name for api in spec.aggregated_apis for group in api.groups]
    yield from (f"aggregatedApis gives {one} to two services" for one in _doubles(groups))
    if groups and not spec.aggregated_authority:
        yield "aggregatedAuthority is needed: kube-apiserver would know the API servers of aggregatedApis by nothing"
    for address in spec.known_addresses:
        if any(address in network for network in spec.networks.all if network.version == address.version):
            # kube-apiserver dials it through the tunnel; were it a guest's as well, an agent on a node might answer.
            yield f"aggregatedApis address {address} lies in a network of the hosted cluster as well"


def _network_problems(networks: HostedNetworks) -> Iterator[str]:
    if not networks.service:
        yield "networks.service is needed: proxies must know which addresses are the hosted cluster's"
    everywhere = networks.all
    for number, one in enumerate(everywhere):
        for other in everywhere[number + 1 :]:
            if one.version == other.version and one.overlaps(other):
                yield f"networks {one} and {other} overlap"


def _doubles(values: list[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})
