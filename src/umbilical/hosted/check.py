"""The check of a hosted control plane: ask both clusters, then every server, then judge. Nothing is changed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from umbilical.checks.check import Finding, run_checks
from umbilical.dialer.settings import TcpServer
from umbilical.fault import Fault
from umbilical.hosted import clusters as gather_management
from umbilical.hosted import servers
from umbilical.hosted.access import NO_FILES, Access, port_forward, private_directory
from umbilical.hosted.check_rules import CATALOGUE
from umbilical.hosted.clusters import CheckOptions, Clusters, ask_clusters
from umbilical.hosted.facts import Facts, HostedFacts, ManagementFacts, Probe, Unknown
from umbilical.hosted.objects import names
from umbilical.tunnel.settings import TlsFiles

NO_FRONTEND: Final = Unknown("no server was named: --server, or --management-kubeconfig with --namespace")
NO_NODES: Final = Unknown("no node is known: --node, or --kubeconfig")
NO_AGENT: Final = Unknown("no control-plane agent is known: --management-kubeconfig with --namespace")
Subject = TypeVar("Subject")


def check_findings(options: CheckOptions) -> list[Finding]:
    """Gather and judge; credentials that were fetched are gone afterwards, and forwarded ports closed."""
    return run_checks(CATALOGUE, gather(options))


def gather(options: CheckOptions) -> Facts:
    with private_directory() as folder, ExitStack() as stack:
        clusters = asyncio.run(ask_clusters(options, folder))
        frontends = _frontends(options, clusters, folder, stack)
        return asyncio.run(_ask_tunnel(options, clusters, frontends))


def _frontends(
    options: CheckOptions, clusters: Clusters, folder: Path, stack: ExitStack
) -> tuple[Access, ...] | Unknown:
    """One way into the tunnel for each server: as given, or by a port forwarded to its pod."""
    client, management = clusters.client, clusters.management
    if options.servers:
        return _given(options, client)
    if isinstance(management, Unknown):
        return management if management.is_failure else NO_FRONTEND
    if isinstance(client, Unknown):
        return client
    try:
        return tuple(_forwarded(options, management, client, folder, stack))
    except Fault as fault:
        return Unknown(fault.brief, is_failure=True)


def _given(options: CheckOptions, client: TlsFiles | Unknown) -> tuple[Access, ...] | Unknown:
    if not isinstance(client, Unknown):
        return tuple(Access(server, client) for server in options.servers)
    if any(isinstance(server, TcpServer) for server in options.servers):
        return client
    return tuple(Access(server, NO_FILES) for server in options.servers)  # Unix sockets ask for no certificate


def _forwarded(
    options: CheckOptions, management: ManagementFacts, client: TlsFiles, folder: Path, stack: ExitStack
) -> list[Access]:
    assert options.management_kubeconfig is not None
    assert options.namespace is not None
    found = []
    for pod in management.server_pods:
        name, port = gather_management.pod_name(pod), gather_management.frontend_port(pod)
        log = folder / f"forward-{name}.log"
        way = port_forward(options.management_kubeconfig, options.namespace, f"pod/{name}", port, log)
        server = TcpServer("127.0.0.1", stack.enter_context(way), names.SERVER_LOCAL)
        found.append(Access(server, client, name=name))
    return found


async def _ask_tunnel(options: CheckOptions, clusters: Clusters, frontends: tuple[Access, ...] | Unknown) -> Facts:
    endpoints = _kubelets(options, clusters.hosted)
    claimed = _claimed(clusters.management)
    seconds = options.hop_seconds
    return Facts(
        now=datetime.now(UTC),
        management=clusters.management,
        hosted=clusters.hosted,
        health=clusters.health,
        certificates=clusters.certificates,
        kubelets=await _probed(
            frontends,
            endpoints,
            lambda ways, found: servers.probe_kubelets(ways, found, clusters.kubelet, seconds),
        ),
        control_plane=await _probed(frontends, claimed, lambda ways, found: servers.probe_dials(ways, found, seconds)),
        intruder=await _probed(
            _with_tls(frontends),
            clusters.agent,
            lambda ways, agent: servers.probe_intruder(ways, agent, seconds),
        ),
        proxies=clusters.proxies,
        node_addresses=endpoints if isinstance(endpoints, Unknown) else tuple(host for host, _ in endpoints),
    )


def _kubelets(options: CheckOptions, hosted: HostedFacts | Unknown) -> tuple[tuple[str, int], ...] | Unknown:
    if options.nodes:
        return tuple((node, options.kubelet_port) for node in options.nodes)
    if isinstance(hosted, Unknown):
        return hosted if hosted.is_failure else NO_NODES
    return tuple((node.address, node.kubelet_port) for node in hosted.nodes if node.is_ready and node.address)


def _claimed(management: ManagementFacts | Unknown) -> tuple[tuple[str, int], ...] | Unknown:
    if isinstance(management, Unknown):
        return management if management.is_failure else NO_AGENT
    if management.control_plane_agent is None:
        return Unknown(f"there is no Deployment {names.AGENT}: no aggregated API is behind one")
    addresses = [one for one in gather_management.identifiers(management.control_plane_agent) if one]
    services = management.services.values()
    return tuple((address, gather_management.service_port(services, address)) for address in addresses)


def _with_tls(frontends: tuple[Access, ...] | Unknown) -> tuple[Access, ...] | Unknown:
    """A Unix socket is opened to whom its mode lets in: no certificate is shown there."""
    if isinstance(frontends, Unknown):
        return frontends
    found = tuple(access for access in frontends if isinstance(access.server, TcpServer))
    return found or Unknown("no server is reached by TCP: on a Unix socket no certificate is shown")


async def _probed(
    frontends: tuple[Access, ...] | Unknown,
    subject: Subject | Unknown,
    probe: Callable[[tuple[Access, ...], Subject], Awaitable[list[Probe]]],
) -> tuple[Probe, ...] | Unknown:
    if isinstance(frontends, Unknown):
        return frontends
    if isinstance(subject, Unknown):
        return subject
    return tuple(await probe(frontends, subject))
