"""The agent's rules for one server connection, event by event."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.playbook import said

from umbilical.konnectivity.agent_session import REMEMBERED_STRAYS, AgentSession, SyncSchedule
from umbilical.konnectivity.commands import CONNECTED, FLUSHING, GONE, EndpointConnection
from umbilical.wire.packets import DialRequest


class Scene:
    def __init__(self) -> None:
        self.session = AgentSession()

    def asked(self, dial_id: int, protocol: str = "tcp", address: str = "web:443") -> list[str]:
        return said(self.session.dial_requested(DialRequest(protocol, address, dial_id)))

    def dialling(self, dial_id: int) -> EndpointConnection:
        before = set(self.session.connections)
        self.asked(dial_id)
        (fresh,) = set(self.session.connections) - before
        return self.session.connections[fresh]

    def connected(self, dial_id: int) -> EndpointConnection:
        connection = self.dialling(dial_id)
        self.session.dial_succeeded(connection)
        return connection


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_connections_are_numbered_from_one_and_a_failed_dial_uses_its_number_up(scene: Scene) -> None:
    assert scene.asked(70) == ["dial connection 1 tcp web:443"]
    first = scene.session.connections[1]
    assert said(scene.session.dial_failed(first, "dial tcp 1.2.3.4:1: i/o timeout")) == [
        "server <- DIAL_RSP dial=70 connection=0 error='dial tcp 1.2.3.4:1: i/o timeout'"
    ]
    assert scene.asked(71) == ["dial connection 2 tcp web:443"]


def test_a_success_is_told_with_the_connection_id(scene: Scene) -> None:
    connection = scene.dialling(70)
    assert scene.session.open_count() == 0
    told = said(scene.session.dial_succeeded(connection))
    assert told == ["server <- DIAL_RSP dial=70 connection=1 error=''"]
    assert connection.state == CONNECTED
    assert scene.session.open_count() == 1


@pytest.mark.parametrize("network", ["tcp", "tcp4", "tcp6"])
def test_tcp_networks_are_dialled(scene: Scene, network: str) -> None:
    assert scene.asked(1, network) == [f"dial connection 1 {network} web:443"]


@pytest.mark.parametrize("network", ["udp", "unix", "unixgram", "ip", "TCP", ""])
def test_any_other_network_is_refused_and_nothing_is_dialled(scene: Scene, network: str) -> None:
    (answer,) = scene.asked(1, network, "/run/docker.sock")
    assert answer.startswith(f"server <- DIAL_RSP dial=1 connection=0 error='dial {network}: protocol not supported")
    assert scene.session.is_idle()


def test_a_dial_id_in_use_is_refused_and_the_first_dial_goes_on(scene: Scene) -> None:
    first = scene.dialling(70)
    assert scene.asked(70) == ["server <- DIAL_RSP dial=70 connection=0 error='dial ID is already in use'"]
    assert said(scene.session.dial_succeeded(first)) == ["server <- DIAL_RSP dial=70 connection=1 error=''"]


def test_a_cancelled_dial_is_dropped_without_an_answer(scene: Scene) -> None:
    connection = scene.dialling(70)
    assert said(scene.session.dial_cancelled(70)) == ["cancel connection 1"]
    assert connection.state == GONE
    assert scene.session.is_idle()
    assert said(scene.session.dial_cancelled(70)) == []


def test_a_cancel_that_comes_after_the_success_leaves_the_close_to_the_server(scene: Scene) -> None:
    """The server has the answer by then, knows nobody who waits for it, and asks to close the connection."""
    scene.connected(70)
    assert said(scene.session.dial_cancelled(70)) == []
    assert said(scene.session.close_requested(1)) == ["flush and close connection 1"]


def test_a_close_flushes_first_and_answers_when_that_is_done(scene: Scene) -> None:
    connection = scene.connected(70)
    assert said(scene.session.close_requested(1)) == ["flush and close connection 1"]
    assert connection.state == FLUSHING
    assert not scene.session.is_idle()
    assert said(scene.session.endpoint_flushed(connection)) == ["server <- CLOSE_RSP connection=1 error=''"]
    assert scene.session.is_idle()


def test_a_second_close_while_flushing_changes_nothing(scene: Scene) -> None:
    scene.connected(70)
    scene.session.close_requested(1)
    assert said(scene.session.close_requested(1)) == []


def test_a_close_after_the_end_is_for_an_unknown_connection(scene: Scene) -> None:
    connection = scene.connected(70)
    scene.session.close_requested(1)
    scene.session.endpoint_flushed(connection)
    assert said(scene.session.close_requested(1)) == ["server <- CLOSE_RSP connection=1 error='Unknown connectID'"]


def test_a_close_during_the_dial_cancels_it_and_is_answered(scene: Scene) -> None:
    scene.dialling(70)
    assert said(scene.session.close_requested(1)) == [
        "cancel connection 1",
        "server <- CLOSE_RSP connection=1 error=''",
    ]
    assert scene.session.is_idle()


@pytest.mark.parametrize("error", ["", "endpoint web:443 reads too slowly"])
def test_the_end_of_an_endpoint_is_told_once(scene: Scene, error: str) -> None:
    connection = scene.connected(70)
    told = said(scene.session.endpoint_ended(connection, error))
    assert told == [f"server <- CLOSE_RSP connection=1 error={error!r}"]
    assert said(scene.session.endpoint_ended(connection, "again")) == []
    assert said(scene.session.endpoint_flushed(connection)) == []


def test_data_for_no_connection_is_answered_once(scene: Scene) -> None:
    told = said(scene.session.stray_data(9))
    assert told == ["server <- CLOSE_RSP connection=9 error='unrecognized connectID'"]
    assert said(scene.session.stray_data(9)) == []
    assert said(scene.session.stray_data(0)) == []


def test_strays_are_remembered_within_a_bound(scene: Scene) -> None:
    for connection_id in range(1, REMEMBERED_STRAYS + 2):
        assert len(scene.session.stray_data(connection_id)) == 1
    assert len(scene.session.stray_data(1)) == 1  # the oldest was forgotten
    assert scene.session.stray_data(REMEMBERED_STRAYS + 1) == []


def test_a_lost_server_ends_dials_and_connections(scene: Scene) -> None:
    scene.dialling(70)
    scene.connected(71)
    flushing = scene.connected(72)
    scene.session.close_requested(flushing.connection_id)
    assert said(scene.session.server_lost()) == ["cancel connection 1", "abort connection 2", "abort connection 3"]
    assert scene.session.is_idle()
    assert scene.session.open_count() == 0
    assert said(scene.session.endpoint_flushed(flushing)) == []


draws = st.floats(0.0, 1.0, exclude_max=True)


def test_an_interval_equal_to_its_cap_never_grows() -> None:
    schedule = SyncSchedule(2.0, 2.0)
    assert [schedule.after_failure(0.0) for _ in range(3)] == [2.0, 2.0, 2.0]


@given(draws, st.integers(0, 50))
def test_a_wait_after_failures_is_spread_between_the_first_one_and_upstreams(draw: float, failures: int) -> None:
    schedule = SyncSchedule(0.1, 1.0)
    for _ in range(failures):
        schedule.after_failure(draw)
    interval = min(0.1 * 1.5**failures, 1.0)
    wait = schedule.after_failure(draw)
    assert wait == pytest.approx(max(interval * (1.0 - 0.5 * draw), 0.1 + 0.01 * draw))
    assert 0.1 <= wait <= interval * 1.1
    assert 0.1 <= schedule.after_success(draw) <= 0.11 + 1e-9


def test_agents_that_lost_their_server_together_come_back_one_by_one() -> None:
    """Evenly over half of the third interval."""

    def third_wait(draw: float) -> float:
        schedule = SyncSchedule(1.0, 10.0)
        return [schedule.after_failure(draw) for _ in range(3)][-1]

    waits = [third_wait(number / 1000) for number in range(1000)]
    assert max(earlier - later for earlier, later in pairwise(waits)) < 0.002
    assert waits[0] - waits[-1] > 1.1
