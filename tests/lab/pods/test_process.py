"""A container's plan and root, and one run of it: started, ended by itself, ended by others, not started at all."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pod_nodes import Objects, make_node, shell_pod, until

from umbilical.fault import PodError
from umbilical.lab.images import PYTHON_PROGRAMS, UMBILICAL, Image, lab_images
from umbilical.lab.pods.container_init import NOT_STARTED, lay, place_in
from umbilical.lab.pods.container_plan import ContainerPlan, Piece, PieceKind, from_json
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.pod_context import LAUNCHERS, PodContext, pieces
from umbilical.lab.pods.process import ContainerProcess, launch, left_by, members
from umbilical.lab.pods.spec import Container, VolumeMount


def test_a_plan_is_the_same_after_the_journey() -> None:
    plan = ContainerPlan(
        root="/run/root",
        owner="pod-on-node-1",
        pieces=(Piece(PieceKind.BIND, "/a", "/b", is_read_only=True), Piece(PieceKind.FILE, "/c", "text\n", 0o644)),
        command=("program", "--flag=ä"),
        environment={"A": "1"},
        network="/run/netns/x",
        hostname="pod",
        root_is_read_only=True,
        user=65532,
        group=0,
        groups=(5, 6),
        capabilities=("NET_RAW",),
        may_gain_privileges=False,
    )
    assert from_json(plan.to_json()) == plan


STATIC = Image("localhost/etcd:lab", {"etcd": Path("/cache/etcd")})


def laid(image: Image, *mounts: VolumeMount) -> dict[str, Piece]:
    container = Container("c", image.reference, mounts=mounts)
    volumes = {mount.volume: f"/volumes/{mount.volume}" for mount in mounts}
    found = pieces(image, container, volumes, {"/etc/hosts": "/files/hosts"}, "/files/words")
    assert len({piece.target for piece in found}) == len(found)
    return {piece.target: piece for piece in found}


def test_an_image_holds_its_programs_and_harmless_devices_and_little_of_the_machine() -> None:
    found = laid(STATIC)
    assert found["/usr/bin/etcd"] == Piece(PieceKind.BIND, "/usr/bin/etcd", "/cache/etcd", is_read_only=True)
    assert "/usr" not in found
    assert "/bin" not in found
    devices = {place for place in found if place.startswith("/dev/")}
    assert {"/dev/null", "/dev/urandom", "/dev/shm", "/dev/termination-log"} <= devices
    assert not {"/dev/mem", "/dev/vda", "/dev/kmsg"} & devices
    found = laid(lab_images({})[UMBILICAL])
    assert found["/usr"].is_read_only
    assert found["/etc/host.conf"].is_read_only
    launchers = {target for target, piece in found.items() if piece.part is PieceKind.FILE}
    assert launchers == {f"{LAUNCHERS}/{name}" for name in PYTHON_PROGRAMS}
    assert "umbilical.cli.drop_ins.proxy_server" in found[f"{LAUNCHERS}/proxy-server"].source
    order = list(found)
    assert order.index("/usr") < order.index(LAUNCHERS) < order.index(f"{LAUNCHERS}/proxy-server")


def test_a_volume_is_mounted_as_it_is_or_by_a_path_in_it_after_the_one_that_it_lies_in() -> None:
    order = list(
        laid(STATIC, VolumeMount("b", "/data/inner/deep"), VolumeMount("a", "/data"), VolumeMount("c", "/data/inner"))
    )
    assert [place for place in order if place.startswith("/data")] == ["/data", "/data/inner", "/data/inner/deep"]
    found = laid(STATIC, VolumeMount("file", "/a.conf", is_read_only=True), VolumeMount("folder", "/b", sub_path="x/y"))
    assert found["/a.conf"] == Piece(PieceKind.BIND, "/a.conf", "/volumes/file", is_read_only=True)
    assert found["/b"].source == "/volumes/folder/x/y"


def complaint(content: bytes) -> tuple[int, str]:
    """Run the program with a plan that it cannot carry out."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "umbilical.lab.pods.container_init", str(number)]
            done = subprocess.run(
                command, input=content, pass_fds=[number], capture_output=True, timeout=60, check=False
            )
        messages = list(iter(lambda: ours.recv(4096), b""))
    return done.returncode, messages[-1].decode()


@pytest.mark.parametrize("content", [b"not json", b"{}", b"[]"])
def test_a_plan_that_cannot_be_read_is_told_of(content: bytes) -> None:
    code, why = complaint(content)
    assert code == NOT_STARTED
    assert why


@pytest.mark.root
def test_what_cannot_be_carried_out_is_told_of_by_name(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    missing = (Piece(PieceKind.BIND, "/data", str(tmp_path / "missing")),)
    code, why = complaint(ContainerPlan(str(tmp_path / "root"), "test", missing, ("true",)).to_json())
    assert code == NOT_STARTED
    assert "missing" in why
    assert list((tmp_path / "root").iterdir()) == []
    null, proc = Piece(PieceKind.BIND, "/dev/null", "/dev/null"), Piece(PieceKind.BIND, "/proc", "/proc")
    pieces = (Piece(PieceKind.MEMORY, "/dev"), null, proc)
    code, why = complaint(ContainerPlan(str(tmp_path / "root"), "test", pieces, ("no-such-program",)).to_json())
    assert code == NOT_STARTED
    assert "No such file" in why


def test_pieces_are_laid_with_their_modes(tmp_path: Path) -> None:
    lay(tmp_path, Piece(PieceKind.DIRECTORY, "/tmp", mode=0o1777))
    lay(tmp_path, Piece(PieceKind.FILE, "/usr/local/bin/x", "#!/bin/sh\n", 0o755))
    lay(tmp_path, Piece(PieceKind.LINK, "/bin", "usr/local/bin"))
    assert (tmp_path / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "bin/x").read_text() == "#!/bin/sh\n"
    assert os.access(tmp_path / "bin/x", os.X_OK)


def test_links_are_followed_inside_and_given_up_where_they_go_round(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "abs").symlink_to("/usr/lib")
    (tmp_path / "out").symlink_to("../../../../etc")
    assert place_in(tmp_path, "/lib/x") == tmp_path / "usr/lib/x"
    assert place_in(tmp_path, "/abs/x") == tmp_path / "usr/lib/x"
    assert place_in(tmp_path, "/out/passwd") == tmp_path / "etc/passwd"
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"):
        place_in(tmp_path, "/a/x")


STEPS = st.sampled_from(["a", "b", "..", ".", "", "link", "up", "root"])


@given(st.lists(STEPS, max_size=8))
def test_no_path_leads_out_of_the_root(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    root = tmp_path_factory.mktemp("root") / "r"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "link").symlink_to("../../..")
    (root / "link").symlink_to("a/../..")
    (root / "up").symlink_to("/../..")
    (root / "a" / "root").symlink_to("/")
    place = place_in(root, "/" + "/".join(steps))
    assert place == root or root in place.parents
    assert ".." not in place.parts


async def plan_for(folder: Path, script: str) -> ContainerPlan:
    node = make_node(folder)
    found = pod(shell_pod(script))
    around = PodContext(node, found, Objects(), 1.0, {})
    (around.files / "etc").mkdir(parents=True)
    for name in ("hosts", "hostname", "resolv.conf"):
        (around.files / "etc" / name).touch()
    around.termination_log(found.containers[0]).parent.mkdir()
    around.termination_log(found.containers[0]).touch()
    return await around.plan(found.containers[0])


async def started(folder: Path, script: str, owner: str = "test") -> tuple[ContainerProcess, Path]:
    log = folder / "log"
    return await launch(replace(await plan_for(folder, script), owner=owner), log), log


@pytest.mark.root
async def test_stopping_twice_is_fine(tmp_path: Path) -> None:
    process, _ = await started(tmp_path, "exec sleep 1000")
    assert [await process.stop(5), await process.stop(5)] == [-signal.SIGTERM] * 2


@pytest.mark.root
async def test_stopping_waits_for_the_end_also_in_a_task_that_was_cancelled(tmp_path: Path) -> None:
    process, log = await started(tmp_path, "trap '' TERM; echo ready; while true; do sleep 0.05; done")
    await until(lambda: log.read_text() == "ready\n")
    codes = []

    async def stop_when_cancelled() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            codes.append(await process.stop(0.1))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(stop_when_cancelled())
        await asyncio.sleep(0)
        task.cancel()
    assert codes == [-signal.SIGKILL]


@pytest.mark.root
async def test_everything_in_the_containers_namespace_belongs_to_it(tmp_path: Path) -> None:
    process, log = await started(tmp_path, "setsid sleep 1000 & sleep 1000 & echo ready; wait")
    await until(lambda: log.read_text() == "ready\n")
    namespace = os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY)
    try:
        await until(lambda: len(members(namespace)) == 3)
        await process.stop(0.2)
        assert members(namespace) == []
    finally:
        os.close(namespace)


@pytest.mark.root
async def test_what_a_program_leaves_behind_is_found_even_if_it_was_quick(tmp_path: Path) -> None:
    process, log = await started(tmp_path, "setsid sleep 1000 & echo $!")
    await process.ended()
    assert await process.stop(5) == 0
    assert not os.path.exists(f"/proc/{int(log.read_text())}/exe")


@pytest.mark.root
async def test_processes_are_known_by_their_owners_mark(tmp_path: Path) -> None:
    owner = f"test-{os.getpid()}"
    process, log = await started(tmp_path, "sleep 1000 & echo ready; wait", owner=owner)
    await until(lambda: log.read_text() == "ready\n" and len(left_by(owner)) == 2)
    assert left_by("somebody-else") == []
    await process.stop(0.2)
    assert left_by(owner) == []


@pytest.mark.root
async def test_a_start_that_is_called_off_leaves_no_process(tmp_path: Path) -> None:
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
    assert [command for command in _commands() if command.startswith(b"sleep\x004711\0")] == []


def _commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may end while we look
            yield path.read_bytes()


async def test_input_is_empty_output_is_the_log_and_the_exit_code_the_programs_own(tmp_path: Path) -> None:
    process, log = await started(tmp_path, "cat; echo out; echo err >&2; ls /proc/self/fd | wc -l; exit 7")
    assert await process.ended() == 7
    # Four: the three and the one by which ls reads the directory. Nothing of the runner's is open.
    assert log.read_text() == "out\nerr\n4\n"


@pytest.mark.root
async def test_a_root_that_cannot_be_made_is_an_error_with_the_reason(tmp_path: Path) -> None:
    plan = await plan_for(tmp_path, "true")
    (tmp_path / "state/pods/0123456789abcdef/etc/hosts").unlink()
    with pytest.raises(PodError, match=r"(?s)UMB832.*hosts"):
        await launch(plan, tmp_path / "log")


RUN_PLAN = """
import asyncio, sys
from pathlib import Path
from umbilical.lab.pods.container_plan import from_json
from umbilical.lab.pods.process import launch
async def run():
    process = await launch(from_json(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]))
    print(process.pid, flush=True)
    await process.ended()
asyncio.run(run())
"""


@pytest.mark.root
async def test_a_container_ends_with_whoever_runs_it(tmp_path: Path) -> None:
    """The runner is killed: no process of its containers may stay."""
    (tmp_path / "plan").write_bytes((await plan_for(tmp_path, "exec sleep 1000")).to_json())
    command = ["-c", RUN_PLAN, str(tmp_path / "plan"), str(tmp_path / "log")]
    runner = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert runner.stdout is not None
    pid = int(await runner.stdout.readline())
    assert os.path.exists(f"/proc/{pid}/exe")
    runner.kill()
    await runner.wait()
    await until(lambda: not os.path.exists(f"/proc/{pid}/exe"))
