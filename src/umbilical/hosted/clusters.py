"""Asks the APIs of both clusters for all that `hosted check` judges. What goes wrong is a fact, and stops nothing."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from umbilical.cluster.client import ApiClient, Json, make_client
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.fault import ClusterError, HostedError
from umbilical.hosted import gather_hosted, gather_management, health
from umbilical.hosted.access import BURST, NO_FILES, REQUESTS_PER_SECOND
from umbilical.hosted.facts import CertificateFact, HostedFacts, ManagementFacts, ServerHealth, Unknown
from umbilical.hosted.namespace_credentials import FRONTEND, KUBELET, fetch_pair, fetch_tls
from umbilical.hosted.objects import names
from umbilical.tunnel.settings import ServerAddress, TlsFiles

NO_MANAGEMENT: Final = Unknown("no --management-kubeconfig with --namespace was given")
NO_HOSTED: Final = Unknown("no --kubeconfig was given")
NO_CLIENT: Final = Unknown("no client's certificate is at hand: --ca, --cert and --key; or a namespace")
NO_HEALTH: Final = Unknown("no server's health port is known: --health, or --management-kubeconfig with --namespace")
NO_AGENT_PAIR: Final = Unknown("no agent's certificate is at hand: --agent-cert and --agent-key, or --kubeconfig")
NO_PROXIES: Final = Unknown("no proxy was named: --proxy-health")
Found = TypeVar("Found")


@dataclass(frozen=True)
class CheckOptions:
    """Whom to ask. What is not given is skipped, with the reason."""

    management_kubeconfig: Path | None = None
    namespace: str | None = None
    hosted_kubeconfig: Path | None = None
    servers: tuple[TcpServer | UnixServer, ...] = ()
    client: TlsFiles = NO_FILES
    agent: TlsFiles = NO_FILES
    kubelet: TlsFiles = NO_FILES
    health: tuple[ServerAddress, ...] = ()
    nodes: tuple[str, ...] = ()
    kubelet_port: int = gather_hosted.KUBELET_PORT
    proxies: tuple[ServerAddress, ...] = ()
    hop_seconds: float = 10.0


@dataclass(frozen=True)
class Clusters:
    """What both APIs told, beside what was given."""

    client: TlsFiles | Unknown
    agent: TlsFiles | Unknown
    kubelet: TlsFiles | None
    health: tuple[ServerHealth, ...] | Unknown
    proxies: tuple[ServerHealth, ...] | Unknown
    management: ManagementFacts | Unknown = NO_MANAGEMENT
    hosted: HostedFacts | Unknown = NO_HOSTED
    certificates: tuple[CertificateFact, ...] | Unknown = NO_MANAGEMENT
    bundle: Json | None = None
    """By whom the sides of both listeners know each other."""


async def ask_clusters(options: CheckOptions, folder: Path) -> Clusters:
    """Credentials that are fetched lie in `folder` then."""
    clusters = await _as_given(options)
    if options.management_kubeconfig is not None and options.namespace is not None:
        async with Api(options.management_kubeconfig) as api:
            clusters = await _ask_management(api, clusters, options.namespace, folder)
    if options.hosted_kubeconfig is not None:
        async with Api(options.hosted_kubeconfig) as api:
            clusters = await _ask_hosted(api, clusters, folder)
    return clusters


class Api:
    """One cluster's API, which may fail in any way."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._client: ApiClient | Unknown = Unknown("not opened yet")

    async def __aenter__(self) -> "Api":
        try:
            self._client = make_client(self._kubeconfig, qps=REQUESTS_PER_SECOND, burst=BURST)
        except ClusterError as fault:
            self._client = Unknown(fault.brief, is_failure=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        if isinstance(self._client, ApiClient):
            await self._client.close()

    async def ask(self, look: Callable[[ApiClient], Awaitable[Found]]) -> Found | Unknown:
        if isinstance(self._client, Unknown):
            return self._client
        try:
            return await look(self._client)
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


async def _ask_management(api: Api, known: Clusters, namespace: str, folder: Path) -> Clusters:
    management = await api.ask(lambda client: gather_management.look_at_namespace(client, namespace))
    bundle = _or_none(await api.ask(lambda client: gather_management.get_bundle(client, namespace)))
    certificates = await api.ask(lambda client: gather_management.look_at_certificates(client, namespace, bundle))
    servers, client_files, kubelet = known.health, known.client, known.kubelet
    if isinstance(servers, Unknown):
        servers = await api.ask(lambda client: _pods_health(client, namespace, management))
    if isinstance(client_files, Unknown):
        client_files = await api.ask(lambda client: fetch_tls(client, namespace, FRONTEND, folder))
    if kubelet is None:
        # Kubelets are asked without a certificate where there is none; that they are reached shows as well.
        kubelet = _or_none(await api.ask(lambda client: fetch_tls(client, namespace, KUBELET, folder)))
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


async def _ask_hosted(api: Api, known: Clusters, folder: Path) -> Clusters:
    certificates = known.certificates
    agents = await api.ask(lambda client: gather_hosted.look_at_agent_certificate(client, known.bundle))
    if not isinstance(agents, Unknown):
        certificates = (agents,) if isinstance(certificates, Unknown) else (*certificates, agents)
    return replace(
        known,
        hosted=await api.ask(gather_hosted.look_at_cluster),
        certificates=certificates,
        agent=await _agent_pair(api, names.HOSTED_NAMESPACE, known.agent, folder),
    )


def _or_none(found: Found | Unknown | None) -> Found | None:
    return None if isinstance(found, Unknown) else found


async def _agent_pair(api: Api, namespace: str, known: TlsFiles | Unknown, folder: Path) -> TlsFiles | Unknown:
    if not isinstance(known, Unknown):
        return known
    found = await api.ask(lambda client: fetch_pair(client, namespace, names.SECRET_AGENT, folder))
    return known if found is None or isinstance(found, Unknown) else found


async def _pods_health(
    client: ApiClient, namespace: str, management: ManagementFacts | Unknown
) -> tuple[ServerHealth, ...] | Unknown:
    if isinstance(management, Unknown):
        return management
    pods = [(gather_management.pod_name(pod), gather_management.health_port(pod)) for pod in management.server_pods]
    asked = [health.server_health(pod, health.through_api(client, namespace, pod, port)) for pod, port in pods]
    return tuple([await answer for answer in asked])


async def _each(
    places: Iterable[ServerAddress],
    look: Callable[[str, health.Ask], Awaitable[ServerHealth]],
    seconds: float,
) -> tuple[ServerHealth, ...]:
    asked = [look(f"{one.host}:{one.port}", health.directly(one.host, one.port, seconds)) for one in places]
    return tuple([await answer for answer in asked])
