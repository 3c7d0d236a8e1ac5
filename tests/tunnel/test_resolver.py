import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.data_plane import turn_until
from tests.support.dialling import Caller, closed_port, dialer, listening, silent_port

from umbilical.tunnel import agent_process as resolver_module
from umbilical.tunnel.agent_process import THREADS, ThreadedResolver
from umbilical.tunnel.dialing import Address, Dial, EndpointDialer
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.loop import Loop

SECONDS = 60.0


def end(resolver: ThreadedResolver) -> None:
    """Close it, and wait for its threads, which end with what they are at."""
    resolver.close()
    for thread in threading.enumerate():
        if thread.name.startswith("resolver-"):
            thread.join(SECONDS)


async def outcome(resolver: ThreadedResolver, address: str, network: str = "tcp", seconds: float = 60.0) -> Caller:
    """One dial through the resolver, to its end."""
    dialer = EndpointDialer(data_plane_of_running_loop(), resolver, seconds, 100)
    caller = Caller()
    dialer.dial(caller, network, address)
    while not caller.is_over():
        await asyncio.sleep(0.005)
    return caller


async def test_a_name_of_this_machine_is_found_and_dialled() -> None:
    _, port = listening()

    resolver = ThreadedResolver(asyncio.get_running_loop())
    caller = await outcome(resolver, f"localhost:{port}", "tcp4")
    assert caller.sock is not None
    assert caller.sock.getpeername() == ("127.0.0.1", port)
    end(resolver)


_IN_A_NAMESPACE = """
import asyncio, os, sys
from pathlib import Path
from tests.interop.namespace import own_namespace
from tests.tunnel.test_resolver import outcome
from umbilical.tunnel.event_loop import new_event_loop
from umbilical.tunnel.agent_process import ThreadedResolver

async def main():
    resolver = ThreadedResolver(asyncio.get_running_loop())
    print((await outcome(resolver, "no-such-name.example:80")).failures, flush=True)

with own_namespace(Path(sys.argv[1])):
    asyncio.Runner(loop_factory=new_event_loop).run(main())
    os._exit(0)  # the kernel lets nobody return from a namespace who shares it with a thread
"""


@pytest.mark.root
def test_a_name_that_does_not_exist_reads_as_in_go(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", _IN_A_NAMESPACE, str(tmp_path)]
    done = subprocess.run(command, cwd=repository, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "['dial tcp: lookup no-such-name.example on 127.0.0.1:53: no such host']\n"


@pytest.mark.parametrize("host", ["x" * 70 + ".example", "a..b"])
async def test_an_invalid_name_fails_without_a_question(host: str) -> None:
    resolver = ThreadedResolver(asyncio.get_running_loop())
    (text,) = (await outcome(resolver, f"{host}:80")).failures
    assert text.startswith(f"dial tcp: lookup {host}")
    end(resolver)


async def test_an_answer_that_comes_after_the_time_limit_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slow(host: str, port: int) -> list[Address]:
        go_on.wait(SECONDS)
        return [(socket.AF_INET, "127.0.0.1", port)]

    monkeypatch.setattr(resolver_module, "_look_up", slow)

    resolver = ThreadedResolver(asyncio.get_running_loop())
    caller = await outcome(resolver, "slow:80", seconds=0.05)
    assert caller.failures == ["dial tcp: lookup slow: i/o timeout"]
    go_on.set()
    await asyncio.sleep(0.05)
    assert caller.sock is None
    assert len(caller.failures) == 1
    end(resolver)


async def test_many_names_are_looked_up_side_by_side_and_more_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    port = listening(backlog=200)[1]
    all_here = threading.Barrier(THREADS + 1)

    def meet(host: str, port: int) -> list[Address]:
        if host.startswith("first"):
            all_here.wait(SECONDS)
        return [(socket.AF_INET, "127.0.0.1", port)]

    monkeypatch.setattr(resolver_module, "_look_up", meet)

    resolver = ThreadedResolver(asyncio.get_running_loop())
    dialer = EndpointDialer(data_plane_of_running_loop(), resolver, 10.0, 1000)
    callers = [Caller() for _ in range(THREADS + 20)]
    for number, caller in enumerate(callers):
        dialer.dial(caller, "tcp", f"{'first' if number < THREADS else 'later'}{number}:{port}")
    await asyncio.to_thread(all_here.wait, SECONDS)
    while not all(caller.is_over() for caller in callers):
        await asyncio.sleep(0.005)
    assert all(caller.sock is not None for caller in callers)
    end(resolver)


async def test_a_dial_that_was_given_up_in_line_costs_no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a dead name server would block every thread for cancelled dials."""
    go_on = threading.Event()
    looked_up: list[str] = []

    def slow(host: str, port: int) -> list[Address]:
        looked_up.append(host)
        go_on.wait(SECONDS)
        raise socket.gaierror(socket.EAI_NONAME, "no")

    monkeypatch.setattr(resolver_module, "_look_up", slow)

    resolver = ThreadedResolver(asyncio.get_running_loop())
    dialer = EndpointDialer(data_plane_of_running_loop(), resolver, 10.0, 1000)
    callers = [Caller() for _ in range(THREADS + 20)]
    dials = [dialer.dial(caller, "tcp", f"name{number}:80") for number, caller in enumerate(callers)]
    for dial in dials[THREADS:]:
        dial.cancel()
    go_on.set()
    while not all(caller.is_over() for caller in callers[:THREADS]):
        await asyncio.sleep(0.005)
    end(resolver)
    assert sorted(looked_up) == sorted(f"name{number}" for number in range(THREADS))


async def test_closing_before_and_after_use_is_harmless() -> None:
    resolver = ThreadedResolver(asyncio.get_running_loop())
    resolver.close()
    used = ThreadedResolver(asyncio.get_running_loop())
    await outcome(used, "localhost:1")
    used.close()
    end(used)


_LEAVING = """
import asyncio, time
from umbilical.tunnel import agent_process as resolver
from umbilical.tunnel.dialing import EndpointDialer, DialOwner
from umbilical.tunnel.event_loop import data_plane_of_running_loop, new_event_loop

resolver._look_up = lambda host, port: time.sleep(3600)

async def main():
    threaded = resolver.ThreadedResolver(asyncio.get_running_loop())
    EndpointDialer(data_plane_of_running_loop(), threaded, 5.0, 10).dial(DialOwner(), "tcp", "hanging:80")
    await asyncio.sleep(0.05)
    threaded.close()

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main())
"""


def test_a_lookup_that_hangs_does_not_delay_the_exit() -> None:
    subprocess.run([sys.executable, "-c", _LEAVING], check=True, timeout=30)


def all_over(callers: list[Caller]) -> bool:
    return all(caller.is_over() for caller in callers)


def test_more_dials_than_the_limit_wait_in_line_and_all_end(plane: Loop) -> None:
    _, open_port = listening()
    shut = closed_port()
    where = dialer(plane, limit=3)
    callers = [Caller() for _ in range(40)]
    most = 0
    for number, caller in enumerate(callers):
        where.dial(caller, "tcp", f"127.0.0.1:{shut if number % 3 else open_port}")
        most = max(most, where.under_way())
    assert (most, where.queued()) == (3, 37)
    turn_until(plane, lambda: all_over(callers))
    assert (where.under_way(), where.queued()) == (0, 0)
    assert [caller.sock is not None for caller in callers] == [number % 3 == 0 for number in range(40)]


def test_the_time_in_line_counts(plane: Loop) -> None:
    port = silent_port()
    where = dialer(plane, timeout_seconds=0.1, limit=1)
    callers = [Caller() for _ in range(3)]
    for caller in callers:
        where.dial(caller, "tcp", f"127.0.0.1:{port}")
    turn_until(plane, lambda: all_over(callers))
    assert [caller.failures for caller in callers] == [[f"dial tcp 127.0.0.1:{port}: i/o timeout"]] * 3
    assert where.under_way() == 0


def test_a_dial_cancelled_in_the_queue_is_skipped(plane: Loop) -> None:
    silent = silent_port()
    _, port = listening()
    where = dialer(plane, limit=1)
    first = where.dial(Caller(), "tcp", f"127.0.0.1:{silent}")
    cancelled, served = Caller(), Caller()
    second = where.dial(cancelled, "tcp", f"127.0.0.1:{port}")
    where.dial(served, "tcp", f"127.0.0.1:{port}")
    second.cancel()
    first.cancel()
    turn_until(plane, served.is_over)
    assert served.sock is not None
    assert not cancelled.is_over()


def test_a_long_line_of_dials_that_fail_at_once_ends(plane: Loop) -> None:
    """Each start ends in the start of the next: this must not pile up on the stack."""
    where = dialer(plane, limit=1)
    hanging = where.dial(Caller(), "tcp", f"127.0.0.1:{silent_port()}")
    callers = [Caller() for _ in range(3000)]
    for number, caller in enumerate(callers):
        where.dial(caller, "tcp", "bad address" if number % 2 else "255.255.255.255:1")
    hanging.cancel()
    assert all(len(caller.failures) == 1 for caller in callers)
    assert (where.under_way(), where.queued()) == (0, 0)


def test_an_owner_may_dial_again_when_its_dial_failed(plane: Loop) -> None:
    where = dialer(plane, limit=1)
    stubborn, waiting = Caller(), Caller()

    def dial_again() -> None:
        if len(stubborn.failures) < 50:
            where.dial(stubborn, "tcp", "bad address")

    stubborn.then = dial_again
    hanging: Dial = where.dial(Caller(), "tcp", f"127.0.0.1:{silent_port()}")
    where.dial(stubborn, "tcp", "bad address")
    where.dial(waiting, "tcp", "bad address")
    hanging.cancel()
    turn_until(plane, lambda: len(stubborn.failures) == 50 and waiting.is_over())
    assert where.under_way() == 0
