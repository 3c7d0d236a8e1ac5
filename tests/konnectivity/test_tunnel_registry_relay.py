"""Dials that no agent of this worker can serve: which worker gets them, and when they fail."""

from tests.playbook import said
from tests.support.registry_driver import NO_CLIENT, RegistryDriver

from umbilical.konnectivity.links import AgentLink, Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers

NOBODY = "No agent available"


def _sibling(scene: RegistryDriver, key: int) -> AgentLink:
    link = AgentLink(key, f"s-{key}", AgentIdentifiers())
    link.is_sibling = True
    scene.registry.agent_connected(link)
    return link


def _dial(scene: RegistryDriver, tunnel: Tunnel) -> list[str]:
    return said(scene.registry.dialled(tunnel, "tcp", 0))


def test_a_workers_own_agent_comes_before_other_workers(scene: RegistryDriver) -> None:
    _sibling(scene, 100)
    scene.agent("a1")
    assert _dial(scene, Tunnel(NO_CLIENT, 7, "web:443", 0.0)) == ["a1 <- DIAL_REQ tcp web:443 dial=7"]


def test_each_other_worker_is_asked_once_and_then_the_dial_fails_as_without_workers(scene: RegistryDriver) -> None:
    first, second = _sibling(scene, 100), _sibling(scene, 101)
    tunnel = Tunnel(NO_CLIENT, 7, "web:443", 0.0)
    assert _dial(scene, tunnel) == ["s-100 <- DIAL_REQ tcp web:443 dial=7"]
    assert scene.answer(first, 7, error=NOBODY) == ["s-101 <- DIAL_REQ tcp web:443 dial=7"]
    assert scene.answer(second, 7, error=NOBODY) == ["count no_agent", f"refuse dial 7: {NOBODY}"]
    assert scene.counts() == (0, 0, 0)
    assert not first.pending
    assert not second.pending


def test_an_agent_that_came_meanwhile_gets_the_dial(scene: RegistryDriver) -> None:
    sibling = _sibling(scene, 100)
    _dial(scene, Tunnel(NO_CLIENT, 7, "web:443", 0.0))
    agent = scene.agent("a1")
    assert scene.answer(sibling, 7, error=NOBODY) == ["a1 <- DIAL_REQ tcp web:443 dial=7"]
    assert scene.answer(agent, 7, connection_id=3) == ["open dial 7 as connection 3"]


def test_what_the_agent_of_another_worker_says_is_the_answer(scene: RegistryDriver) -> None:
    sibling, _ = _sibling(scene, 100), _sibling(scene, 101)
    _dial(scene, Tunnel(NO_CLIENT, 7, "web:443", 0.0))
    assert scene.answer(sibling, 7, error="connection refused")[-1] == "refuse dial 7: connection refused"


def test_a_relayed_dial_is_never_relayed_again_and_is_counted_where_it_came_from(scene: RegistryDriver) -> None:
    _sibling(scene, 100)
    tunnel = Tunnel(NO_CLIENT, 7, "web:443", 0.0)
    tunnel.may_relay = False
    assert _dial(scene, tunnel) == [f"refuse dial 7: {NOBODY}"]


def test_a_worker_that_is_lost_leaves_its_dials_to_the_next(scene: RegistryDriver) -> None:
    first, _ = _sibling(scene, 100), _sibling(scene, 101)
    _dial(scene, Tunnel(NO_CLIENT, 7, "web:443", 0.0))
    assert scene.gone(first)[-1] == "s-101 <- DIAL_REQ tcp web:443 dial=7"


def test_other_workers_are_no_agents(scene: RegistryDriver) -> None:
    sibling = _sibling(scene, 100)
    router = scene.registry.router
    assert not router.has_any()
    assert router.ready_backends() == {"default": 0}
    scene.gone(sibling)
    assert router.choose_sibling((), 0) is None


def test_a_dial_that_times_out_elsewhere_is_no_fault_of_the_worker_that_relayed_it(scene: RegistryDriver) -> None:
    sibling = _sibling(scene, 100)
    for number in range(5):
        _dial(scene, Tunnel(NO_CLIENT, number, "web:443", 0.0))
        scene.passes(20.0, 10.0)
    assert not sibling.sick
