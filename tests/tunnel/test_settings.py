"""The tunnel's Protocols are fulfilled by shape: `cluster` imports nothing of the tunnel, and yet fits."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from umbilical.cluster.leases import LeaseCounter, LeasePublisher
from umbilical.cluster.review_cache import ReviewCache
from umbilical.cluster.token_review import TokenReviewer
from umbilical.tunnel import interfaces
from umbilical.tunnel.settings import (
    MIB,
    AgentSettings,
    FrontendMode,
    Keepalive,
    Limits,
    ListenAddress,
    ServerAddress,
    ServerSettings,
    TlsFiles,
    TlsPolicy,
    UnixFrontend,
)

SERVER = ServerSettings("s1", UnixFrontend(Path("proxy.sock")), ListenAddress("", 8091), TlsFiles())
AGENT = AgentSettings("a1", (ServerAddress("127.0.0.1", 8091),), TlsFiles())


def test_a_server_starts_with_the_defaults_of_upstream() -> None:
    assert SERVER.mode is FrontendMode.GRPC
    assert (SERVER.server_count, SERVER.strategies) == (1, ("default",))
    assert (SERVER.dial_timeout_seconds, SERVER.graceful_shutdown_seconds) == (0.0, 0.0)
    assert SERVER.health_listen == ListenAddress("", 8092)
    assert SERVER.admin_listen == ListenAddress("127.0.0.1", 8095)
    assert SERVER.tls_policy == TlsPolicy("VersionTLS12", ())
    assert not SERVER.enable_profiling


def test_an_agent_starts_with_the_defaults_of_upstream() -> None:
    assert (AGENT.sync_interval_seconds, AGENT.sync_interval_cap_seconds) == (1, 10)
    assert (AGENT.dial_timeout_seconds, AGENT.drain_linger_seconds) == (5.0, 5.0)
    assert AGENT.health_listen == ListenAddress("", 8093)
    assert AGENT.admin_listen == ListenAddress("127.0.0.1", 8094)
    assert AGENT.token_path is None
    assert not AGENT.sync_forever


def test_keepalive_is_an_hour_of_silence_and_twenty_seconds_for_the_answer() -> None:
    assert (SERVER.agent_keepalive, SERVER.frontend_keepalive, AGENT.keepalive) == (Keepalive(3600.0, 20.0),) * 3


def test_a_tunnel_is_paused_long_before_it_is_closed() -> None:
    limits = Limits()
    assert limits.pause_above_bytes * 4 <= limits.tunnel_buffer_bytes == 16 * MIB
    assert limits.concurrent_dials == 1024


@pytest.mark.parametrize(
    "value", [SERVER, AGENT, Keepalive(), Limits(), TlsFiles(), TlsPolicy(), ListenAddress("", 1)], ids=repr
)
def test_settings_cannot_be_changed_once_made(value: Any) -> None:
    with pytest.raises(AttributeError, match="frozen"):
        setattr(value, next(iter(vars(value))), None)


def _methods(kind: type[Any]) -> dict[str, tuple[list[str], bool]]:
    """By name: the parameters, and whether it is to be awaited."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: (list(inspect.signature(method).parameters), inspect.iscoroutinefunction(method))
        for name, method in found
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("wanted", "offered"),
    [
        (interfaces.AgentAuthenticator, TokenReviewer),
        (interfaces.AgentAuthenticator, ReviewCache),
        (interfaces.ServerCounter, LeaseCounter),
        (interfaces.Publisher, LeasePublisher),
    ],
)
def test_the_cluster_room_offers_what_the_tunnel_asks_for(wanted: type[Any], offered: type[Any]) -> None:
    assert _methods(wanted).items() <= _methods(offered).items()
