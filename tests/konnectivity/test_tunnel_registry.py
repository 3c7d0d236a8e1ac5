"""The server's rules, event by event. Fault numbers are those of upstream's known faults."""

import pytest
from tests.playbook import said
from tests.support.registry_driver import NO_CLIENT, RegistryDriver

from umbilical.konnectivity.links import CLOSING, ENDED, ESTABLISHED, Tunnel
from umbilical.konnectivity.tunnel_registry import CLOSE_ANSWER_SECONDS, LONGEST_ADDRESS, REMEMBERED_ORPHANS


def test_a_dial_without_agents_is_refused_and_counted(scene: RegistryDriver) -> None:
    tunnel = Tunnel(NO_CLIENT, 7, "web:443", 0.0)
    assert said(scene.registry.dialled(tunnel, "tcp", 0)) == ["count no_agent", "refuse dial 7: No agent available"]
    assert tunnel.state == ENDED
    assert scene.counts() == (0, 0, 0)


def test_a_dial_goes_to_the_agent_as_it_came_and_opens_with_the_agents_connection_id(scene: RegistryDriver) -> None:
    link = scene.agent()
    tunnel = scene.dial(7)
    assert scene.counts() == (1, 0, 0)
    assert scene.answer(link, 7, connection_id=3) == ["open dial 7 as connection 3"]
    assert (tunnel.state, tunnel.connection_id, tunnel.opened_at) == (ESTABLISHED, 3, 1.0)
    assert scene.counts() == (0, 1, 0)


def test_the_protocol_that_the_client_named_is_the_agents_to_judge(scene: RegistryDriver) -> None:
    scene.agent()
    tunnel = Tunnel(NO_CLIENT, 7, "/run/x.sock", 0.0)
    assert said(scene.registry.dialled(tunnel, "unix", 0)) == ["a1 <- DIAL_REQ unix /run/x.sock dial=7"]


@pytest.mark.parametrize(("protocol", "address"), [("tcp", "x" * (LONGEST_ADDRESS + 1)), ("t" * 2000, "web:443")])
def test_an_absurdly_long_dial_never_reaches_an_agent(scene: RegistryDriver, protocol: str, address: str) -> None:
    scene.agent()
    told = said(scene.registry.dialled(Tunnel(NO_CLIENT, 7, address, 0.0), protocol, 0))
    assert told == ["count error_response", "refuse dial 7: dial address is too long"]


def test_a_dial_id_that_is_in_use_at_this_agent_is_refused_and_the_first_dial_lives_on(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.dial(7)
    told = said(scene.registry.dialled(Tunnel(NO_CLIENT, 7, "other:1", 0.0), "tcp", 0))
    assert told == ["count error_response", "refuse dial 7: dial ID is already in use"]
    assert scene.answer(link, 7, connection_id=1) == ["open dial 7 as connection 1"]


@pytest.mark.parametrize("connection_id", [0, 5])
def test_a_success_without_a_free_connection_id_is_a_refusal(scene: RegistryDriver, connection_id: int) -> None:
    link = scene.agent()
    first = scene.tunnel(link, 1, 5)
    scene.dial(7)
    text = f"agent answered with connection ID {connection_id}, which is not free"
    assert scene.answer(link, 7, connection_id) == ["count error_response", f"refuse dial 7: {text}"]
    assert link.connections == {5: first}


def test_an_answer_that_nobody_waits_for_is_counted_and_its_connection_closed(scene: RegistryDriver) -> None:
    link = scene.agent()
    assert scene.answer(link, 99, connection_id=4) == ["count unrecognized_response", "a1 <- CLOSE_REQ connection=4"]
    assert scene.answer(link, 98, error="refused") == ["count unrecognized_response"]


def test_an_agent_that_closes_a_dial_ends_it(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.dial(7)
    assert said(scene.registry.agent_cancelled_dial(link, 7)) == ["count error_response", "refuse dial 7: dial closed"]
    assert said(scene.registry.agent_cancelled_dial(link, 7)) == []


def test_a_client_that_leaves_during_its_dial_cancels_it_at_the_agent(scene: RegistryDriver) -> None:
    scene.agent()
    tunnel = scene.dial(7)
    assert scene.close(tunnel) == ["count frontend_close", "a1 <- DIAL_CLS dial=7"]
    assert tunnel.state == ENDED
    assert scene.counts() == (0, 0, 0)


def test_a_dial_response_after_cancel_closes_the_orphan_connection(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.close(scene.dial(7))
    assert scene.answer(link, 7, connection_id=3) == ["count unrecognized_response", "a1 <- CLOSE_REQ connection=3"]
    assert scene.counts() == (0, 0, 0)


def test_a_client_that_leaves_twice_is_heard_once(scene: RegistryDriver) -> None:
    link = scene.agent()
    dial, tunnel = scene.dial(7), scene.tunnel(link, 8, 1)
    for gone in (dial, tunnel):
        assert scene.close(gone) != []
        assert scene.close(gone) == []


def test_a_client_that_closes_waits_for_the_agents_answer(scene: RegistryDriver) -> None:
    link = scene.agent()
    tunnel = scene.tunnel(link, 7, 3)
    assert scene.close(tunnel) == ["a1 <- CLOSE_REQ connection=3"]
    assert tunnel.state == CLOSING
    assert scene.counts() == (0, 1, 1)
    assert said(scene.registry.agent_closed(link, 3, "")) == ["close connection 3, error '': client closed"]
    assert tunnel.state == ENDED
    assert scene.counts() == (0, 0, 0)


def test_an_endpoint_that_closes_ends_the_tunnel_with_the_agents_error(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.tunnel(link, 7, 3)
    told = said(scene.registry.agent_closed(link, 3, "endpoint reads too slowly"))
    assert told == ["close connection 3, error 'endpoint reads too slowly': endpoint closed"]
    assert scene.counts() == (0, 0, 0)


def test_a_close_answer_for_no_connection_means_nothing(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.tunnel(link, 7, 3)
    assert said(scene.registry.agent_closed(link, 4, "Unknown connectID")) == []
    assert scene.counts() == (0, 1, 0)


def test_both_sides_close_at_once_and_the_tunnel_ends_once(scene: RegistryDriver) -> None:
    link = scene.agent()
    tunnel = scene.tunnel(link, 7, 3)
    scene.close(tunnel)
    assert len(scene.registry.agent_closed(link, 3, "")) == 1
    assert said(scene.registry.agent_closed(link, 3, "Unknown connectID")) == []
    assert scene.close(tunnel) == []
    assert scene.counts() == (0, 0, 0)


def test_data_of_nobodys_connection_is_answered_once(scene: RegistryDriver) -> None:
    link = scene.agent()
    assert said(scene.registry.orphan_data(link, 9)) == ["a1 <- CLOSE_REQ connection=9"]
    assert said(scene.registry.orphan_data(link, 9)) == []
    assert said(scene.registry.orphan_data(link, 0)) == []


def test_orphans_are_remembered_within_a_bound(scene: RegistryDriver) -> None:
    link = scene.agent()
    for connection_id in range(1, REMEMBERED_ORPHANS + 2):
        assert len(scene.registry.orphan_data(link, connection_id)) == 1
    assert len(link.answered_orphans) == REMEMBERED_ORPHANS
    assert scene.registry.orphan_data(link, REMEMBERED_ORPHANS + 1) == []
    assert len(scene.registry.orphan_data(link, 1)) == 1  # the oldest was forgotten


def test_two_streams_of_one_agent_id_do_not_cross(scene: RegistryDriver) -> None:
    """Both count their connections from 1; the table hangs on the stream."""
    old, new = scene.agent("a1"), scene.agent("a1")
    first = scene.tunnel(old, 1, 1)
    scene.registry.agent_draining(old)
    scene.registry.router.remove(old)  # so that the next dial goes to the newer stream
    second = scene.tunnel(new, 2, 1)
    assert old.connections == {1: first}
    assert new.connections == {1: second}
    assert scene.gone(old, "lost") == ["close connection 1, error '': lost"]
    assert first.state == ENDED
    assert second.state == ESTABLISHED
    assert scene.counts() == (0, 1, 0)


def test_an_answer_on_another_stream_of_the_same_agent_does_not_open_a_dial(scene: RegistryDriver) -> None:
    asked, other = scene.agent("a1"), scene.agent("a1")
    scene.dial(7)
    assert scene.answer(other, 7, connection_id=1) == ["count unrecognized_response", "a1 <- CLOSE_REQ connection=1"]
    assert scene.answer(asked, 7, connection_id=1) == ["open dial 7 as connection 1"]


def test_everything_of_a_lost_agent_ends_at_once(scene: RegistryDriver) -> None:
    link = scene.agent()
    open_one, closing = scene.tunnel(link, 1, 1), scene.tunnel(link, 2, 2)
    scene.close(closing)
    scene.dial(3)
    assert scene.gone(link, "agent lost: reset") == [
        "count backend_close",
        "refuse dial 3: agent disconnected before the dial was answered",
        "close connection 1, error '': agent lost: reset",
        "close connection 2, error '': agent lost: reset",
    ]
    assert open_one.state == closing.state == ENDED
    assert scene.counts() == (0, 0, 0)
    assert link.pending == {}
    assert link.connections == {}


def test_a_dial_that_waited_too_long_is_refused_and_cancelled(scene: RegistryDriver) -> None:
    scene.agent()
    scene.dial(1, at=10.0)
    scene.dial(2, at=11.0)
    assert scene.passes(14.9, 5.0) == []
    assert scene.passes(15.0, 5.0) == [
        "count backend_dial_timeout",
        "refuse dial 1: timed out waiting for backend dial",
        "a1 <- DIAL_CLS dial=1",
    ]
    assert scene.counts() == (1, 0, 0)


def test_a_success_after_the_timeout_closes_the_connection(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.dial(1, at=0.0)
    scene.passes(5.0, 5.0)
    assert scene.answer(link, 1, connection_id=1)[1] == "a1 <- CLOSE_REQ connection=1"


def test_without_a_dial_timeout_a_dial_may_wait_for_ever(scene: RegistryDriver) -> None:
    scene.agent()
    scene.dial(1, at=0.0)
    assert scene.passes(1e6, 0.0) == []


def test_an_agent_whose_stream_takes_nothing_for_a_whole_dial_is_retired(scene: RegistryDriver) -> None:
    link = scene.agent()
    scene.dial(1, at=0.0)
    assert scene.passes(5.0, 5.0, link) == [
        "count backend_dial_timeout",
        "refuse dial 1: timed out waiting for backend dial",
        "retire a1",
    ]


def test_a_close_that_the_agent_never_answers_is_given_up(scene: RegistryDriver) -> None:
    link = scene.agent()
    tunnel = scene.tunnel(link, 1, 1)
    scene.close(tunnel)
    assert scene.passes(100.0, 0.0) == []
    assert scene.passes(100.0 + CLOSE_ANSWER_SECONDS - 1, 0.0) == []
    text = "agent did not answer the close"
    told = scene.passes(100.0 + CLOSE_ANSWER_SECONDS, 0.0)
    assert told == [f"close connection 1, error '{text}': {text}"]
    assert scene.counts() == (0, 0, 0)
    assert link.connections == {}
