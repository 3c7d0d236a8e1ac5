import asyncio
import os
import selectors
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from tests.support.data_plane import Diary
from tests.support.socket_pairs import unix_pair

from umbilical.tunnel.event_loop import DataPlaneSelector, EventLoop, data_plane_of_running_loop, new_event_loop
from umbilical.tunnel.loop import Loop

SECONDS = 60.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on our event loop, within a time limit, and close it."""

    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await main()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(limited())


def busy(loop: EventLoop, diary: Diary) -> Diary:
    """Keep the data plane from ever sleeping."""
    diary.then = lambda: loop.data_plane.again(diary)
    loop.data_plane.again(diary)
    return diary


def our_loop() -> EventLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, EventLoop)
    return loop


def test_another_event_loop_has_no_data_plane() -> None:
    async def look() -> None:
        data_plane_of_running_loop()

    with pytest.raises(AssertionError):
        asyncio.run(look())


async def test_asyncio_streams_work_beside_a_busy_data_plane() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    diary = busy(our_loop(), Diary())
    sent = os.urandom(1_000_000)
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        reading = asyncio.get_running_loop().create_task(reader.readexactly(len(sent)))
        writer.write(sent)
        await writer.drain()
        assert await reading == sent
        writer.close()
        await writer.wait_closed()
    assert diary.lines


async def test_data_plane_descriptors_are_served_while_asyncio_sleeps() -> None:
    ours, peer = unix_pair()
    diary = Diary()
    told = asyncio.Event()
    diary.then = told.set
    our_loop().data_plane.add(ours.fileno(), diary, False)
    peer.send(b"x")
    await told.wait()
    assert diary.lines
    our_loop().data_plane.remove(ours.fileno())


async def test_a_callback_from_inside_a_handler_runs_although_asyncio_had_nothing_to_do() -> None:
    ours, peer = unix_pair()
    loop = our_loop()
    called = loop.create_future()
    diary = Diary()
    diary.then = lambda: loop.call_soon(called.set_result, "soon")
    loop.data_plane.add(ours.fileno(), diary, False)
    peer.send(b"x")
    assert await called == "soon"
    loop.data_plane.remove(ours.fileno())


async def test_a_delay_asked_for_inside_a_handler_comes_to_its_end() -> None:
    loop = our_loop()
    called = asyncio.Event()
    diary = Diary()
    diary.then = lambda: loop.call_later(0.01, called.set)
    loop.data_plane.after(0.0, diary)
    await called.wait()


async def test_asyncio_timers_fire_while_the_data_plane_is_busy() -> None:
    diary = busy(our_loop(), Diary())
    for _ in range(3):
        await asyncio.sleep(0.01)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    assert len(diary.lines) > 3


async def test_data_plane_timers_fire_while_asyncio_is_busy() -> None:
    diary = Diary()
    our_loop().data_plane.after(0.01, diary)
    while not diary.lines:
        await asyncio.sleep(0)


async def test_what_is_touched_in_a_task_is_flushed() -> None:
    diary = Diary()
    our_loop().data_plane.touch(diary)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert diary.lines == ["flush"]


async def test_a_signal_wakes_a_loop_that_sleeps() -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, told.set)
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    await told.wait()
    timer.join()
    assert loop.remove_signal_handler(signal.SIGUSR1)


async def test_a_watched_descriptor_can_change_from_reading_to_writing_and_be_forgotten() -> None:
    ours, peer = unix_pair()
    loop = asyncio.get_running_loop()
    readable, writable = asyncio.Event(), asyncio.Event()
    loop.add_reader(ours.fileno(), readable.set)
    loop.add_writer(ours.fileno(), writable.set)
    await writable.wait()
    assert not readable.is_set()
    assert loop.remove_writer(ours.fileno())
    peer.send(b"x")
    await readable.wait()
    assert loop.remove_reader(ours.fileno())
    assert not loop.remove_reader(ours.fileno())


async def test_a_hang_up_wakes_reader_and_writer_alike() -> None:
    ours, peer = unix_pair()
    loop = asyncio.get_running_loop()
    full, other_peer = unix_pair()
    with suppress(BlockingIOError):
        while True:
            full.send(bytes(65_536))
    readable, writable = asyncio.Event(), asyncio.Event()
    loop.add_reader(ours, readable.set)
    loop.add_writer(full, writable.set)
    await asyncio.sleep(0.01)
    assert not readable.is_set()
    assert not writable.is_set()
    peer.close()
    other_peer.close()
    await readable.wait()
    await writable.wait()
    assert loop.remove_reader(ours)
    assert loop.remove_writer(full)


async def test_a_descriptor_that_was_closed_first_can_still_be_forgotten() -> None:
    ours, _ = unix_pair()
    loop = asyncio.get_running_loop()
    number = ours.fileno()
    loop.add_reader(number, int)
    ours.close()
    assert loop.remove_reader(number)


def test_a_socket_is_found_by_itself_as_by_its_number() -> None:
    """asyncio of Python 3.13 looks into the map of its selector with what was given to `remove_reader`."""
    ours, other = unix_pair()
    selector = DataPlaneSelector(Loop())
    keys = selector.get_map()
    selector.register(ours, selectors.EVENT_READ)
    assert keys[ours] is keys[ours.fileno()] is keys.get(ours) is selector.get_key(ours)
    assert list(keys) == [ours.fileno()]
    assert keys.get(other) is None
    selector.unregister(ours)
    assert keys.get(ours) is None
    selector.close()


async def test_a_reader_of_a_socket_is_forgotten_once() -> None:
    ours, _ = unix_pair()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, int)
    assert loop.remove_reader(ours)
    assert not loop.remove_reader(ours)


async def test_a_handler_that_breaks_leaves_both_planes_running() -> None:
    broken = Diary("broken")
    broken.fails_in = "again"
    our_loop().data_plane.again(broken)
    await asyncio.sleep(0.01)
    assert [str(error) for error in broken.crashes] == ["broken broke in again"]


def test_a_closed_loop_leaves_no_descriptor_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run(lambda: asyncio.sleep(0))
    assert len(os.listdir("/proc/self/fd")) == before
