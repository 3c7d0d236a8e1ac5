"""DNS messages, and the cache of answers."""

import asyncio
from contextlib import suppress

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proxies.name_testbed import TurnedClock, until
from tests.support.dns_server import cut_short, of_another_name, with_number, zone_answer

from umbilical.dialer.failure import DialReason
from umbilical.proxies.dns_client import PAYLOAD_BYTES, DnsAnswer, DnsError, DnsQuery, NotAName
from umbilical.proxies.lookup import MOST_ENTRIES, Cache, LookupFailed, LookupResult, SharedWork


def test_an_answer_is_there_until_its_time_is_over() -> None:
    clock = TurnedClock()
    cache = Cache[str, str](clock.now)
    cache.put("a", "1", 30)
    clock.turn(29.9)
    assert cache.get("a") == "1"
    clock.turn(0.1)
    assert cache.get("a") is None
    assert len(cache) == 0


def test_the_least_recently_used_makes_room() -> None:
    cache = Cache[str, str](TurnedClock().now, most_entries=2)
    cache.put("a", "1", 30)
    cache.put("b", "2", 30)
    assert cache.get("a") == "1"
    cache.put("c", "3", 30)
    assert [cache.get(key) for key in "abc"] == ["1", None, "3"]


def test_a_newer_answer_replaces_an_older_and_can_be_forgotten() -> None:
    clock = TurnedClock()
    cache = Cache[str, str](clock.now)
    cache.put("a", "1", 10)
    clock.turn(9)
    cache.put("a", "2", 10)
    clock.turn(9)
    assert cache.get("a") == "2"
    cache.forget("a")
    cache.forget("never there")
    assert cache.get("a") is None


def test_clients_cannot_fill_the_memory_by_asking_for_names() -> None:
    cache = Cache[int, str](TurnedClock().now)
    for number in range(2 * MOST_ENTRIES):
        cache.put(number, "x", 300)
    assert len(cache) == MOST_ENTRIES


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 5), st.integers(0, 3)), max_size=60))
def test_it_never_gives_what_is_older_than_it_may_be(steps: list[tuple[int, int, int]]) -> None:
    clock = TurnedClock()
    cache = Cache[int, float](clock.now, most_entries=4)
    for key, seconds, pause in steps:
        cache.put(key, clock.seconds + seconds, seconds)
        clock.turn(pause)
        assert len(cache) <= 4
        for other in range(10):
            expires = cache.get(other)
            assert expires is None or expires > clock.seconds


def test_a_failed_lookup_is_a_failed_dial_for_its_name() -> None:
    failure = LookupFailed(LookupResult.TIMEOUT, "DNS server 10.0.0.10:53", "no answer within 5 s")
    assert failure.reason is DialReason.NAME
    assert str(failure) == "DNS server 10.0.0.10:53: no answer within 5 s"


def test_only_absence_is_an_answer() -> None:
    answers = [result for result in LookupResult if LookupFailed(result, "h", "t").is_answer]
    assert answers == [LookupResult.ABSENT]


ZONE = {
    ("www.test", "A"): ["300", "10.0.0.1", "10.0.0.2"],
    ("www.test", "AAAA"): ["60", "fd00::1"],
    ("alias.test", "CNAME"): ["20", "deeper.test."],
    ("deeper.test", "CNAME"): ["30", "www.test."],
    ("lonely.test", "CNAME"): ["40", "Elsewhere.Test."],
    ("elsewhere.test", "no-soa"): [],
    ("only4.test", "A"): ["5", "10.0.0.4"],
    ("only4.test", "minimum"): ["7"],
    ("unsure.test", "no-soa"): [],
    ("broken.test", "rcode"): ["SERVFAIL"],
    ("secret.test", "rcode"): ["REFUSED"],
}


def exchange(name: str, kind: str = "A") -> tuple[DnsQuery, bytes]:
    query = DnsQuery(name, kind)
    asked = dns.message.from_wire(query.encode(4711))
    return query, zone_answer(asked, ZONE).to_wire()


def answer(name: str, kind: str = "A") -> DnsAnswer:
    query, wire = exchange(name, kind)
    found = query.decode(wire)
    # dnspython shuffles the records that it sends.
    return DnsAnswer(tuple(sorted(found.addresses)), found.seconds, found.alias)


def test_a_question_asks_for_recursion_and_offers_edns() -> None:
    asked = dns.message.from_wire(DnsQuery("www.test", "AAAA").encode(4711))
    assert asked.id == 4711
    assert asked.flags & dns.flags.RD
    assert (asked.edns, asked.payload) == (0, PAYLOAD_BYTES)
    assert asked.question[0].to_text() == "www.test. IN AAAA"


ANSWERS = {
    "all addresses with their time": (("www.test", "A"), DnsAnswer(("10.0.0.1", "10.0.0.2"), 300)),
    "of the other family": (("www.test", "AAAA"), DnsAnswer(("fd00::1",), 60)),
    "aliases within an answer, and the shortest time counts": (
        ("alias.test", "A"),
        DnsAnswer(("10.0.0.1", "10.0.0.2"), 20),
    ),
    "an alias alone is for the next question": (("lonely.test", "A"), DnsAnswer((), 40, "elsewhere.test")),
    "absence is kept as long as the zone says": (("nowhere.test", "A"), DnsAnswer((), 20)),
    "so is the absence of a family": (("only4.test", "AAAA"), DnsAnswer((), 7)),
    "absence of which the zone says nothing is not kept": (("unsure.test", "A"), DnsAnswer((), 0)),
}


@pytest.mark.parametrize(("question", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_has_addresses_and_a_time_or_an_alias(question: tuple[str, str], expected: DnsAnswer) -> None:
    assert answer(*question) == expected


@pytest.mark.parametrize("name", ["broken.test", "secret.test"])
def test_a_server_that_cannot_say_has_given_no_answer(name: str) -> None:
    with pytest.raises(DnsError, match=r"the answer is (SERVFAIL|REFUSED)"):
        answer(name)


def test_an_answer_to_another_question_is_none() -> None:
    query, wire = exchange("www.test")
    for changed in (with_number(wire, 4712), of_another_name(wire)):
        with pytest.raises(DnsError, match="another query"):
            query.decode(changed)
    with pytest.raises(DnsError, match="another query"):
        query.decode(query.encode(4711))  # its own query comes back
    other = DnsQuery("www.test", "AAAA")
    other.encode(4711)
    with pytest.raises(DnsError, match="another query"):
        other.decode(wire)


def test_an_answer_that_is_cut_short_over_tcp_is_none() -> None:
    query, wire = exchange("www.test")
    with pytest.raises(DnsError, match="truncated"):
        query.decode(cut_short(wire))


def test_the_case_of_a_name_does_not_matter() -> None:
    query = DnsQuery("WWW.Test", "A")
    asked = dns.message.from_wire(query.encode(1))
    response = dns.message.make_response(asked)
    response.answer.append(dns.rrset.from_text("www.TEST.", 9, "IN", "A", "10.0.0.9"))
    assert query.decode(response.to_wire()) == DnsAnswer(("10.0.0.9",), 9)


def test_a_chain_without_an_end_is_no_answer() -> None:
    query = DnsQuery("a.test", "A")
    response = dns.message.make_response(dns.message.from_wire(query.encode(1)))
    response.answer.append(dns.rrset.from_text("a.test.", 9, "IN", "CNAME", "b.test."))
    response.answer.append(dns.rrset.from_text("b.test.", 9, "IN", "CNAME", "a.test."))
    with pytest.raises(DnsError):
        query.decode(response.to_wire())


@pytest.mark.parametrize(
    "name",
    ["a..b", ".", f"{'a' * 64}.test", ".".join(["abcdefghi"] * 30), "\\300.test", "\x00" * 300],
    ids=["empty-label", "root", "long-label", "long-name", "bad-escape", "zeros"],
)
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    with pytest.raises(NotAName):
        DnsQuery(name, "A")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_none(octets: bytes) -> None:
    query = DnsQuery("www.test", "A")
    query.encode(4711)
    for wire in (octets, with_number(b"\0\0" + octets, 4711)):
        with suppress(DnsError):
            assert isinstance(query.decode(wire), DnsAnswer)


@given(st.data())
def test_a_damaged_answer_is_an_answer_or_none(data: st.DataObject) -> None:
    query, wire = exchange("alias.test")
    position = data.draw(st.integers(2, len(wire) - 1))
    damaged = wire[:position] + bytes([data.draw(st.integers(0, 255))]) + wire[position + 1 :]
    cut = damaged[: data.draw(st.integers(2, len(damaged)))]
    try:
        found = query.decode(cut)
    except DnsError:
        return
    assert all(isinstance(address, str) for address in found.addresses)


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_none(text: str) -> None:
    with suppress(NotAName):
        assert DnsQuery(text, "A").encode(1)


class Work:
    def __init__(self) -> None:
        self.runs = 0
        self.may_end = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> int:
        self.runs += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.runs


async def test_many_waiters_cost_one_run() -> None:
    shared, work = SharedWork[str, int](), Work()
    async with asyncio.TaskGroup() as group:
        waiters = [group.create_task(shared.run("name", work)) for _ in range(200)]
        await until(lambda: work.runs == 1)
        work.may_end.set()
    assert {waiter.result() for waiter in waiters} == {1}
    assert await shared.run("name", work) == 2, "what is over is done anew"


async def test_a_waiter_that_gives_up_leaves_the_work_to_the_others() -> None:
    shared, work = SharedWork[str, int](), Work()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.run("name", work))
        second = group.create_task(shared.run("name", work))
        await until(lambda: work.runs == 1)
        first.cancel()
        await until(first.done)
        work.may_end.set()
    assert second.result() == 1


async def test_a_failure_reaches_all_who_wait_and_is_no_noise_when_nobody_does() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("told so")

    shared = SharedWork[str, int]()
    with pytest.raises(ValueError, match="told so"):
        await shared.run("name", fail)
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(shared.run("name", fail))
        await asyncio.sleep(0)
        waiter.cancel()
    await shared.close()


async def test_the_end_takes_all_work_with_it() -> None:
    shared, work = SharedWork[str, int](), Work()

    async def wait() -> None:
        with pytest.raises(asyncio.CancelledError):
            await shared.run("name", work)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await until(lambda: work.runs == 1)
        await shared.close()
    assert work.cancelled
