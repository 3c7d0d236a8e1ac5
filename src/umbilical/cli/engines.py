"""Starts server and agent on one event loop, with a Kubernetes client only if they need one."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umbilical.fault import ClusterError, StartupError
from umbilical.record import Record
from umbilical.tunnel.interfaces import AgentAuthenticator, AuthenticationRefused
from umbilical.tunnel.settings import AgentSettings, ServerSettings

if TYPE_CHECKING:
    from umbilical.cluster.client import ApiClient
    from umbilical.cluster.leases import LeasePublisher
    from umbilical.tunnel.metrics import AgentMetrics, ServerMetrics
    from umbilical.tunnel.server_process import MakePublisher
    from umbilical.tunnel.service_manager import ServiceManager


class KubernetesAccess(Record):
    kubeconfig: Path | None = None
    """None: the service account of the pod."""
    requests_per_second: float = 0.0
    """0: the client's default."""
    burst: int = 0
    """0: the client's default."""


class TokenRule(Record):
    """The service account and audience that agents' tokens must have."""

    namespace: str
    service_account: str
    audience: str
    cache_seconds: float = 0.0
    """How long a positive review is reused; 0: every connect is reviewed."""

    @property
    def identity(self) -> str:
        """The identity of an agent with such a token, in the form of konnectivity/identity.py."""
        return f"SA={self.namespace}/{self.service_account}"


class LeaseRule(Record):
    """Namespace, labels, address and owner of the lease that the server publishes."""

    namespace: str
    labels: Mapping[str, str]
    address: tuple[str, int] | None = None
    """Address of this server for agents; None publishes none."""
    owner: tuple[str, str] | None = None
    """Name and UID of the server's pod."""


class LeaseSelection(Record):
    namespace: str
    selector: str


def run_until_done(engine: Coroutine[Any, Any, int]) -> int:
    from umbilical.tunnel.descriptors import raise_limit
    from umbilical.tunnel.event_loop import new_event_loop

    raise_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(engine)


def serve(
    settings: ServerSettings,
    kubernetes: KubernetesAccess,
    tokens: TokenRule | None = None,
    lease: LeaseRule | None = None,
    logs: tuple[str, ...] = ("native", "text", "info"),
) -> int:
    """`logs` is how the log was set up, for workers to do the same."""
    run = partial(_runner(settings, logs), manager=service_manager())
    return run_until_done(_serve(run, settings, kubernetes, tokens, lease))


def service_manager() -> "ServiceManager":
    """Raises StartupError: it passed sockets that cannot be used."""
    from umbilical.tunnel.service_manager import take

    return take(os.environ, os.getpid())


async def _serve(
    run: Callable[..., Coroutine[Any, Any, int]],
    settings: ServerSettings,
    kubernetes: KubernetesAccess,
    tokens: TokenRule | None,
    lease: LeaseRule | None,
) -> int:
    if tokens is None and lease is None:
        return await run(settings, None, publish=None)
    async with _client(kubernetes) as client:
        reviewer = None if tokens is None else token_reviewer(client, tokens)
        publish = None if lease is None else _publishing(client, settings, lease)
        return await run(settings, reviewer, publish=publish)


def token_reviewer(client: "ApiClient", tokens: TokenRule) -> AgentAuthenticator:
    from umbilical.cluster.review_cache import ReviewCache
    from umbilical.cluster.token_review import TokenReviewer

    reviewer = TokenReviewer(client, tokens.namespace, tokens.service_account, tokens.audience, AuthenticationRefused)
    return ReviewCache(reviewer, tokens.cache_seconds) if tokens.cache_seconds else reviewer


def _runner(settings: ServerSettings, logs: tuple[str, ...]) -> Callable[..., Coroutine[Any, Any, int]]:
    if settings.workers > 1:
        from umbilical.tunnel.supervisor import run_supervisor

        return partial(run_supervisor, logs=logs)
    from umbilical.tunnel.server_process import run_server

    return run_server


class LeaseSet:
    """The leases of all servers in this process tree, as one `Publisher`."""

    def __init__(self, publishers: "Sequence[LeasePublisher]") -> None:
        self._publishers = publishers

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for publisher in self._publishers:
                tasks.create_task(publisher.run())

    def describe(self) -> list[dict[str, object]]:
        return [publisher.describe() for publisher in self._publishers]

    async def withdraw(self) -> None:
        await asyncio.gather(*[publisher.withdraw() for publisher in self._publishers])


def _publishing(client: "ApiClient", settings: ServerSettings, lease: LeaseRule) -> "MakePublisher":
    """Return a factory of publishers that report to a server's metrics; each worker has a lease."""
    from umbilical.cluster.leases import LeasePublisher

    def make(metrics: "ServerMetrics") -> LeaseSet:
        return LeaseSet(
            [
                LeasePublisher(
                    client,
                    server_id,
                    lease.namespace,
                    lease.labels,
                    address=lease.address,
                    owner=lease.owner,
                    collects=index == 0,
                    on_list=metrics.lease_list,
                    on_delete=metrics.lease_delete,
                    on_culled=metrics.lease_culled,
                )
                for index, server_id in enumerate(settings.server_ids())
            ]
        )

    return make


def attend(settings: AgentSettings, kubernetes: KubernetesAccess, leases: LeaseSelection | None = None) -> int:
    return run_until_done(_attend(settings, kubernetes, leases, service_manager()))


async def _attend(
    settings: AgentSettings, kubernetes: KubernetesAccess, leases: LeaseSelection | None, manager: "ServiceManager"
) -> int:
    from umbilical.tunnel.agent_process import run_agent

    if leases is None:
        return await run_agent(settings, manager=manager)
    from umbilical.cluster.labels import parse_selector
    from umbilical.cluster.leases import LeaseCounter

    async with _client(kubernetes) as client:
        selector = parse_selector(leases.selector)

        def count(metrics: "AgentMetrics", on_change: Callable[[], None]) -> LeaseCounter:
            return LeaseCounter(
                client,
                leases.namespace,
                selector,
                on_list=metrics.lease_list,
                on_watch=metrics.lease_watch,
                on_change=on_change,
            )

        return await run_agent(settings, count=count, manager=manager)


def _client(kubernetes: KubernetesAccess) -> "ApiClient":
    from umbilical.cluster.client import make_client

    try:
        return make_client(kubernetes.kubeconfig, qps=kubernetes.requests_per_second, burst=kubernetes.burst)
    except ClusterError as fault:
        why = f"{fault.what}: {fault.why}"
        raise StartupError(fault.code, "failed to load kubernetes client config", why, fault.remedy) from fault
