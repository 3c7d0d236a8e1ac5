import asyncio
import threading
from html.parser import HTMLParser

from umbilical.tunnel import pprof
from umbilical.tunnel.pprof import Profiler


def take(name: str, seconds: str = "") -> tuple[int, str]:
    status, body = asyncio.run(Profiler().take(name, seconds))
    return status, body.decode()


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if tag == "a" and name == "href"]


def test_every_link_of_the_index_leads_to_a_profile() -> None:
    status, page = take("")
    links = Links()
    links.feed(page)
    assert status == 200
    assert len(links.targets) == 3
    for target in links.targets:
        name, _, _ = target.partition("?")
        assert take(name, "0.05")[0] == 200


def test_a_busy_thread_shows_in_the_profile() -> None:
    stop = threading.Event()
    busy = threading.Thread(target=stop.wait, name="busy", args=(10,))
    busy.start()
    try:
        status, text = take("profile", "2")  # at least one look, also on a machine that is busy elsewhere
    finally:
        stop.set()
        busy.join()
    assert status == 200
    folded = [line for line in text.splitlines() if "threading.Event.wait" in line]
    assert folded
    assert all(line.rpartition(" ")[2].isdigit() for line in folded)


def test_only_one_profile_is_taken_at_a_time() -> None:
    async def scenario() -> tuple[int, int]:
        profiler = Profiler()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(profiler.take("profile", "300"))
            await asyncio.sleep(0)
            second = await profiler.take("profile", "0.05")
            first.cancel()
        third = await profiler.take("profile", "0.05")
        return second[0], third[0]

    assert asyncio.run(scenario()) == (500, 200)


def test_a_client_that_goes_away_ends_its_profile() -> None:
    async def scenario() -> tuple[int, bytes]:
        profiler = Profiler()
        try:
            async with asyncio.timeout(0.05):
                await profiler.take("profile", "300")
        except TimeoutError:
            pass
        return await profiler.take("profile", "0.05")

    # asyncio.run joins the sampling threads, so an endless one would hang here.
    assert asyncio.run(scenario())[0] == 200


def test_stacks_name_threads_and_tasks() -> None:
    async def wait_named() -> str:
        async with asyncio.TaskGroup() as group:
            sleeper = group.create_task(asyncio.sleep(30), name="the-sleeper")
            await asyncio.sleep(0)
            text = pprof.stacks()
            sleeper.cancel()
        return text

    text = asyncio.run(wait_named())
    assert "thread MainThread:" in text
    assert "task the-sleeper" in text


def test_objects_are_counted_by_type() -> None:
    status, text = take("heap")
    assert status == 200
    assert "in all" in text.splitlines()[0]
    assert "builtins.dict" in text


def test_what_only_go_can_do_is_refused() -> None:
    assert take("trace") == (501, "execution traces exist in Go only\n")
    assert take("symbol") == (200, "num_symbols: 0\n")
    assert take("nope") == (404, "Unknown profile\n")


def test_durations_are_bounded() -> None:
    assert pprof._duration("5") == 5.0
    assert pprof._duration("") == pprof._duration("x") == pprof._duration("-1") == pprof._duration("nan") == 30.0
    assert pprof._duration("1e9") == pprof._duration("inf") == 300.0
