"""One run of a container: started, ended by itself, ended by others, and not started at all."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.pod_nodes import Objects, make_node, shell_pod, until

from umbilical.lab.pods.container_plan import ContainerPlan
from umbilical.lab.pods.errors import PodError
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.process import ContainerProcess, launch, left_by, members
from umbilical.lab.pods.surroundings import Surroundings

pytestmark = pytest.mark.root


async def plan_for(folder: Path, script: str) -> ContainerPlan:
    node = make_node(folder)
    found = pod(shell_pod(script))
    around = Surroundings(node, found, Objects(), 1.0, {})
    (around.files / "etc").mkdir(parents=True)
    for name in ("hosts", "hostname", "resolv.conf"):
        (around.files / "etc" / name).touch()
    around.termination_log(found.containers[0]).parent.mkdir()
    around.termination_log(found.containers[0]).touch()
    return await around.plan(found.containers[0])


async def started(folder: Path, script: str, owner: str = "test") -> tuple[ContainerProcess, Path]:
    log = folder / "log"
    return await launch(replace(await plan_for(folder, script), owner=owner), log), log


def test_the_exit_code_is_the_programs_own(tmp_path: Path) -> None:
    async def run() -> int:
        process, _ = await started(tmp_path, "exit 7")
        return await process.ended()

    assert asyncio.run(run()) == 7


def test_a_signal_shows_as_its_negative_number(tmp_path: Path) -> None:
    async def run() -> int:
        process, _ = await started(tmp_path, "exec sleep 1000")
        os.kill(process.pid, signal.SIGKILL)
        return await process.ended()

    assert asyncio.run(run()) == -signal.SIGKILL


def test_what_does_not_listen_is_killed_after_its_grace_time(tmp_path: Path) -> None:
    async def run() -> int:
        process, log = await started(tmp_path, "trap '' TERM; echo deaf; while true; do sleep 1; done")
        await until(lambda: log.read_text() == "deaf\n")
        return await process.stop(0.2)

    assert asyncio.run(run()) == -signal.SIGKILL


def test_a_frozen_process_is_killed_too(tmp_path: Path) -> None:
    async def run() -> int:
        process, _ = await started(tmp_path, "exec sleep 1000")
        os.kill(process.pid, signal.SIGSTOP)
        await until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T")
        return await process.stop(0.2)

    assert asyncio.run(run()) == -signal.SIGKILL


def test_stopping_twice_is_fine(tmp_path: Path) -> None:
    async def run() -> list[int]:
        process, _ = await started(tmp_path, "exec sleep 1000")
        return [await process.stop(5), await process.stop(5)]

    assert asyncio.run(run()) == [-signal.SIGTERM] * 2


def test_everything_in_the_containers_namespace_belongs_to_it(tmp_path: Path) -> None:
    async def run() -> int:
        process, log = await started(tmp_path, "setsid sleep 1000 & sleep 1000 & echo ready; wait")
        await until(lambda: log.read_text() == "ready\n")
        namespace = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY)
        try:
            await until(lambda: len(members(namespace)) == 3)
            await process.stop(0.2)
            return len(members(namespace))
        finally:
            os.close(namespace)

    assert asyncio.run(run()) == 0


def test_what_a_program_leaves_behind_is_found_even_if_it_was_quick(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        process, log = await started(tmp_path, "setsid sleep 1000 & echo $!")
        await process.ended()
        code = await process.stop(5)
        return code, int(log.read_text())

    code, pid = asyncio.run(run())
    assert code == 0
    assert not os.path.exists(f"/proc/{pid}/exe")


def test_processes_are_known_by_their_owners_mark(tmp_path: Path) -> None:
    async def run() -> tuple[list[int], list[int]]:
        process, log = await started(tmp_path, "sleep 1000 & echo ready; wait", owner=f"test-{os.getpid()}")
        await until(lambda: log.read_text() == "ready\n" and len(left_by(f"test-{os.getpid()}")) == 2)
        seen = left_by(f"test-{os.getpid()}"), left_by("somebody-else")
        await process.stop(0.2)
        return seen

    ours, others = asyncio.run(run())
    assert len(ours) == 2
    assert others == []
    assert left_by(f"test-{os.getpid()}") == []


def test_a_start_that_is_called_off_leaves_no_process(tmp_path: Path) -> None:
    async def run() -> None:
        plan = await plan_for(tmp_path, "exec sleep 4711")
        for delay in (0.0, 0.02, 0.05, 0.1, 0.2):
            starting = asyncio.ensure_future(launch(plan, tmp_path / "log"))
            await asyncio.sleep(delay)
            if not starting.done():
                starting.cancel()
            try:
                await (await starting).stop(1)
            except asyncio.CancelledError:
                continue

    asyncio.run(run())
    assert [command for command in _commands() if command.startswith(b"sleep\x004711\0")] == []


def _commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may end while we look
            yield path.read_bytes()


def test_input_is_empty_and_output_is_the_log(tmp_path: Path) -> None:
    async def run() -> str:
        process, log = await started(tmp_path, "cat; echo out; echo err >&2; ls /proc/self/fd | wc -l")
        await process.ended()
        return log.read_text()

    # Four: the three and the one by which ls reads the directory. Nothing of the runner's is open.
    assert asyncio.run(run()) == "out\nerr\n4\n"


def test_a_root_that_cannot_be_made_is_an_error_with_the_reason(tmp_path: Path) -> None:
    async def run() -> None:
        plan = await plan_for(tmp_path, "true")
        (tmp_path / "state/pods/0123456789abcdef/etc/hosts").unlink()
        await launch(plan, tmp_path / "log")

    with pytest.raises(PodError, match=r"(?s)UMB832.*hosts"):
        asyncio.run(run())


def test_a_container_ends_with_whoever_runs_it(tmp_path: Path) -> None:
    """The runner is killed: no process of its containers may stay."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from umbilical.lab.pods.container_plan import from_json\n"
        "from umbilical.lab.pods.process import launch\n"
        "async def run():\n"
        "    process = await launch(from_json(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]))\n"
        "    print(process.pid, flush=True)\n"
        "    await process.ended()\n"
        "asyncio.run(run())\n"
    )
    (tmp_path / "plan").write_bytes(asyncio.run(plan_for(tmp_path, "exec sleep 1000")).to_json())

    async def run() -> None:
        command = ["-c", script, str(tmp_path / "plan"), str(tmp_path / "log")]
        runner = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        assert runner.stdout is not None
        pid = int(await runner.stdout.readline())
        assert os.path.exists(f"/proc/{pid}/exe")
        runner.kill()
        await runner.wait()
        await until(lambda: not os.path.exists(f"/proc/{pid}/exe"))

    asyncio.run(run())
