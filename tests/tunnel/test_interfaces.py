"""The tunnel's Protocols are fulfilled by shape: `cluster` imports nothing of the tunnel, and yet fits."""

import inspect
from typing import Any

import pytest

from umbilical.cluster.leases import LeaseCounter, LeasePublisher
from umbilical.cluster.token_review import TokenReviewer
from umbilical.tunnel import interfaces


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
        (interfaces.ServerCounter, LeaseCounter),
        (interfaces.LeasePublisher, LeasePublisher),
    ],
)
def test_the_cluster_room_offers_what_the_tunnel_asks_for(wanted: type[Any], offered: type[Any]) -> None:
    assert _methods(wanted).items() <= _methods(offered).items()


def test_a_refusal_carries_the_text_for_the_agent() -> None:
    assert str(interfaces.AuthenticationRefused("lookup failed: not valid")) == "lookup failed: not valid"
