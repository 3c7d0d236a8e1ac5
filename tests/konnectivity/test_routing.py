import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentLink, Roster, Switchyard, host_of, parse_strategies


class Links:
    """Makes links with serial keys."""

    def __init__(self) -> None:
        self._made = 0

    def make(self, agent_id: str = "a", *, default_route: bool = False, **hosts: tuple[str, ...]) -> AgentLink:
        self._made += 1
        return AgentLink(self._made, agent_id, AgentIdentifiers(default_route=default_route, **hosts))


links = Links()


def yard(*strategies: str) -> Switchyard:
    return Switchyard(strategies)


def test_an_empty_yard_has_no_agent() -> None:
    empty = yard("destHost", "default", "defaultRoute")
    assert empty.choose("host:1", 7) is None
    assert not empty.has_any()
    assert empty.ready_backends() == {"destHost": 0, "default": 0, "defaultRoute": 0}


def test_dest_host_matches_the_stripped_host_exactly() -> None:
    by_host, by_ipv6 = links.make("a", host=("Web",)), links.make("b", ipv6=("::1",), ipv4=("10.0.0.1",))
    hosts = yard("destHost")
    hosts.add(by_host)
    hosts.add(by_ipv6)
    assert hosts.choose("Web:80", 0) is by_host
    assert hosts.choose("web:80", 0) is None
    assert hosts.choose("[::1]:80", 0) is by_ipv6
    assert hosts.choose("::1", 0) is by_ipv6
    assert hosts.choose("[0:0::1]:80", 0) is None
    assert hosts.choose("10.0.0.1:443", 0) is by_ipv6
    assert hosts.choose(":443", 0) is None


def test_cidr_is_used_by_no_strategy() -> None:
    hosts = yard("destHost")
    hosts.add(links.make("a", cidr=("10.0.0.0/8",)))
    assert not hosts.has_any()


def test_dest_host_takes_the_oldest_that_does_not_drain() -> None:
    first, second, third = (links.make(name, host=("h",)) for name in "abc")
    hosts = yard("destHost")
    for link in (first, second, third):
        hosts.add(link)
    assert hosts.choose("h:1", 5) is first
    first.draining = True
    assert hosts.choose("h:1", 5) is second


def test_dest_host_with_all_draining_does_not_fall_through() -> None:
    draining, idle = links.make("a", host=("h",)), links.make("b")
    draining.draining = True
    both = yard("destHost", "default")
    both.add(idle)
    both.add(draining)
    assert both.choose("h:1", 0) is draining
    assert both.choose("other:1", 0) is idle


def test_strategies_are_tried_in_the_configured_order() -> None:
    by_host, by_route = links.make("a", host=("h",)), links.make("b", default_route=True)
    route_first, host_first = yard("defaultRoute", "destHost"), yard("destHost", "defaultRoute")
    for each in (route_first, host_first):
        each.add(by_host)
        each.add(by_route)
    assert route_first.choose("h:1", 0) is by_route
    assert host_first.choose("h:1", 0) is by_host
    assert host_first.choose("unknown:1", 0) is by_route


def test_a_default_route_agent_alone_makes_a_dest_host_server_ready() -> None:
    both = yard("destHost", "defaultRoute")
    both.add(links.make("a", default_route=True))
    assert both.has_any()
    assert both.ready_backends() == {"destHost": 0, "defaultRoute": 1}


def test_the_draw_picks_the_start_of_the_ring() -> None:
    agents = [links.make(name) for name in "abc"]
    ring = yard("default")
    for agent in agents:
        ring.add(agent)
    assert [ring.choose("x:1", draw) for draw in range(4)] == [*agents, agents[0]]


def test_the_ring_skips_draining_agents_and_falls_back_to_the_first_one_seen() -> None:
    agents = [links.make(name) for name in "abc"]
    ring = yard("default")
    for agent in agents:
        ring.add(agent)
    agents[1].draining = True
    assert ring.choose("x:1", 1) is agents[2]
    agents[0].draining = agents[2].draining = True
    assert ring.choose("x:1", 1) is agents[1]


def test_only_the_oldest_stream_of_an_agent_counts() -> None:
    older, newer, other = links.make("a"), links.make("a"), links.make("b")
    ring = yard("default")
    for link in (older, newer, other):
        ring.add(link)
    assert ring.ready_backends() == {"default": 2}
    assert {ring.choose("x:1", draw) for draw in range(4)} == {older, other}
    older.draining = True
    assert {ring.choose("x:1", draw) for draw in range(4)} == {other}


def test_removal_is_by_identity_and_twice_is_harmless() -> None:
    older, newer = links.make("a", host=("h",)), links.make("a", host=("h",))
    both = yard("destHost", "default")
    both.add(older)
    both.add(newer)
    both.remove(older)
    both.remove(older)
    assert both.choose("h:1", 0) is newer
    assert both.choose("other:1", 0) is newer
    both.remove(newer)
    assert not both.has_any()
    both.remove(newer)


def test_an_agent_that_names_a_host_twice_is_listed_once() -> None:
    link = links.make("a", host=("h", "h"), ipv4=("h",))
    hosts = yard("destHost")
    hosts.add(link)
    hosts.remove(link)
    assert not hosts.has_any()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3))), st.integers(min_value=0))
def test_the_ring_never_loses_or_keeps_an_agent(moves: list[tuple[bool, int, int]], draw: int) -> None:
    roster = Roster("default")
    pool = {(agent, copy): links.make(str(agent)) for agent in range(6) for copy in range(4)}
    present: dict[tuple[int, int], AgentLink] = {}
    for adding, agent, copy in moves:
        link = pool[agent, copy]
        if adding:
            roster.add(link.agent_id, link)
            present.setdefault((agent, copy), link)
        else:
            roster.remove(link.agent_id, link)
            present.pop((agent, copy), None)
    assert sorted(roster.keys) == sorted({link.agent_id for link in present.values()})
    oldest = {
        agent_id: next(link for link in present.values() if link.agent_id == agent_id) for agent_id in roster.keys
    }
    reached = {roster.from_ring(draw + step) for step in range(len(roster.keys))}
    assert reached == set(oldest.values())


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("host:1", "host"),
        ("host", "host"),
        (":1", ""),
        ("", ""),
        ("[::1]:80", "::1"),
        ("::1", "::1"),
        ("fe80::1:2", "fe80::1:2"),
        ("[fe80::1%eth0]:2", "fe80::1%eth0"),
        ("a:b:c", "a:b:c"),
    ],
)
def test_host_of_strips_the_port(address: str, host: str) -> None:
    assert host_of(address) == host


def test_strategies_keep_their_order_and_empty_items_are_skipped() -> None:
    assert parse_strategies("destHost,,defaultRoute,default,") == ("destHost", "defaultRoute", "default")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "ProxyStrategies cannot be empty"),
        (",", "invalid proxy strategies: proxy strategies cannot be empty"),
        ("default,desthost", "invalid proxy strategies: unknown proxy strategy: desthost"),
        (" default", "invalid proxy strategies: unknown proxy strategy:  default"),
    ],
)
def test_bad_strategies_are_refused_with_the_words_of_upstream(text: str, error: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_strategies(text)
    assert str(caught.value) == error
