"""Programs as the keeper runs them; no namespaces are needed to see how they end."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.fixture_types import Patch

from umbilical.fault import LabError
from umbilical.lab import node_processes
from umbilical.lab.node_processes import NodeProgram, ProgramOutput

LIMIT = 100_000


def shell(text: str) -> NodeProgram:
    return NodeProgram(["/bin/sh", "-c", text], {"PATH": os.environ["PATH"]})


def outcome(program: NodeProgram, stdin: bytes | None = None, timeout_seconds: float = 60.0) -> ProgramOutput:
    return asyncio.run(node_processes.run(program, stdin, timeout_seconds, LIMIT))


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


async def until_gone(pid: int) -> None:
    for _ in range(6000):
        if not is_running(pid):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{pid} still runs")


def test_outputs_exit_code_and_only_the_given_environment_are_there(monkeypatch: Patch) -> None:
    assert outcome(shell("echo out; echo err >&2; exit 3")) == ProgramOutput(3, b"out\n", b"err\n")
    monkeypatch.setenv("TOKEN", "secret")
    assert b"TOKEN" not in outcome(shell("env")).stdout
    assert outcome(shell("exec >&- 2>&-; sleep 0.1; exit 5")).exit_code == 5


def test_input_of_any_size_is_read_at_the_programs_own_pace() -> None:
    assert outcome(shell("exec wc -c"), b"x" * 3_000_000).stdout.strip() == b"3000000"
    assert outcome(shell("sleep 0.05; exec head -c 3"), b"abcdef" * 100_000) == ProgramOutput(0, b"abc", b"")


def test_output_up_to_the_limit_is_whole_and_beyond_ends_the_program() -> None:
    assert len(outcome(shell(f"head -c {LIMIT} /dev/zero")).stdout) == LIMIT
    endless = outcome(shell("yes >&2"))
    assert not endless.is_whole
    assert len(endless.stderr) == LIMIT


def test_time_is_up_for_the_whole_group() -> None:
    for seconds in (0.3, 3.0, 30.0):  # more where this machine had not come to its first line
        over = outcome(shell("sleep 1000 & echo $!; sleep 1000"), timeout_seconds=seconds)
        assert over.exit_code is None
        if over.stdout:
            break
    asyncio.run(until_gone(int(over.stdout)))


async def test_giving_up_kills_the_whole_group(tmp_path: Path) -> None:
    task = asyncio.ensure_future(node_processes.run(shell(f"echo $$ > {tmp_path}/pid; sleep 1000"), None, 60, LIMIT))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_gone(int((tmp_path / "pid").read_text()))


async def test_no_descriptor_stays_open() -> None:
    await node_processes.run(shell(":"), b"x", 60, LIMIT)
    before = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(node_processes.run(shell("echo a"), b"x", 60, LIMIT) for _ in range(20)))
    async with asyncio.timeout(60):
        while len(os.listdir("/proc/self/fd")) > before:  # transports close in a later turn of the loop
            await asyncio.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "program",
    [NodeProgram(["/no/such/program"], {}), NodeProgram(["true", "a\0b"], {}), NodeProgram(["/bin/true"], {"A=B": ""})],
)
def test_what_cannot_be_started_is_told(program: NodeProgram) -> None:
    with pytest.raises(LabError, match="UMB816"):
        outcome(program)


async def test_a_background_program_writes_its_log_and_its_end_is_noticed(tmp_path: Path) -> None:
    process = node_processes.start(shell("echo out; echo err >&2; exit 4"), tmp_path / "log")
    await until_gone(process.pid)
    await asyncio.sleep(0)
    assert process.exit_code == 4
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


async def test_one_that_does_not_listen_is_killed_after_a_while(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(node_processes, "STOP_SECONDS", 0.1)
    process = node_processes.start(shell("trap '' TERM; echo ready; while :; do sleep 1; done"), tmp_path / "log")
    while (tmp_path / "log").read_text() != "ready\n":
        await asyncio.sleep(0.01)
    assert await process.stop(kill=False) == -signal.SIGKILL


async def test_stopping_takes_the_children_too_and_twice_is_fine(tmp_path: Path) -> None:
    process = node_processes.start(shell("sleep 1000 & echo $!; exec sleep 1000"), tmp_path / "log")
    while not (tmp_path / "log").read_text():
        await asyncio.sleep(0.01)
    assert await process.stop(kill=False) == -signal.SIGTERM
    assert await process.stop(kill=True) == -signal.SIGTERM
    await until_gone(int((tmp_path / "log").read_text()))


async def test_one_that_is_killed_starts_again_unless_it_was_stopped_or_had_just_started(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(node_processes, "LEAST_SECONDS", 0.0)
    process = node_processes.start(shell("echo started; exec sleep 86601"), log, restarts=True)
    before = process.pid
    os.kill(before, signal.SIGKILL)
    for _ in range(6000):
        if process.pid != before and log.read_text().count("started\n") == 2:
            break
        await asyncio.sleep(0.01)
    assert is_running(process.pid)
    assert "umbilical: ended with -9, started again\n" in log.read_text()
    assert await process.stop(kill=False) == -signal.SIGTERM
    await asyncio.sleep(0.05)
    assert process.exit_code == -signal.SIGTERM
    monkeypatch.setattr(node_processes, "LEAST_SECONDS", 3600.0)
    process = node_processes.start(shell("exit 3"), log, restarts=True)
    await until_gone(process.pid)
    await asyncio.sleep(0.05)
    assert process.exit_code == 3
