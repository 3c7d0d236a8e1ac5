"""Queries the APIs of both clusters for `hosted check`: the control plane's namespace, the nodes with their agents, and
logs as users read them. A failed query is recorded as a fact and does not stop the others.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.cluster.objects import CONFIG_MAP, DAEMON_SET, POD, SECRET, ApiKind
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.fault import ClusterError, HostedError
from umbilical.hosted import servers as health
from umbilical.hosted.access import BURST, FRONTEND, KUBELET, NO_FILES, REQUESTS_PER_SECOND, fetch_pair, fetch_tls
from umbilical.hosted.facts import (
    CertificateFact,
    HostedFacts,
    HostedNode,
    LogRead,
    ManagementFacts,
    ServerHealth,
    Unknown,
)
from umbilical.hosted.objects import names
from umbilical.hosted.objects.kube_apiserver_manifest import flag_value
from umbilical.hosted.pki.table import AGENT, CLIENT, CLUSTER, CONTROL_PLANE_AGENT, SERVER, HostedLeaf, Trust
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.pki.pem import BundleError
from umbilical.tunnel.settings import ServerAddress, TlsFiles

SERVICE: Final = ApiKind("Service", "/api/v1", "services")
DEPLOYMENT: Final = ApiKind("Deployment", "/apis/apps/v1", "deployments")
NETWORK_POLICY: Final = ApiKind("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies")
_BUNDLE_KEYS: Final = {
    Trust.CLIENTS: names.CA_KEY,
    Trust.AGENTS: names.CLUSTER_CA_KEY,
    Trust.FRONTEND: names.CLIENT_CA_KEY,
    Trust.AGENT_LISTENER: names.AGENT_CA_KEY,
}


async def read_namespace(client: ApiClient, namespace: str) -> ManagementFacts:
    """Raises ClusterError."""
    listed = await objects.list_objects(client, SERVICE, namespace)
    services = {str(objects.metadata(item).get("name")): item for item in listed}
    return ManagementFacts(
        server_pods=tuple(await _server_pods(client, namespace, services)),
        services=services,
        policies=tuple(await objects.list_objects(client, NETWORK_POLICY, namespace)),
        control_plane_agent=await objects.get(client, DEPLOYMENT, names.AGENT, namespace),
    )


async def get_bundle(client: ApiClient, namespace: str) -> Json | None:
    return await objects.get(client, CONFIG_MAP, names.CA_BUNDLE, namespace)


async def read_certificate_facts(client: ApiClient, namespace: str, bundle: Json | None) -> tuple[CertificateFact, ...]:
    """Raises ClusterError. The Secrets hold keys too; they are not used."""
    facts = []
    for leaf in (SERVER, CLUSTER, CLIENT, CONTROL_PLANE_AGENT, AGENT):
        secret = await objects.get(client, SECRET, leaf.id, namespace)
        # HyperShift has no CONTROL_PLANE_AGENT Secret here, and ours has no AGENT Secret.
        if secret is not None or leaf in (SERVER, CLUSTER, CLIENT):
            facts.append(certificate_fact(f"{namespace}/{leaf.id}", secret, authorities(bundle, leaf)))
    return tuple(facts)


def certificate_fact(name: str, secret: Json | None, trusted: tuple[Certificate, ...] | None) -> CertificateFact:
    if secret is None:
        return CertificateFact(name, None, "the Secret does not exist")
    encoded = objects.field(secret, "data", "tls.crt")
    try:
        leaf = read_certificates(base64.b64decode(str(encoded or ""), validate=True))[0]
    except (BundleError, binascii.Error, ValueError) as error:
        return CertificateFact(name, None, f"its tls.crt is invalid: {error}")
    return CertificateFact(name, leaf, authorities=trusted)


def authorities(bundle: Json | None, leaf: HostedLeaf) -> tuple[Certificate, ...] | None:
    """Return the CAs by which the peer verifies this certificate; HyperShift's bundle has one key for all."""
    data = objects.field(bundle or {}, "data")
    content = data.get(_BUNDLE_KEYS[leaf.verified_by]) or data.get(names.CA_KEY) if isinstance(data, dict) else None
    try:
        return tuple(read_certificates(str(content).encode())) if content else None
    except BundleError:
        return None


def identifiers(deployment: Json) -> list[str]:
    """Return the addresses and names that a control-plane agent claims, including empty ones."""
    containers = objects.items(objects.field(deployment, "spec", "template", "spec", "containers"))
    values = [value for one in containers if (value := flag_value(one, "--agent-identifiers")) is not None]
    pairs = [pair.partition("=") for value in values for pair in value.split("&") if pair]
    return [value for kind, _, value in pairs if kind in ("ipv4", "ipv6", "host")]


def service_port(services: Iterable[Json], address: str) -> int:
    """Return the port of the Service with this address; 443, the port of aggregated APIs, if there is none."""
    for service in services:
        if address in (objects.field(service, "spec", "clusterIPs") or [objects.field(service, "spec", "clusterIP")]):
            ports = objects.items(objects.field(service, "spec", "ports"))
            return int(ports[0]["port"]) if ports else 443
    return 443


def health_port(pod: Json) -> int:
    return _port(pod, "--health-port", names.HEALTH_PORT)


def frontend_port(pod: Json) -> int:
    return _port(pod, "--server-port", names.FRONTEND_PORT)


def container(pod: Json) -> Json | None:
    """Return the server's container of a pod, if there is one."""
    found = objects.items(objects.field(pod, "spec", "containers"))
    return next((one for one in found if one.get("name") == names.SERVER), None)


def pod_name(pod: Json) -> str:
    return str(objects.metadata(pod).get("name"))


def _port(pod: Json, flag: str, usual: int) -> int:
    value = flag_value(container(pod) or {}, flag) or ""
    return int(value) if value.isascii() and value.isdigit() else usual


async def _server_pods(client: ApiClient, namespace: str, services: dict[str, Json]) -> list[Json]:
    """Return the pods of the Service for clients: kube-apiserver's, whatever their labels are."""
    selector = objects.field(services.get(names.SERVER_LOCAL, {}), "spec", "selector") or {"app": names.KUBE_APISERVER}
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    pods = await objects.list_objects(client, POD, namespace, labels)
    return [pod for pod in pods if container(pod) is not None]


NODE: Final = ApiKind("Node", "/api/v1", "nodes", is_namespaced=False)
KUBELET_PORT: Final = 10250
# A log for each node up to a limit that keeps the check short.
MAX_LOGS: Final = 100
AT_ONCE: Final = 8


async def read_cluster(client: ApiClient) -> HostedFacts:
    """Raises ClusterError: the API does not answer, or refuses the request."""
    nodes = await objects.list_objects(client, NODE)
    pods = await objects.list_objects(client, POD, names.HOSTED_NAMESPACE, f"app={names.AGENT}")
    return HostedFacts(
        nodes=tuple(_node(item) for item in nodes),
        daemon_set=await objects.get(client, DAEMON_SET, names.AGENT, names.HOSTED_NAMESPACE),
        agent_pods=tuple(pods),
        logs=tuple(await _logs(client, [pod for pod in pods if _is_running(pod)][:MAX_LOGS])),
    )


async def read_agent_certificate(client: ApiClient, bundle: Json | None) -> CertificateFact:
    """`bundle` is the management cluster's: it holds the CAs by which servers verify agents."""
    secret = await objects.get(client, SECRET, AGENT.id, names.HOSTED_NAMESPACE)
    return certificate_fact(f"hosted {names.HOSTED_NAMESPACE}/{AGENT.id}", secret, authorities(bundle, AGENT))


def _node(item: Json) -> HostedNode:
    addresses = objects.items(objects.field(item, "status", "addresses"))
    internal = [str(one.get("address")) for one in addresses if one.get("type") == "InternalIP"]
    conditions = objects.items(objects.field(item, "status", "conditions"))
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    port = objects.field(item, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    return HostedNode(
        name=str(objects.metadata(item).get("name")),
        address=internal[0] if internal else "",
        kubelet_port=port if isinstance(port, int) and port else KUBELET_PORT,
        is_ready=ready,
    )


def _is_running(pod: Json) -> bool:
    return bool(objects.field(pod, "status", "phase") == "Running")


async def _logs(client: ApiClient, pods: list[Json]) -> list[LogRead]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(pod: Json) -> LogRead:
        async with slots:
            return await _log(client, pod)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(pod)) for pod in pods]
    return [task.result() for task in tasks]


async def _log(client: ApiClient, pod: Json) -> LogRead:
    name, node = pod_name(pod), str(objects.field(pod, "spec", "nodeName"))
    path = f"{POD.path(names.HOSTED_NAMESPACE, name)}/log"
    query = {"container": names.AGENT, "tailLines": "1", "limitBytes": "4096"}
    try:
        text = await client.get_text(path, query)
    except ClusterError as fault:
        return LogRead(name, node, fault.why)
    return LogRead(name, node, "" if text.strip() else "the log is empty")


NO_MANAGEMENT: Final = Unknown("--management-kubeconfig with --namespace is not given")
NO_HOSTED: Final = Unknown("--kubeconfig is not given")
NO_CLIENT: Final = Unknown("no client certificate: give --ca, --cert and --key; or --namespace")
NO_HEALTH: Final = Unknown("no server health port is known: give --health, or --management-kubeconfig with --namespace")
NO_AGENT_PAIR: Final = Unknown("no agent certificate: give --agent-cert and --agent-key, or --kubeconfig")
NO_PROXIES: Final = Unknown("no proxy is known: give --proxy-health")
Found = TypeVar("Found")


@dataclass(frozen=True)
class CheckOptions:
    """What to query. Checks without their input are skipped."""

    management_kubeconfig: Path | None = None
    namespace: str | None = None
    hosted_kubeconfig: Path | None = None
    servers: tuple[TcpServer | UnixServer, ...] = ()
    client: TlsFiles = NO_FILES
    agent: TlsFiles = NO_FILES
    kubelet: TlsFiles = NO_FILES
    health: tuple[ServerAddress, ...] = ()
    nodes: tuple[str, ...] = ()
    kubelet_port: int = KUBELET_PORT
    proxies: tuple[ServerAddress, ...] = ()
    hop_seconds: float = 10.0


@dataclass(frozen=True)
class Clusters:
    """What both APIs returned, and what was given."""

    client: TlsFiles | Unknown
    agent: TlsFiles | Unknown
    kubelet: TlsFiles | None
    health: tuple[ServerHealth, ...] | Unknown
    proxies: tuple[ServerHealth, ...] | Unknown
    management: ManagementFacts | Unknown = NO_MANAGEMENT
    hosted: HostedFacts | Unknown = NO_HOSTED
    certificates: tuple[CertificateFact, ...] | Unknown = NO_MANAGEMENT
    bundle: Json | None = None
    """ConfigMap with the CAs of both listeners and their clients."""


async def query_clusters(options: CheckOptions, folder: Path) -> Clusters:
    """Query both clusters; fetched credentials are written to `folder`."""
    clusters = await _as_given(options)
    if options.management_kubeconfig is not None and options.namespace is not None:
        async with QueriedApi(options.management_kubeconfig) as api:
            clusters = await _query_management(api, clusters, options.namespace, folder)
    if options.hosted_kubeconfig is not None:
        async with QueriedApi(options.hosted_kubeconfig) as api:
            clusters = await _query_hosted(api, clusters, folder)
    return clusters


class QueriedApi:
    """One cluster's API; failures are returned as Unknown."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._client: ApiClient | Unknown = Unknown("not opened yet")

    async def __aenter__(self) -> "QueriedApi":
        try:
            self._client = make_client(self._kubeconfig, qps=REQUESTS_PER_SECOND, burst=BURST)
        except ClusterError as fault:
            self._client = Unknown(fault.brief, is_failure=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        if isinstance(self._client, ApiClient):
            await self._client.close()

    async def query(self, read: Callable[[ApiClient], Awaitable[Found]]) -> Found | Unknown:
        if isinstance(self._client, Unknown):
            return self._client
        try:
            return await read(self._client)
        except (ClusterError, HostedError) as fault:
            return Unknown(fault.brief, is_failure=True)


async def _as_given(options: CheckOptions) -> Clusters:
    seconds = options.hop_seconds
    return Clusters(
        client=options.client if options.client != NO_FILES else NO_CLIENT,
        agent=options.agent if options.agent != NO_FILES else NO_AGENT_PAIR,
        kubelet=options.kubelet if options.kubelet != NO_FILES else None,
        health=await _each(options.health, health.server_health, seconds) if options.health else NO_HEALTH,
        proxies=await _each(options.proxies, health.proxy_health, seconds) if options.proxies else NO_PROXIES,
    )


async def _query_management(api: QueriedApi, known: Clusters, namespace: str, folder: Path) -> Clusters:
    management = await api.query(lambda client: read_namespace(client, namespace))
    bundle = _or_none(await api.query(lambda client: get_bundle(client, namespace)))
    certificates = await api.query(lambda client: read_certificate_facts(client, namespace, bundle))
    servers, client_files, kubelet = known.health, known.client, known.kubelet
    if isinstance(servers, Unknown):
        servers = await api.query(lambda client: _pods_health(client, namespace, management))
    if isinstance(client_files, Unknown):
        client_files = await api.query(lambda client: fetch_tls(client, namespace, FRONTEND, folder))
    if kubelet is None:
        # Without a certificate kubelets still answer (401), which proves that they are reached.
        kubelet = _or_none(await api.query(lambda client: fetch_tls(client, namespace, KUBELET, folder)))
    return replace(
        known,
        management=management,
        bundle=bundle,
        certificates=certificates,
        health=servers,
        client=client_files,
        kubelet=kubelet,
        agent=await _agent_pair(api, namespace, known.agent, folder),
    )


async def _query_hosted(api: QueriedApi, known: Clusters, folder: Path) -> Clusters:
    certificates = known.certificates
    agents = await api.query(lambda client: read_agent_certificate(client, known.bundle))
    if not isinstance(agents, Unknown):
        certificates = (agents,) if isinstance(certificates, Unknown) else (*certificates, agents)
    return replace(
        known,
        hosted=await api.query(read_cluster),
        certificates=certificates,
        agent=await _agent_pair(api, names.HOSTED_NAMESPACE, known.agent, folder),
    )


def _or_none(found: Found | Unknown | None) -> Found | None:
    return None if isinstance(found, Unknown) else found


async def _agent_pair(api: QueriedApi, namespace: str, known: TlsFiles | Unknown, folder: Path) -> TlsFiles | Unknown:
    if not isinstance(known, Unknown):
        return known
    found = await api.query(lambda client: fetch_pair(client, namespace, names.SECRET_AGENT, folder))
    return known if found is None or isinstance(found, Unknown) else found


async def _pods_health(
    client: ApiClient, namespace: str, management: ManagementFacts | Unknown
) -> tuple[ServerHealth, ...] | Unknown:
    if isinstance(management, Unknown):
        return management
    pods = [(pod_name(pod), health_port(pod)) for pod in management.server_pods]
    queries = [health.server_health(pod, health.through_api(client, namespace, pod, port)) for pod, port in pods]
    return tuple([await answer for answer in queries])


async def _each(
    places: Iterable[ServerAddress],
    read: Callable[[str, health.Fetch], Awaitable[ServerHealth]],
    seconds: float,
) -> tuple[ServerHealth, ...]:
    queries = [read(f"{one.host}:{one.port}", health.directly(one.host, one.port, seconds)) for one in places]
    return tuple([await answer for answer in queries])
