"""Which address is dialled when: decided by facts and a clock that the test moves."""

import socket
from collections.abc import Sequence

import pytest

from umbilical.tunnel.outbound import Address
from umbilical.tunnel.server_targets import LOOK_AGAIN_SECONDS, MISSING_SECONDS, ServerSource, ServerTarget, TargetBook
from umbilical.tunnel.settings import ServerAddress

ONE, TWO, THREE = (ServerAddress(f"10.0.0.{number}", 8091) for number in (1, 2, 3))
BALANCER = ServerAddress("lb.example", 8091)
NEVER = float("inf")


def at(host: str) -> Address:
    return socket.AF_INET, (host, 8091)


def book_of(*servers: ServerAddress) -> TargetBook:
    """A book of resolved hosts that are IP addresses."""
    book = TargetBook(servers, interval_seconds=1.0, cap_seconds=10.0)
    resolve(book)
    return book


def resolve(book: TargetBook, now: float = 0.0) -> None:
    for source in book.looks_due(now):
        source.resolved([at(source.server.host)], NEVER)
    book.tidy(now)


def named(book: TargetBook, addresses: Sequence[str], now: float = 0.0) -> ServerSource:
    """The only source, with these addresses from now on."""
    (source,) = book.sources()
    source.resolved([at(address) for address in addresses], now + LOOK_AGAIN_SECONDS)
    book.tidy(now)
    return source


def balanced(addresses: Sequence[str]) -> tuple[TargetBook, ServerSource]:
    """A book of one load balancer; its name has these addresses."""
    book = TargetBook((BALANCER,), 1.0, 10.0)
    return book, named(book, addresses)


def target_at(book: TargetBook, host: str) -> ServerTarget:
    (found,) = (target for target in book.targets() if target.address == at(host))
    return found


def dial(target: ServerTarget, now: float) -> ServerTarget:
    target.begin(now)
    target.is_busy = False
    return target


def connect(target: ServerTarget, link: str, now: float = 0.0) -> None:
    dial(target, now).found(link, 0.0)


def hosts(targets: list[ServerTarget]) -> list[str]:
    return sorted(target.server.host for target in targets)


def test_every_address_is_due_at_once_and_none_twice() -> None:
    book = book_of(ONE, TWO)
    due = book.dials_due(0.0, wants_more=False)
    assert hosts(due) == ["10.0.0.1", "10.0.0.2"]
    due[0].begin(0.0)
    assert book.dials_due(0.0, wants_more=False) == due[1:]
    assert book.next_due_at(wants_more=False) == float("-inf")


def test_a_dead_address_waits_longer_and_longer_and_alone() -> None:
    book = book_of(ONE, TWO)
    dead, other = book.targets()
    connect(other, "link")
    waits = []
    now = 0.0
    for _ in range(9):
        book.failed(dial(dead, now), now, 0.0)
        waits.append(dead.due_at - now)
        now = dead.due_at
    assert waits == pytest.approx([1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 10, 10, 10])
    assert book.dials_due(now, wants_more=False) == [dead]
    assert book.next_due_at(wants_more=False) == now


def test_an_address_that_serves_is_left_in_peace_until_its_link_is_lost() -> None:
    book = book_of(ONE)
    (target,) = book.targets()
    connect(target, "link", now=5.0)
    assert book.dials_due(1000.0, wants_more=False) == []
    assert book.next_due_at(wants_more=False) == NEVER
    book.link_lost("link")
    assert target.due_at == 6.0, "at once for a link that lived, one beat after the attempt for one that did not"
    assert book.dials_due(6.0, wants_more=False) == [target]


def test_two_addresses_of_one_server_share_its_link_and_its_end() -> None:
    book = book_of(ONE, TWO)
    first, second = book.targets()
    connect(first, "link")
    dial(second, 0.0).found_again("link", 0.0, is_alone=False)
    assert book.dials_due(1000.0, wants_more=False) == []
    book.link_lost("link")
    assert book.dials_due(1000.0, wants_more=False) == [first, second]


def test_the_end_of_a_link_does_not_affect_other_addresses() -> None:
    book = book_of(ONE, TWO)
    first, second = book.targets()
    connect(first, "link")
    book.failed(dial(second, 0.0), 0.0, 0.0)
    book.failed(dial(second, 1.0), 1.0, 0.0)
    book.link_lost("link")
    assert (first.due_at, second.due_at) == (1.0, 2.5)


def test_a_success_makes_the_waits_short_again() -> None:
    book = book_of(ONE)
    (target,) = book.targets()
    for now in (0.0, 1.0, 2.5):
        book.failed(dial(target, now), now, 0.0)
    connect(target, "link", now=10.0)
    book.link_lost("link")
    book.failed(dial(target, 11.0), 11.0, 0.0)
    assert target.due_at == 12.0


def test_one_balancer_is_asked_beat_by_beat_while_servers_are_missing() -> None:
    book = book_of(ONE)
    (target,) = book.targets()
    assert book.is_alone(target)
    connect(target, "a", now=0.0)
    assert book.hopes() == 0
    for now in (1.0, 2.0, 3.0):
        assert book.dials_due(now, wants_more=True) == [target]
        dial(target, now).found_again("a", 0.0, is_alone=True)
        assert target.due_at == now + 1.0
    assert book.dials_due(9.0, wants_more=False) == []


def test_one_of_several_balancers_is_asked_less_and_less_when_it_has_nothing_new() -> None:
    book = book_of(ONE, TWO)
    first, _ = book.targets()
    assert not book.is_alone(first)
    connect(first, "a")
    waits = []
    now = first.due_at
    for _ in range(4):
        dial(first, now).found_again("a", 0.0, is_alone=False)
        waits.append(first.due_at - now)
        now = first.due_at
    assert waits == pytest.approx([1, 1.5, 2.25, 3.375])


def test_a_dead_server_of_its_own_address_may_come_back_so_that_others_are_not_searched() -> None:
    book = book_of(ONE, TWO, THREE)
    first, second, third = book.targets()
    assert book.hopes() == 3
    connect(first, "a")
    connect(second, "b")
    book.failed(dial(third, 0.0), 0.0, 0.0)
    assert book.hopes() == 1


def test_a_dead_address_beside_a_live_one_of_its_name_does_not_count() -> None:
    """A balancer with two families, one of which does not reach us, still leads to all servers."""
    book = TargetBook((BALANCER,), 1.0, 10.0)
    assert book.hopes() == 1, "nothing is looked up yet"
    named(book, ["10.0.0.1", "10.0.0.2"])
    connect(target_at(book, "10.0.0.1"), "a")
    assert book.hopes() == 1
    book.failed(dial(target_at(book, "10.0.0.2"), 0.0), 0.0, 0.0)
    assert book.hopes() == 0


def test_a_name_is_looked_up_again_in_time_and_after_a_failed_dial() -> None:
    book, source = balanced(["10.0.0.1"])
    assert book.looks_due(29.0) == []
    assert book.looks_due(30.0) == [source]
    book.failed(dial(target_at(book, "10.0.0.1"), 5.0), 5.0, 0.0)
    assert book.looks_due(5.0) == [source]
    source.is_busy = True
    assert book.looks_due(5.0) == []


def test_an_address_given_as_such_is_never_looked_up_again() -> None:
    book = book_of(ONE)
    (target,) = book.targets()
    book.failed(dial(target, 5.0), 5.0, 0.0)
    assert book.looks_due(1e9) == []


def test_a_lookup_that_fails_keeps_the_addresses_and_waits_longer_and_longer() -> None:
    book, source = balanced(["10.0.0.1"])
    source.unresolved(30.0, 0.0)
    assert source.look_due_at == 31.0
    source.unresolved(31.0, 0.0)
    assert source.look_due_at == 32.5
    book.tidy(1e6)
    assert len(book.targets()) == 1


def test_new_addresses_join_and_old_ones_keep_their_state() -> None:
    book, _ = balanced(["10.0.0.1"])
    old = target_at(book, "10.0.0.1")
    connect(old, "a")
    named(book, ["10.0.0.2", "10.0.0.1"], now=30.0)
    assert target_at(book, "10.0.0.1") is old
    assert book.dials_due(30.0, wants_more=False) == [target_at(book, "10.0.0.2")]


def test_a_missing_address_is_dropped_at_once_if_idle_and_later_if_connected() -> None:
    book, _ = balanced(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    connect(target_at(book, "10.0.0.1"), "a")
    named(book, ["10.0.0.3"], now=30.0)
    assert {target.address for target in book.targets()} == {at("10.0.0.1"), at("10.0.0.3")}
    assert book.leads_to("a")
    book.tidy(30.0 + MISSING_SECONDS - 1)
    assert book.leads_to("a")
    book.tidy(30.0 + MISSING_SECONDS)
    assert not book.leads_to("a")
    assert len(book.targets()) == 1


def test_an_address_that_comes_back_is_as_if_it_had_never_gone() -> None:
    book, _ = balanced(["10.0.0.1", "10.0.0.2"])
    connect(target_at(book, "10.0.0.1"), "a")
    named(book, ["10.0.0.2"], now=30.0)
    named(book, ["10.0.0.1", "10.0.0.2"], now=60.0)
    named(book, ["10.0.0.2"], now=119.0)
    book.tidy(121.0)
    assert book.leads_to("a")


def test_a_missing_address_whose_server_goes_is_not_dialled_again() -> None:
    book, _ = balanced(["10.0.0.1", "10.0.0.2"])
    connect(target_at(book, "10.0.0.1"), "a")
    named(book, ["10.0.0.2"], now=30.0)
    book.link_lost("a")
    book.tidy(31.0)
    assert [target.address for target in book.targets()] == [at("10.0.0.2")]


def test_published_servers_come_and_go_with_their_leases() -> None:
    book = book_of()
    book.publish([ONE, TWO])
    resolve(book)
    assert hosts(book.dials_due(0.0, wants_more=False)) == ["10.0.0.1", "10.0.0.2"]
    book.publish([TWO])
    book.tidy(1.0)
    assert hosts(book.targets()) == ["10.0.0.2"]
    assert [source.server for source in book.sources()] == [TWO]


def test_a_server_whose_lease_is_gone_is_kept_for_a_while_if_it_serves() -> None:
    book = book_of()
    book.publish([ONE])
    resolve(book)
    (target,) = book.targets()
    connect(target, "a")
    book.publish([])
    book.tidy(1.0)
    assert book.leads_to("a")
    book.publish([ONE])
    book.tidy(2.0)
    book.tidy(2.0 + MISSING_SECONDS)
    assert book.leads_to("a"), "the lease came back"
    book.publish([])
    book.tidy(200.0)
    book.tidy(200.0 + MISSING_SECONDS)
    assert book.sources() == []


def test_a_given_server_stays_whatever_leases_say() -> None:
    book = book_of(ONE)
    book.publish([ONE])
    book.publish([])
    book.tidy(1e6)
    assert hosts(book.targets()) == ["10.0.0.1"]


def test_behind_a_published_address_more_is_searched_while_a_published_server_is_missing() -> None:
    book = book_of()
    book.publish([ONE, TWO], [TWO])
    resolve(book)
    one, two = book.targets()
    connect(one, "a")
    connect(two, "b")
    assert book.dials_due(1000.0, wants_more=False) == [two]
    dial(two, 1000.0).found_again("b", 0.0, is_alone=False)
    assert 1000.0 < book.next_due_at(wants_more=False) < 1010.0
    book.publish([ONE, TWO])
    assert book.dials_due(2000.0, wants_more=False) == []


def test_behind_a_published_address_nothing_is_searched_for_the_count_alone() -> None:
    book = book_of(ONE)
    book.publish([TWO])
    resolve(book)
    given, published = book.targets()
    connect(given, "a")
    connect(published, "b")
    assert book.dials_due(1000.0, wants_more=True) == [given]


def test_news_of_leases_hastens_published_servers_that_are_not_connected() -> None:
    book = book_of(ONE)
    book.publish([TWO, THREE])
    resolve(book)
    given, dead, alive = book.targets()
    connect(alive, "c")
    for target in (given, dead):
        for now in (100.0, 101.0, 102.5):
            book.failed(dial(target, now), now, 0.0)
    book.hasten_published()
    assert (given.due_at, dead.due_at, alive.due_at) == (104.75, 103.5, 1.0)


def test_an_unnamed_source_is_not_looked_up() -> None:
    book = book_of()
    book.publish([BALANCER])
    book.publish([])
    assert book.looks_due(0.0) == []
    assert book.hopes() == 0
    assert book.next_due_at(wants_more=True) == NEVER


@pytest.mark.parametrize(
    ("server", "address", "name"),
    [
        (ONE, at("10.0.0.1"), "10.0.0.1:8091"),
        (BALANCER, at("10.0.0.1"), "lb.example:8091 (10.0.0.1)"),
        (BALANCER, None, "lb.example:8091"),
        (ServerAddress("::1", 1), (socket.AF_INET6, ("::1", 1, 0, 0)), "[::1]:1"),
    ],
)
def test_targets_are_named_as_people_gave_them_and_where_that_led(
    server: ServerAddress, address: Address | None, name: str
) -> None:
    book = TargetBook((server,), 1.0, 10.0)
    (source,) = book.sources()
    source.resolved([address], NEVER)
    book.tidy(0.0)
    assert [target.name() for target in book.targets()] == [name]
