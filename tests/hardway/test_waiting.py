"""Waiting: repeated probes, the last observation, known failures."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, config_map
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.made_up_stages import Lines, Time, make_site
from tests.support.scripted_api import Answer, Request, ScriptedApi, run_async, status_answer
from tests.support.tcp_relay import Relay

from umbilical.checks.check import Outcome
from umbilical.cluster.client import make_client
from umbilical.fault import ApiUnreachable, StageTimeout
from umbilical.hardway import prober
from umbilical.hardway.prober import COUNTER_NAME, NAMESPACE, Counter
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, ConditionProbe, wait_for
from umbilical.hardway.waiting import KnownFailure, wait
from umbilical.host.waiting import NotYet

SECONDS = 60.0


def test_a_look_is_repeated_until_it_returns_and_each_moment_is_told() -> None:
    time, lines, answers = Time(), Lines(), ["nothing", "a little"]

    def probe() -> str:
        if answers:
            raise NotYet(answers.pop(0))
        return "all"

    found = wait(lines, "bread", probe, 60, remedy="bake", poll_seconds=2, clock=time, sleep=time.sleep)
    assert found == "all"
    assert [(one.what, one.seen, one.elapsed_seconds, one.timeout_seconds) for one in lines.waits] == [
        ("bread", "nothing", 0.0, 60),
        ("bread", "a little", 2.0, 60),
    ]


def test_the_deadline_ends_it_with_what_was_seen_last() -> None:
    time = Time()

    def probe() -> None:
        raise NotYet(f"it is {time.now:.0f} o'clock")

    with pytest.raises(StageTimeout) as raised:
        wait(Lines(), "noon", probe, 3, remedy="wind the clock", clock=time, sleep=time.sleep)
    assert raised.value.code == "UMB725"
    assert raised.value.what == "timed out after 3 s waiting for: noon"
    assert raised.value.why == "it is 103 o'clock"
    assert raised.value.remedy == "wind the clock"


def test_what_is_seen_is_matched_with_known_failures() -> None:
    time, lines = Time(), Lines()
    known = (KnownFailure("burn(t|ed)", "turn the oven down"), KnownFailure("raw", "wait longer"))

    def probe() -> None:
        raise NotYet("the crust is burnt")

    with pytest.raises(StageTimeout) as raised:
        wait(lines, "bread", probe, 1, remedy="bake", known_failures=known, clock=time, sleep=time.sleep)
    assert lines.waits[0].hints == ("turn the oven down",)
    assert raised.value.remedy == "turn the oven down"


def test_anything_else_that_a_look_raises_ends_the_wait_at_once() -> None:
    def probe() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wait(Lines(), "it", probe, 60, remedy="")


def condition(probe: ConditionProbe) -> Condition:
    return Condition(
        "X-01", "bread is baked", "one eats it", "bake", probe, (KnownFailure("refused", "is the shop open?"),)
    )


def answers(*given: str | Exception) -> ConditionProbe:
    left = list(given)

    def probe(site: Site) -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return probe


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def site(tmp_path: Path, lines: Lines) -> Site:
    return make_site(tmp_path, reporter=lines, sleep=lambda seconds: None)


def test_a_check_passes_with_what_was_seen_and_fails_with_what_was_not(site: Site) -> None:
    passed = condition(answers("a loaf")).check.judge(site)
    assert (passed.outcome, passed.evidence) == (Outcome.PASSED, "a loaf")
    failed = condition(answers(NotYet("only dough"))).check.judge(site)
    assert (failed.outcome, failed.evidence) == (Outcome.FAILED, "only dough")


def test_a_fault_is_seen_and_not_raised(site: Site, lines: Lines) -> None:
    refused = ApiUnreachable("GET /readyz", "Connection refused")
    assert condition(answers(refused)).check.judge(site).outcome is Outcome.FAILED
    assert condition(answers(refused, "a loaf")).wait(site, 60) == "a loaf"
    assert "Connection refused" in lines.waits[0].seen
    assert lines.waits[0].hints == ("is the shop open?",)


def test_what_was_waited_for_is_told(site: Site, lines: Lines) -> None:
    condition(answers(NotYet("dough"), "a loaf")).wait(site, 60)
    condition(answers("")).wait(site, 60)
    assert lines.lines == ["saw bread is baked: a loaf", "saw bread is baked"]


def test_sights_are_seen_one_after_the_other_and_the_first_that_is_not_ends_it(site: Site, lines: Lines) -> None:
    with pytest.raises(StageTimeout) as raised:
        wait_for(
            site, 0, condition(answers("one")), condition(answers(NotYet("no flour"))), condition(answers("three"))
        )
    assert "no flour" in raised.value.why
    assert raised.value.remedy == "bake"
    assert lines.lines == ["saw bread is baked: one"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "COUNT_SECONDS", 0.01)
    monkeypatch.setattr(prober, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def empty(shelf: Stock) -> Iterator[Stock]:
    shelf.take("ConfigMap", COUNTER_NAME, NAMESPACE)
    yield shelf
    shelf.take("ConfigMap", COUNTER_NAME, NAMESPACE)


def relayed(plane: ControlPlane, relay: Relay, folder: Path) -> Path:
    path = folder / "relayed.kubeconfig"
    path.write_text(plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{relay.port}"))
    return path


@asynccontextmanager
async def running(*works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Have loops without an end run for a while."""
    async with asyncio.TaskGroup() as tasks:
        begun = [tasks.create_task(work) for work in works]
        yield
        for task in begun:
            task.cancel()


async def until(counter: Counter, number: int) -> None:
    async with asyncio.timeout(SECONDS):
        while counter.written < number:
            await asyncio.sleep(0.01)


async def caught_up(counter: Counter) -> None:
    async with asyncio.timeout(SECONDS):
        while counter.seen < counter.written:
            await asyncio.sleep(0.01)


@pytest.mark.real(*PROGRAMS)
@pytest.mark.usefixtures("empty")
def test_a_watch_that_is_cut_goes_on_and_sees_every_number(plane: ControlPlane, tmp_path: Path) -> None:
    counter = Counter()

    async def make_testbed(relay: Relay) -> None:
        through = relayed(plane, relay, tmp_path)
        async with (
            make_client(plane.kubeconfig) as writer,
            make_client(through) as watcher,
            running(counter.follow(watcher)),
        ):
            async with running(counter.count(writer)):
                for number in (5, 10, 15):
                    await until(counter, number)
                    await asyncio.to_thread(relay.cut)
                await until(counter, 20)
            await caught_up(counter)

    with Relay(plane.port) as relay:
        run_async(make_testbed(relay))
    assert counter.cuts >= 3
    assert counter.missed == 0
    assert counter.seen == counter.written >= 20


@pytest.mark.real(*PROGRAMS)
@pytest.mark.usefixtures("empty")
def test_what_was_counted_before_a_kill_is_gone_on_with(plane: ControlPlane, empty: Stock) -> None:
    """Else a number of an earlier run, which is larger, would pass for one that was seen now."""
    empty.put(config_map(COUNTER_NAME, NAMESPACE, count="57"))
    counter = Counter()

    async def make_testbed() -> None:
        async with make_client(plane.kubeconfig) as client, running(counter.count(client)):
            await until(counter, 60)

    run_async(make_testbed())
    assert counter.first == 57


@pytest.mark.real(*PROGRAMS)
@pytest.mark.usefixtures("empty")
def test_numbers_that_the_watch_did_not_bring_are_counted(plane: ControlPlane, empty: Stock) -> None:
    counter = Counter()

    async def make_testbed() -> None:
        async with make_client(plane.kubeconfig) as client, running(counter.follow(client)):
            for number in ("1", "2", "5"):
                await asyncio.to_thread(empty.put, config_map(COUNTER_NAME, NAMESPACE, count=number))
            async with asyncio.timeout(SECONDS):
                while counter.seen < 5:
                    await asyncio.sleep(0.01)

    run_async(make_testbed())
    assert counter.missed == 2


@pytest.mark.real(*PROGRAMS)
def test_a_version_that_is_gone_is_asked_for_no_more_and_refusals_are_remembered(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.query.get("resourceVersion", ""))
        return status_answer(410, "Expired")

    counter = Counter()
    counter._version = "7"

    async def make_testbed() -> None:
        async with (
            ScriptedApi(answer) as api,
            make_client(api.write_kubeconfig(tmp_path)) as client,
            running(counter.follow(client)),
        ):
            async with asyncio.timeout(SECONDS):
                while counter.cuts < 2:
                    await asyncio.sleep(0.01)

    run_async(make_testbed())
    assert asked[:2] == ["7", ""]
    assert "410" in counter.trouble


@pytest.mark.real(*PROGRAMS)
def test_a_write_that_fails_is_not_counted(tmp_path: Path) -> None:
    counter = Counter()

    async def make_testbed() -> None:
        refuse = ScriptedApi(lambda request: status_answer(503, "ServiceUnavailable"))
        async with refuse as api, make_client(api.write_kubeconfig(tmp_path)) as client, running(counter.count(client)):
            async with asyncio.timeout(SECONDS):
                while not counter.trouble:
                    await asyncio.sleep(0.01)

    run_async(make_testbed())
    assert counter.written == 0
    assert "503" in counter.trouble
