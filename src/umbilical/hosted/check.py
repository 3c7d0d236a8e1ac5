"""The check of a hosted control plane: queries both clusters, then every server, then evaluates. Changes nothing."""

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
from umbilical.hosted.access import NO_FILES, TunnelAccess, port_forward, private_directory
from umbilical.hosted.check_rules import CATALOGUE
from umbilical.hosted.clusters import CheckOptions, Clusters, query_clusters
from umbilical.hosted.facts import CheckFacts, DialProbe, HostedFacts, ManagementFacts, Unknown
from umbilical.hosted.objects import names
from umbilical.tunnel.settings import TlsFiles

NO_FRONTEND: Final = Unknown("no server is known: give --server, or --management-kubeconfig with --namespace")
NO_NODES: Final = Unknown("no node is known: give --node, or --kubeconfig")
NO_AGENT: Final = Unknown("no control-plane agent is known: give --management-kubeconfig with --namespace")
Subject = TypeVar("Subject")
Frontends = tuple[TunnelAccess, ...] | Unknown


def check_findings(options: CheckOptions) -> list[Finding]:
    """Gather facts and evaluate the checks; afterwards fetched credentials are deleted and forwarded ports closed."""
    return run_checks(CATALOGUE, gather(options))


def gather(options: CheckOptions) -> CheckFacts:
    with private_directory() as folder, ExitStack() as stack:
        clusters = asyncio.run(query_clusters(options, folder))
        frontends = _frontends(options, clusters, folder, stack)
        return asyncio.run(_query_tunnel(options, clusters, frontends))


def _frontends(options: CheckOptions, clusters: Clusters, folder: Path, stack: ExitStack) -> Frontends:
    """Return access to each server: as given, or through a port forwarded to its pod."""
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


def _given(options: CheckOptions, client: TlsFiles | Unknown) -> Frontends:
    if not isinstance(client, Unknown):
        return tuple(TunnelAccess(server, client) for server in options.servers)
    if any(isinstance(server, TcpServer) for server in options.servers):
        return client
    return tuple(TunnelAccess(server, NO_FILES) for server in options.servers)  # a Unix socket needs no certificate


def _forwarded(
    options: CheckOptions, management: ManagementFacts, client: TlsFiles, folder: Path, stack: ExitStack
) -> list[TunnelAccess]:
    assert options.management_kubeconfig is not None
    assert options.namespace is not None
    found = []
    for pod in management.server_pods:
        name, port = gather_management.pod_name(pod), gather_management.frontend_port(pod)
        log = folder / f"forward-{name}.log"
        forward = port_forward(options.management_kubeconfig, options.namespace, f"pod/{name}", port, log)
        server = TcpServer("127.0.0.1", stack.enter_context(forward), names.SERVER_LOCAL)
        found.append(TunnelAccess(server, client, name=name))
    return found


async def _query_tunnel(options: CheckOptions, clusters: Clusters, frontends: Frontends) -> CheckFacts:
    endpoints = _kubelets(options, clusters.hosted)
    claimed = _claimed(clusters.management)
    seconds = options.hop_seconds
    return CheckFacts(
        now=datetime.now(UTC),
        management=clusters.management,
        hosted=clusters.hosted,
        health=clusters.health,
        certificates=clusters.certificates,
        kubelets=await _probed(
            frontends,
            endpoints,
            lambda via, found: servers.probe_kubelets(via, found, clusters.kubelet, seconds),
        ),
        control_plane=await _probed(frontends, claimed, lambda via, found: servers.probe_dials(via, found, seconds)),
        intruder=await _probed(
            _with_tls(frontends),
            clusters.agent,
            lambda via, agent: servers.probe_intruder(via, agent, seconds),
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
        return Unknown(f"there is no Deployment {names.AGENT}: no aggregated API needs one")
    addresses = [one for one in gather_management.identifiers(management.control_plane_agent) if one]
    services = management.services.values()
    return tuple((address, gather_management.service_port(services, address)) for address in addresses)


def _with_tls(frontends: Frontends) -> Frontends:
    """Leave out Unix sockets: no certificate is used there."""
    if isinstance(frontends, Unknown):
        return frontends
    found = tuple(access for access in frontends if isinstance(access.server, TcpServer))
    return found or Unknown("no server is reached over TCP: a Unix socket uses no certificate")


async def _probed(
    frontends: Frontends,
    subject: Subject | Unknown,
    probe: Callable[[tuple[TunnelAccess, ...], Subject], Awaitable[list[DialProbe]]],
) -> tuple[DialProbe, ...] | Unknown:
    if isinstance(frontends, Unknown):
        return frontends
    if isinstance(subject, Unknown):
        return subject
    return tuple(await probe(frontends, subject))
