"""Limits of a server: what is refused, and that everything that ends makes room again."""

from collections.abc import Callable

import pytest
from tests.playbook import said
from tests.support.registry_driver import NO_CLIENT, RegistryDriver

from umbilical.konnectivity.caps import Caps
from umbilical.konnectivity.links import Tunnel

OURS = "CN=kube-apiserver"


def dial(scene: RegistryDriver, dial_id: int, owner: str = OURS, at: float = 0.0) -> Tunnel:
    tunnel = Tunnel(NO_CLIENT, dial_id, "web:443", at)
    tunnel.owner = owner
    scene.told = said(scene.registry.dialled(tunnel, "tcp", 0))
    return tunnel


def is_refused(scene: RegistryDriver) -> bool:
    return scene.told[0] == "count capped"


def test_without_limits_nothing_is_refused(scene: RegistryDriver) -> None:
    scene.agent()
    for dial_id in range(1000):
        dial(scene, dial_id)
        assert not is_refused(scene)
    assert scene.registry.caps.refusal_of_agent(1_000_000) == ""


def test_one_agent_too_many_is_refused_with_the_option_that_says_so() -> None:
    caps = Caps(agents=2)
    assert caps.refusal_of_agent(1) == ""
    assert caps.refusal_of_agent(2) == "2 agents are connected, --max-agents is 2"
    assert caps.refused == {"agents": 1}


def test_a_client_at_its_limit_is_refused_and_others_are_not() -> None:
    scene = RegistryDriver(caps=Caps(client_tunnels=2))
    scene.agent()
    dial(scene, 1)
    dial(scene, 2)
    dial(scene, 3)
    text = "dial refused by a limit of the server: CN=kube-apiserver has --max-client-tunnels=2 tunnels open"
    assert scene.told == ["count capped", f"refuse dial 3: {text}"]
    dial(scene, 4, "CN=other")
    assert not is_refused(scene)
    assert scene.registry.caps.refused == {"client_tunnels": 1}


def cancelled(scene: RegistryDriver, tunnel: Tunnel) -> None:
    scene.close(tunnel)


def refused_by_the_agent(scene: RegistryDriver, tunnel: Tunnel) -> None:
    assert tunnel.link is not None
    scene.answer(tunnel.link, tunnel.dial_id, error="connection refused")


def closed_by_the_client(scene: RegistryDriver, tunnel: Tunnel) -> None:
    link = tunnel.link
    assert link is not None
    scene.answer(link, tunnel.dial_id, connection_id=5)
    scene.close(tunnel)
    scene.registry.agent_closed(link, 5, "")


def closed_by_the_endpoint(scene: RegistryDriver, tunnel: Tunnel) -> None:
    link = tunnel.link
    assert link is not None
    scene.answer(link, tunnel.dial_id, connection_id=5)
    scene.registry.agent_closed(link, 5, "")


def never_answered(scene: RegistryDriver, tunnel: Tunnel) -> None:
    scene.passes(100.0, 10.0)


def lost_before_the_answer(scene: RegistryDriver, tunnel: Tunnel) -> None:
    assert tunnel.link is not None
    scene.gone(tunnel.link)
    scene.agent("a2")


def lost_while_open(scene: RegistryDriver, tunnel: Tunnel) -> None:
    link = tunnel.link
    assert link is not None
    scene.answer(link, tunnel.dial_id, connection_id=5)
    scene.gone(link)
    scene.agent("a2")


ENDS: tuple[Callable[[RegistryDriver, Tunnel], None], ...] = (
    cancelled,
    refused_by_the_agent,
    closed_by_the_client,
    closed_by_the_endpoint,
    never_answered,
    lost_before_the_answer,
    lost_while_open,
)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_tunnel_makes_room_however_it_ends(end: Callable[[RegistryDriver, Tunnel], None]) -> None:
    scene = RegistryDriver(caps=Caps(client_tunnels=1))
    scene.agent()
    tunnel = dial(scene, 1)
    end(scene, tunnel)
    dial(scene, 2, at=200.0)
    assert not is_refused(scene)


def test_a_refused_dial_takes_no_room() -> None:
    scene = RegistryDriver(caps=Caps(client_tunnels=1))
    dial(scene, 1)
    assert scene.told[0] == "count no_agent"
    scene.agent()
    dial(scene, 2)
    assert not is_refused(scene)


def test_dials_above_the_rate_are_refused_until_time_has_passed() -> None:
    scene = RegistryDriver(caps=Caps(dial_rate=10))
    scene.agent()
    for dial_id in range(10):
        dial(scene, dial_id, at=50.0)
        assert not is_refused(scene)
    dial(scene, 10, at=50.0)
    text = "dial refused by a limit of the server: more than --max-dial-rate=10 dials in a second"
    assert scene.told == ["count capped", f"refuse dial 10: {text}"]
    dial(scene, 11, at=50.05)
    assert is_refused(scene)
    dial(scene, 12, at=50.2)
    assert not is_refused(scene)


def test_an_agent_at_its_limit_gets_no_dial_and_another_one_does() -> None:
    scene = RegistryDriver(caps=Caps(agent_tunnels=1))
    scene.agent("a1")
    dial(scene, 1)
    dial(scene, 2)
    text = "dial refused by a limit of the server: agent a1 has --max-agent-tunnels=1 tunnels open"
    assert scene.told == ["count capped", f"refuse dial 2: {text}"]
    scene.agent("a2")
    dial(scene, 3)
    assert not is_refused(scene)
