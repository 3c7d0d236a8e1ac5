"""A counter in a real API and the watch that follows it: cut again and again, it goes on and misses nothing."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.api_stock import Stock, config_map
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, Request, ScriptedApi, run_async, status_answer
from tests.support.tcp_relay import Relay

from umbilical.cluster.client import make_client
from umbilical.hardway import watching
from umbilical.hardway.watching import NAME, NAMESPACE, Counter

pytestmark = pytest.mark.real(*PROGRAMS)
SECONDS = 60.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "COUNT_SECONDS", 0.01)
    monkeypatch.setattr(watching, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def empty(shelf: Stock) -> Iterator[Stock]:
    shelf.take("ConfigMap", NAME, NAMESPACE)
    yield shelf
    shelf.take("ConfigMap", NAME, NAMESPACE)


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


@pytest.mark.usefixtures("empty")
def test_a_watch_that_is_cut_goes_on_and_sees_every_number(plane: ControlPlane, tmp_path: Path) -> None:
    counter = Counter()

    async def scene(relay: Relay) -> None:
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
        run_async(scene(relay))
    assert counter.cuts >= 3
    assert counter.missed == 0
    assert counter.seen == counter.written >= 20


@pytest.mark.usefixtures("empty")
def test_what_was_counted_before_a_kill_is_gone_on_with(plane: ControlPlane, empty: Stock) -> None:
    """Else a number of an earlier run, which is larger, would pass for one that was seen now."""
    empty.put(config_map(NAME, NAMESPACE, count="57"))
    counter = Counter()

    async def scene() -> None:
        async with make_client(plane.kubeconfig) as client, running(counter.count(client)):
            await until(counter, 60)

    run_async(scene())
    assert counter.first == 57


@pytest.mark.usefixtures("empty")
def test_numbers_that_the_watch_did_not_bring_are_counted(plane: ControlPlane, empty: Stock) -> None:
    counter = Counter()

    async def scene() -> None:
        async with make_client(plane.kubeconfig) as client, running(counter.follow(client)):
            for number in ("1", "2", "5"):
                await asyncio.to_thread(empty.put, config_map(NAME, NAMESPACE, count=number))
            async with asyncio.timeout(SECONDS):
                while counter.seen < 5:
                    await asyncio.sleep(0.01)

    run_async(scene())
    assert counter.missed == 2


def test_a_version_that_is_gone_is_asked_for_no_more_and_refusals_are_remembered(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.query.get("resourceVersion", ""))
        return status_answer(410, "Expired")

    counter = Counter()
    counter._version = "7"

    async def scene() -> None:
        async with (
            ScriptedApi(answer) as api,
            make_client(api.write_kubeconfig(tmp_path)) as client,
            running(counter.follow(client)),
        ):
            async with asyncio.timeout(SECONDS):
                while counter.cuts < 2:
                    await asyncio.sleep(0.01)

    run_async(scene())
    assert asked[:2] == ["7", ""]
    assert "410" in counter.trouble


def test_a_write_that_fails_is_not_counted(tmp_path: Path) -> None:
    counter = Counter()

    async def scene() -> None:
        refuse = ScriptedApi(lambda request: status_answer(503, "ServiceUnavailable"))
        async with refuse as api, make_client(api.write_kubeconfig(tmp_path)) as client, running(counter.count(client)):
            async with asyncio.timeout(SECONDS):
                while not counter.trouble:
                    await asyncio.sleep(0.01)

    run_async(scene())
    assert counter.written == 0
    assert "503" in counter.trouble
