"""Dials that outlive the agent that had them: taken to another, each link once, and always one outcome."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.playbook import said
from tests.support.registry_driver import NO_CLIENT, RegistryDriver, best_links

from umbilical.konnectivity.commands import Command, OpenTunnel, RefuseDial, ToAgent
from umbilical.konnectivity.health import probe_id
from umbilical.konnectivity.links import ENDED, ESTABLISHED, PENDING, AgentLink, Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentRouter
from umbilical.konnectivity.tunnel_registry import LINKS_PER_DIAL, TunnelRegistry
from umbilical.wire import packets
from umbilical.wire.packets import DialResponse, decode_packet

LOST = "agent disconnected before the dial was answered"


def taken(scene: RegistryDriver) -> tuple[AgentLink, Tunnel, AgentLink]:
    """Dial 7, which agent a1 has taken, and a2 beside it."""
    first = scene.agent("a1")
    return first, scene.dial(7), scene.agent("a2")


def test_a_dial_of_a_lost_agent_goes_to_another_and_nothing_is_counted(scene: RegistryDriver) -> None:
    first, tunnel, second = taken(scene)
    assert scene.gone(first, "agent lost: reset") == [
        "tell: dial 7 leaves a1: agent lost: reset",
        "a2 <- DIAL_REQ tcp web:443 dial=7",
    ]
    assert scene.counts() == (1, 0, 0)
    assert scene.answer(second, 7, connection_id=3) == ["open dial 7 as connection 3"]
    assert tunnel.link is second
    assert (first.load(), second.load()) == (0, 1)


def test_the_protocol_of_the_dial_goes_with_it(scene: RegistryDriver) -> None:
    first = scene.agent("a1")
    scene.registry.dialled(Tunnel(NO_CLIENT, 7, "web:443", 0.0), "tcp6", 0)
    scene.agent("a2")
    assert scene.gone(first)[1] == "a2 <- DIAL_REQ tcp6 web:443 dial=7"


def test_a_cancel_goes_to_the_agent_that_has_the_dial_now(scene: RegistryDriver) -> None:
    first, tunnel, _ = taken(scene)
    scene.gone(first)
    assert scene.close(tunnel) == ["count frontend_close", "a2 <- DIAL_CLS dial=7"]


def test_an_error_that_the_agent_answered_is_final(scene: RegistryDriver) -> None:
    first, _, _ = taken(scene)
    assert scene.answer(first, 7, error="connection refused") == [
        "count error_response",
        "refuse dial 7: connection refused",
    ]
    assert scene.gone(first) == []


def test_a_dial_visits_three_agents_and_then_fails_as_lost(scene: RegistryDriver) -> None:
    agents = [scene.agent("a0")]
    scene.dial(7)
    for number in range(1, LINKS_PER_DIAL):
        agents.append(scene.agent(f"a{number}"))
        assert scene.gone(agents[-2])[1] == f"a{number} <- DIAL_REQ tcp web:443 dial=7"
    scene.agent("one more")
    assert scene.gone(agents[-1]) == ["count backend_close", f"refuse dial 7: {LOST}"]


def test_the_time_limit_of_a_dial_runs_on_across_agents(scene: RegistryDriver) -> None:
    first, _, second = taken(scene)
    scene.dial(8, at=3.0)
    scene.gone(first)
    assert scene.passes(10.0, 10.0)[:2] == [
        "count backend_dial_timeout",
        "refuse dial 7: timed out waiting for backend dial",
    ]
    assert list(second.pending) == [8]


def test_a_dial_id_that_is_in_use_at_the_other_agent_is_not_brought_there(scene: RegistryDriver) -> None:
    first, _, second = taken(scene)
    scene.dial(7, address="other:1")
    assert list(second.pending) == [7]
    assert scene.gone(first) == ["count backend_close", f"refuse dial 7: {LOST}"]


def test_a_dial_falls_through_to_the_next_strategy_when_its_host_has_nobody_left() -> None:
    scene = RegistryDriver("destHost", "default")
    near = scene.agent("near", AgentIdentifiers(host=("web",)))
    scene.agent("far")
    assert scene.dial(7).link is near
    assert scene.gone(near)[1] == "far <- DIAL_REQ tcp web:443 dial=7"


def test_many_dials_of_a_lost_agent_spread_over_the_others(scene: RegistryDriver) -> None:
    first = scene.agent("lost")
    for dial_id in range(60):
        scene.dial(dial_id + 1)
    others = [scene.agent(f"a{number}") for number in range(3)]
    scene.gone(first)
    assert [len(other.pending) for other in others] == [20, 20, 20]


def test_a_lost_agents_dials_go_even_to_a_sick_one_when_it_is_all_that_is_left(scene: RegistryDriver) -> None:
    sick = scene.agent("sick")
    sick.sick = True
    sick.weigh()
    first = scene.agent("a1")
    scene.dial(7)
    assert scene.gone(first)[1] == "sick <- DIAL_REQ tcp web:443 dial=7"


STALLED = "its stream takes no packets"


def test_dials_leave_an_agent_that_takes_nothing_while_there_is_time(scene: RegistryDriver) -> None:
    stalled, _, _ = taken(scene)
    assert scene.passes(5.0, 10.0, stalled) == [
        f"tell: a1 is sick: {STALLED}",
        f"tell: dial 7 leaves a1: {STALLED}",
        "a2 <- DIAL_REQ tcp web:443 dial=7",
        "a1 <- DIAL_CLS dial=7",
    ]
    assert scene.answer(stalled, 7, connection_id=5) == ["count unrecognized_response", "a1 <- CLOSE_REQ connection=5"]


def test_without_a_time_limit_dials_leave_too_and_nobody_is_retired(scene: RegistryDriver) -> None:
    stalled, _, _ = taken(scene)
    assert "a2 <- DIAL_REQ tcp web:443 dial=7" in scene.passes(5.0, 0.0, stalled)
    assert "retire a1" not in scene.passes(1e6, 0.0, stalled)


def test_a_dial_stays_where_it_is_when_nobody_else_is_well(scene: RegistryDriver) -> None:
    stalled, _, other = taken(scene)
    other.sick = True
    other.weigh()
    assert scene.passes(5.0, 10.0, stalled) == [f"tell: a1 is sick: {STALLED}"]
    assert list(stalled.pending) == [7]
    assert scene.passes(10.0, 10.0, stalled)[-1] == "retire a1"


def test_an_agent_that_goes_on_taking_nothing_is_retired_after_a_whole_dials_time(scene: RegistryDriver) -> None:
    stalled, _, _ = taken(scene)
    scene.passes(5.0, 10.0, stalled)
    assert scene.registry.needs_time()
    assert "retire a1" not in scene.passes(9.9, 10.0, stalled)
    assert "retire a1" in scene.passes(10.0, 10.0, stalled)


def test_an_agent_that_takes_packets_again_is_not_retired(scene: RegistryDriver) -> None:
    stalled, _, _ = taken(scene)
    scene.passes(5.0, 10.0, stalled)
    scene.passes(7.0, 10.0)
    assert "retire a1" not in scene.passes(30.0, 10.0, stalled)


def test_a_stream_that_nobody_dials_through_is_left_alone(scene: RegistryDriver) -> None:
    """Bytes that wait for a slow agent are its tunnels' business."""
    busy = scene.agent("a1")
    scene.tunnel(busy, 1, 1)
    assert scene.passes(5.0, 10.0, busy) == []
    assert scene.passes(50.0, 10.0, busy) == []


def test_dials_leave_an_agent_that_answers_no_ping_and_its_tunnels_stay(scene: RegistryDriver) -> None:
    silent = scene.agent("a1")
    tunnel = scene.tunnel(silent, 1, 1)
    scene.dial(7, at=0.0)
    scene.agent("a2")
    assert said(scene.registry.agent_silent(silent, 4.0, 0)) == [
        "tell: a1 is sick: it answers no ping",
        "tell: dial 7 leaves a1: it answers no ping",
        "a2 <- DIAL_REQ tcp web:443 dial=7",
        "a1 <- DIAL_CLS dial=7",
    ]
    assert said(scene.registry.agent_silent(silent, 5.0, 0)) == []
    assert tunnel.state == ESTABLISHED


def test_silence_means_nothing_where_nobody_waits(scene: RegistryDriver) -> None:
    silent = scene.agent("a1")
    scene.tunnel(silent, 1, 1)
    assert said(scene.registry.agent_silent(silent, 4.0, 0)) == []
    assert not silent.sick


KINDS = ["dial", "succeed", "connect", "close", "stall", "silent", "heal", "fail", "gone", "drain", "cancel", "wait"]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["dial", "dial", "dial", "succeed", *KINDS]), st.integers(0, 1_000)),
    min_size=20,
    max_size=80,
)


class Story:
    """Plays events, and keeps a book of its own."""

    def __init__(self) -> None:
        self.registry = TunnelRegistry(AgentRouter(("default",)))
        self.links: list[AgentLink] = []
        self.tunnels: list[Tunnel] = []
        self.asked: Counter[tuple[int, int]] = Counter()
        self.outcomes: Counter[int] = Counter()
        self.now = 0.0
        self._keys = 0

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, OpenTunnel | RefuseDial):
                self.outcomes[command.tunnel.dial_id] += 1
            elif isinstance(command, ToAgent) and command.kind == packets.DIAL_REQ:
                packet = decode_packet(command.message, 0, len(command.message))
                assert isinstance(packet, packets.DialRequest)
                if packet.dial_id > 0:
                    self.asked[packet.dial_id, command.link.key] += 1

    def play(self, what: str, number: int) -> None:
        link = self.links[number % len(self.links)] if self.links else None
        tunnel = self.tunnels[number % len(self.tunnels)] if self.tunnels else None
        if what == "connect":
            self.connect(f"a{number % 5}")
        elif what == "dial":
            self.dial(number)
        elif what == "wait":
            self.now += number % 7
            self.obey(self.registry.time_passed(self.now, 10.0, [], number))
        elif tunnel is not None and what == "cancel":
            self.cancel(tunnel)
        elif link is not None:
            self.happen_to(link, what, number)

    def connect(self, agent_id: str) -> None:
        self._keys += 1
        self.links.append(AgentLink(self._keys, agent_id, AgentIdentifiers()))
        self.registry.agent_connected(self.links[-1])

    def dial(self, draw: int) -> None:
        tunnel = Tunnel(NO_CLIENT, len(self.tunnels) + 1, "web:443", self.now)
        self.tunnels.append(tunnel)
        ranks = {link.rank for link in best_links(self.links)}
        self.obey(self.registry.dialled(tunnel, "tcp", draw))
        assert tunnel.link is None if not ranks else tunnel.link is not None
        if tunnel.link is not None:
            assert tunnel.link.rank - 1 == min(ranks)

    def cancel(self, tunnel: Tunnel) -> None:
        if tunnel.state == PENDING and tunnel.link is not None:
            self.outcomes[tunnel.dial_id] += 1
        self.obey(self.registry.client_closed(tunnel, self.now))

    def happen_to(self, link: AgentLink, what: str, number: int) -> None:
        if what == "gone":
            self.links.remove(link)
            self.obey(self.registry.agent_gone(link, "lost", number))
        elif what == "drain":
            self.registry.agent_draining(link)
        elif what == "heal":
            self.obey(self.registry.time_passed(self.now + 10.0, 0.0, [], number))
            self.obey(self.registry.agent_answered(link, DialResponse("no port", 0, probe_id(link)), self.now + 10.0))
        elif what == "close" and link.connections:
            self.obey(self.registry.agent_closed(link, next(iter(link.connections)), ""))
        elif what == "silent":
            self.obey(self.registry.agent_silent(link, self.now, number))
        elif what == "stall":
            self.obey(self.registry.time_passed(self.now, 10.0, [link], number))
        elif what in ("succeed", "fail") and link.pending:
            dial_id = next(iter(link.pending))
            answer = DialResponse("refused" if what == "fail" else "", dial_id if what == "succeed" else 0, dial_id)
            self.obey(self.registry.agent_answered(link, answer, self.now))

    def check(self) -> None:
        registry = self.registry
        assert registry.pending_count() == sum(len(link.pending) for link in self.links)
        assert registry.established_count() == sum(len(link.connections) for link in self.links)
        for link in self.links:
            assert link.rank % (1 << 40) == link.load()
        assert all(count == 1 for count in self.asked.values()), "the same link was asked twice"
        assert max(Counter(dial_id for dial_id, _ in self.asked).values(), default=0) <= LINKS_PER_DIAL
        assert all(count == 1 for count in self.outcomes.values())


@settings(max_examples=300)
@given(EVENTS)
def test_whatever_happens_counts_never_drift_and_every_dial_has_one_outcome(events: list[tuple[str, int]]) -> None:
    story = Story()
    for name in ("a1", "a2", "a3"):
        story.connect(name)
    for what, number in events:
        story.play(what, number)
        story.check()
    for link in list(story.links):
        story.links.remove(link)
        story.obey(story.registry.agent_gone(link, "lost", 0))
    story.check()
    assert set(story.outcomes) == {tunnel.dial_id for tunnel in story.tunnels}
    assert all(tunnel.state == ENDED for tunnel in story.tunnels)
    assert (story.registry.pending_count(), story.registry.established_count()) == (0, 0)
