from collections.abc import Iterable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.registry_driver import NO_CLIENT, best_links

from umbilical.konnectivity.links import AgentLink, Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentRouter, host_of, parse_strategies

_keys = count(1)


def make(agent_id: str = "a", *, default_route: bool = False, **hosts: tuple[str, ...]) -> AgentLink:
    return AgentLink(next(_keys), agent_id, AgentIdentifiers(default_route=default_route, **hosts))


def router(*strategies: str, agents: Iterable[AgentLink] = ()) -> AgentRouter:
    made = AgentRouter(strategies)
    for agent in agents:
        made.add(agent)
    return made


def drain(*draining: AgentLink) -> None:
    for link in draining:
        link.draining = True
        link.weigh()


def sicken(link: AgentLink, *, sick: bool = True) -> None:
    link.sick = sick
    link.weigh()


def burden(link: AgentLink, tunnels: int) -> None:
    """So many connections, and nothing pending."""
    link.connections = {number: Tunnel(NO_CLIENT, number, "x:1", 0.0) for number in range(tunnels)}
    link.weigh()


def chosen(among: AgentRouter, address: str = "x:1") -> set[AgentLink | None]:
    """Everybody whom some draw picks."""
    return {among.choose(address, draw) for draw in range(24)}


def test_an_empty_yard_has_no_agent() -> None:
    empty = router("destHost", "default", "defaultRoute")
    assert empty.choose("host:1", 7) is None
    assert not empty.has_any()
    assert empty.ready_backends() == {"destHost": 0, "default": 0, "defaultRoute": 0}


def test_dest_host_matches_the_stripped_host_exactly() -> None:
    by_host, by_ipv6 = make("a", host=("Web",)), make("b", ipv6=("::1",), ipv4=("10.0.0.1",))
    hosts = router("destHost", agents=[by_host, by_ipv6])
    assert hosts.choose("Web:80", 0) is by_host
    assert hosts.choose("web:80", 0) is None
    assert hosts.choose("[::1]:80", 0) is by_ipv6
    assert hosts.choose("::1", 0) is by_ipv6
    assert hosts.choose("[0:0::1]:80", 0) is None
    assert hosts.choose("10.0.0.1:443", 0) is by_ipv6
    assert hosts.choose(":443", 0) is None


def test_cidr_is_used_by_none_of_upstreams_strategies() -> None:
    upstream = router("destHost", "defaultRoute")
    upstream.add(make("a", cidr=("10.0.0.0/8",)))
    assert not upstream.has_any()


def test_dest_host_is_balanced_across_agents_that_share_a_host() -> None:
    first, second, third = (make(name, host=("h",)) for name in "abc")
    hosts = router("destHost", agents=(first, second, third))
    assert chosen(hosts, "h:1") == {first, second, third}
    burden(first, 1)
    assert chosen(hosts, "h:1") == {second, third}
    drain(second)
    assert chosen(hosts, "h:1") == {third}
    drain(first, third)
    assert chosen(hosts, "h:1") == {second, third}  # all drain: the least loaded of them


def test_dest_host_with_all_draining_does_not_fall_through() -> None:
    draining, idle = make("a", host=("h",)), make("b")
    drain(draining)
    both = router("destHost", "default", agents=[idle, draining])
    assert both.choose("h:1", 0) is draining
    assert both.choose("other:1", 0) is idle


def test_strategies_are_tried_in_the_configured_order() -> None:
    by_host, by_route = make("a", host=("h",)), make("b", default_route=True)
    route_first = router("defaultRoute", "destHost", agents=[by_host, by_route])
    host_first = router("destHost", "defaultRoute", agents=[by_host, by_route])
    assert route_first.choose("h:1", 0) is by_route
    assert host_first.choose("h:1", 0) is by_host
    assert host_first.choose("unknown:1", 0) is by_route


def test_a_default_route_agent_alone_makes_a_dest_host_server_ready() -> None:
    both = router("destHost", "defaultRoute", agents=[make("a", default_route=True)])
    assert both.has_any()
    assert both.ready_backends() == {"destHost": 0, "defaultRoute": 1}


def test_the_draw_decides_among_equals() -> None:
    agents = [make(name) for name in "abc"]
    ring = router("default", agents=agents)
    assert [ring.choose("x:1", draw) for draw in range(4)] == [*agents, agents[0]]


def test_a_newer_stream_of_an_agent_takes_over_from_one_that_drains() -> None:
    """An agent restarted under its old ID: the one that leaves must not be kept alive by new dials."""
    leaving, successor = make("a", host=("h",)), make("a", host=("h",))
    both = router("destHost", "default", agents=[leaving])
    drain(leaving)
    assert chosen(both) == {leaving}
    both.add(successor)
    assert chosen(both) == {successor}
    assert chosen(both, "h:1") == {successor}
    sicken(successor)
    assert chosen(both) == {leaving}


@pytest.mark.parametrize("strategy", ["default", "defaultRoute"])
def test_the_agent_on_the_destination_itself_is_preferred_however_loaded(strategy: str) -> None:
    near = make("a", default_route=True, host=("node1",), ipv4=("10.0.0.1",), ipv6=("fd00::1",))
    far = make("b", default_route=True)
    ring = router(strategy, agents=[near, far])
    burden(near, 9)
    for address in ("node1:10250", "10.0.0.1:10250", "[fd00::1]:10250"):
        assert chosen(ring, address) == {near}
    assert chosen(ring, "10.0.0.2:10250") == {far}


def test_the_nearest_agent_is_not_preferred_while_it_drains_or_is_sick() -> None:
    near, far = make("a", host=("node1",)), make("b")
    ring = router("default", agents=[near, far])
    burden(far, 3)
    drain(near)
    assert chosen(ring, "node1:1") == {far}
    near.draining = False
    sicken(near)
    assert chosen(ring, "node1:1") == {far}
    sicken(near, sick=False)
    assert chosen(ring, "node1:1") == {near}


def test_nearness_opens_no_strategy_to_an_agent_that_is_not_in_it() -> None:
    near, route = make("a", host=("node1",)), make("b", default_route=True)
    ring = router("defaultRoute", agents=[near, route])
    assert chosen(ring, "node1:1") == {route}


def test_of_several_networks_the_longest_prefix_wins() -> None:
    wide, narrow, six = (
        make("wide", cidr=("10.0.0.0/8", "0.0.0.0/0")),
        make("narrow", cidr=("10.1.0.0/16",)),
        make("six", cidr=("fd00::/8",)),
    )
    networks = router("cidr", agents=(wide, narrow, six))
    assert chosen(networks, "10.1.2.3:443") == {narrow}
    assert chosen(networks, "10.2.2.3:443") == {wide}
    assert chosen(networks, "[::ffff:10.1.2.3]:443") == {narrow}
    assert chosen(networks, "[fd12::1]:443") == {six}
    assert chosen(networks, "[2001:db8::1]:443") == {None}
    assert chosen(networks, "web.example.com:443") == {None}
    assert networks.ready_backends() == {"cidr": 4}
    networks.remove(narrow)
    assert chosen(networks, "10.1.2.3:443") == {wide}
    networks.remove(wide)
    networks.remove(six)
    assert not networks.has_any()


def test_agents_of_one_network_are_balanced_and_an_unmatched_dial_falls_through() -> None:
    one, two, other = make("1", cidr=("10.0.0.0/8",)), make("2", cidr=("10.9.9.9/8",)), make("3")
    both = router("cidr", "default", agents=(one, two, other))
    assert chosen(both, "10.1.1.1:1") == {one, two}
    burden(one, 1)
    assert chosen(both, "10.1.1.1:1") == {two}
    assert chosen(both, "web:1") == {two, other}


def test_text_that_is_no_network_is_left_out_and_named_where_it_matters() -> None:
    link = make("a", cidr=("10.0.0.0", "10.0.0.0/8", "everything"))
    networks = router("default", "cidr", agents=[link])
    assert networks.ready_backends() == {"default": 1, "cidr": 1}
    assert networks.unusable_networks(link) == ["10.0.0.0", "everything"]
    assert router("default").unusable_networks(link) == []


def test_removal_is_by_identity_and_twice_is_harmless() -> None:
    older, newer = make("a", host=("h",)), make("a", host=("h",))
    both = router("destHost", "default", agents=[older, newer])
    both.remove(older)
    both.remove(older)
    assert both.choose("h:1", 0) is newer
    assert both.choose("other:1", 0) is newer
    both.remove(newer)
    assert not both.has_any()
    both.remove(newer)


def test_an_agent_that_names_a_host_twice_is_listed_once() -> None:
    link = make("a", host=("h", "h"), ipv4=("h",))
    hosts = router("destHost", agents=[link])
    hosts.remove(link)
    assert not hosts.has_any()


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "load", "drain", "sicken", "heal"]), st.integers(0, 11), st.integers(0, 4)
    )
)


@given(MOVES, st.integers(min_value=0))
def test_whatever_happens_the_chosen_link_has_the_least_load_of_the_best(
    moves: list[tuple[str, int, int]], draw: int
) -> None:
    """Against a plain search through everybody."""
    pool = [make(str(number // 2), host=(f"h{number % 3}",), cidr=("10.0.0.0/8",)) for number in range(12)]
    present: list[AgentLink] = []
    everybody, hosts, networks = router("default"), router("destHost"), router("cidr")
    for what, number, tunnels in moves:
        link = pool[number]
        if what == "add" and link not in present:
            present.append(link)
        elif what == "remove" and link in present:
            present.remove(link)
        elif what == "load":
            burden(link, tunnels)
        elif what == "drain":
            drain(link)
        elif what in ("sicken", "heal"):
            sicken(link, sick=what == "sicken")
        for each in (everybody, hosts, networks):
            if what == "add":
                each.add(link)
            elif what == "remove":
                each.remove(link)
    assert everybody.choose("x:1", draw) in best_of(present)
    assert networks.choose("10.1.1.1:1", draw) in best_of(present)
    for name in ("h0", "h1", "h2"):
        assert hosts.choose(f"{name}:1", draw) in best_of([link for link in present if name in link.identifiers.host])
    assert everybody.ready_backends() == {"default": len({link.agent_id for link in present})}
    assert hosts.ready_backends() == {"destHost": len({link.identifiers.host for link in present})}


def best_of(present: list[AgentLink]) -> list[AgentLink | None]:
    """Every right answer."""
    best = best_links(present)
    ranks = {(link.sick, link.draining, link.load()) for link in best}
    return [link for link in best if (link.sick, link.draining, link.load()) == min(ranks)] or [None]


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
    text = "destHost,,cidr,defaultRoute,default,"
    assert parse_strategies(text) == ("destHost", "cidr", "defaultRoute", "default")


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
