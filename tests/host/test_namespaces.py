"""Network namespaces."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.netns import FOLDER, Network
from tests.support.worlds import NOBODY, SCRATCH, World, run_in

from umbilical.host import namespaces
from umbilical.host.namespaces import CAPABILITIES, MountFlag, NamespaceKind
from umbilical.host.processes import run

pytestmark = pytest.mark.root


def inside(body: Callable[[], None]) -> Callable[[World], None]:
    """Make a test of what holds in a world of its own, root's and an ordinary user's."""

    @pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)
    def test(world: World) -> None:
        run_in(world, body)

    return test


def _status(field: str) -> str:
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(f"{field}:"))


def _capability_names(field: str) -> set[str]:
    mask = int(_status(field), 16)
    return {name for number, name in enumerate(CAPABILITIES) if mask >> number & 1}


def _refusal(path: Path) -> int | None:
    try:
        path.write_text("x")
    except OSError as error:
        return error.errno
    return None


@inside
def test_a_read_only_bind_shows_and_protects_what_is_mounted_below_too() -> None:
    source, target = SCRATCH / "source", SCRATCH / "target"
    (source / "below").mkdir(parents=True)
    target.mkdir()
    namespaces.mount("tmpfs", source / "below", "tmpfs")
    (source / "below/file").write_text("kept")
    namespaces.bind(source, target, is_read_only=True)
    assert (target / "below/file").read_text() == "kept"
    assert [_refusal(path) for path in (target / "a", target / "below/file")] == [errno.EROFS] * 2
    assert [_refusal(path) for path in (source / "a", source / "below/file")] == [None] * 2


@inside
def test_the_systems_own_directories_can_be_bound_read_only() -> None:
    """In a user namespace their mounts have flags that may not be lost: nosuid, nodev, noexec."""
    for name in ("usr", "dev", "sys"):
        target = SCRATCH / name
        target.mkdir()
        namespaces.bind(f"/{name}", target, is_read_only=True)
        assert os.statvfs(target).f_flag & os.ST_RDONLY
        assert sorted(os.listdir(target)) == sorted(os.listdir(f"/{name}"))


@inside
def test_flags_of_a_mount_stay_when_it_becomes_read_only() -> None:
    target = SCRATCH / "target"
    target.mkdir()
    namespaces.mount("tmpfs", target, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC, "mode=700")
    namespaces.make_read_only(target)
    wanted = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
    assert os.statvfs(target).f_flag & wanted == wanted


@inside
def test_read_only_can_spare_what_is_mounted_below() -> None:
    source = SCRATCH / "source"
    source.mkdir()
    namespaces.mount("tmpfs", source, "tmpfs")
    (source / "below").mkdir()
    namespaces.mount("tmpfs", source / "below", "tmpfs")
    namespaces.make_read_only(source, is_recursive=False)
    assert [_refusal(source / "a"), _refusal(source / "below/a")] == [errno.EROFS, None]


@inside
def test_after_pivot_root_the_old_root_is_gone() -> None:
    root = SCRATCH / "root"
    root.mkdir()
    namespaces.mount("tmpfs", root, "tmpfs")
    (root / "proc").mkdir()
    namespaces.mount("proc", root / "proc", "proc")
    namespaces.pivot_root(root)
    assert (os.listdir("/"), os.getcwd()) == (["proc"], "/")
    assert len(Path("/proc/self/mountinfo").read_text().splitlines()) == 2


@inside
def test_an_unmounted_directory_shows_what_was_below() -> None:
    (SCRATCH / "folder").mkdir()
    namespaces.mount("tmpfs", SCRATCH / "folder", "tmpfs")
    (SCRATCH / "folder/file").touch()
    with (SCRATCH / "folder/file").open(), pytest.raises(OSError, match="umount2: Device or resource busy"):
        namespaces.unmount(SCRATCH / "folder")
    namespaces.unmount(SCRATCH / "folder")
    assert os.listdir(SCRATCH / "folder") == []


@inside
def test_a_network_namespace_has_a_loopback_of_its_own_and_the_caller_stays_where_it_was() -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    namespaces.create_network(SCRATCH / "net")
    inside = namespaces.in_network(SCRATCH / "net", lambda: os.readlink("/proc/thread-self/ns/net"))
    assert inside != before
    assert os.readlink("/proc/thread-self/ns/net") == before
    assert namespaces.in_network(SCRATCH / "net", lambda: [name for _, name in socket.if_nameindex()]) == ["lo"]


@inside
def test_kernel_settings_below_proc_sys_net_are_those_of_the_namespace() -> None:
    setting = Path("/proc/sys/net/ipv4/ip_forward")
    namespaces.create_network(SCRATCH / "net")
    namespaces.in_network(SCRATCH / "net", lambda: setting.write_text("1"))
    assert namespaces.in_network(SCRATCH / "net", setting.read_text) == "1\n"
    assert setting.read_text() == "0\n"


@inside
def test_a_program_started_inside_stays_inside() -> None:
    namespaces.create_network(SCRATCH / "net")
    command = [sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))"]
    shown = namespaces.in_network(SCRATCH / "net", lambda: subprocess.check_output(command, timeout=60, text=True))
    assert shown.strip() == f"net:[{(SCRATCH / 'net').stat().st_ino}]"


@inside
def test_what_is_raised_inside_a_namespace_arrives_outside() -> None:
    namespaces.create_network(SCRATCH / "net")
    with pytest.raises(ZeroDivisionError):
        namespaces.in_network(SCRATCH / "net", lambda: 1 / 0)
    with pytest.raises(FileNotFoundError):
        namespaces.in_network(SCRATCH / "missing", lambda: None)


@inside
def test_a_removed_network_namespace_leaves_no_file_and_no_mount() -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    namespaces.create_network(SCRATCH / "net")
    assert Path("/proc/self/mountinfo").read_text() != mounts
    namespaces.remove_network(SCRATCH / "net")
    assert os.listdir(SCRATCH) == []
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_a_file_in_the_way_of_a_namespace_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "net").write_text("mine")
    with pytest.raises(FileExistsError):
        namespaces.create_network(tmp_path / "net")
    assert (tmp_path / "net").read_text() == "mine"


def test_without_permission_nothing_is_left_behind() -> None:
    def body() -> list[str]:
        (SCRATCH / "folder").mkdir()
        (SCRATCH / "folder").chmod(0o777)
        namespaces.drop_privileges((), user=NOBODY)
        with pytest.raises(PermissionError, match="unshare: Operation not permitted"):
            namespaces.create_network(SCRATCH / "folder/net")
        return os.listdir(SCRATCH / "folder")

    assert run_in(World.ROOT, body) == []


@inside
def test_a_process_is_entered_by_its_descriptor_and_its_host_name_is_its_own() -> None:
    namespaces.set_hostname("outer")
    child = os.fork()
    if child == 0:
        namespaces.unshare(NamespaceKind.UTS | NamespaceKind.NETWORK)
        namespaces.set_hostname("inner")
        os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    assert os.uname().nodename == "outer"
    namespaces.enter(os.pidfd_open(child), NamespaceKind.UTS | NamespaceKind.NETWORK)
    assert os.uname().nodename == "inner"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@inside
def test_dropped_capabilities_cannot_come_back_by_an_exec() -> None:
    namespaces.drop_privileges({"NET_BIND_SERVICE", "CHOWN"})
    assert _capability_names("CapEff") == _capability_names("CapBnd") == {"NET_BIND_SERVICE", "CHOWN"}
    shown = subprocess.check_output(["grep", "CapEff", "/proc/self/status"], timeout=60, text=True)
    assert shown.split()[1] == f"{1 << 10 | 1:016x}"


def test_another_user_is_become_and_has_no_capability() -> None:
    def body() -> tuple[int, int, list[int], set[str]]:
        namespaces.drop_privileges({"NET_BIND_SERVICE"}, user=1001, group=1002, groups=[1003])
        return os.getuid(), os.getgid(), os.getgroups(), _capability_names("CapEff")

    assert run_in(World.ROOT, body) == (1001, 1002, [1003], set())


def test_capabilities_are_known_to_the_last_of_this_kernel_and_another_is_refused() -> None:
    assert len(CAPABILITIES) >= int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1
    assert CAPABILITIES.index("SYS_ADMIN") == 21
    assert CAPABILITIES.index("CHECKPOINT_RESTORE") == 40
    before = _capability_names("CapBnd")
    with pytest.raises(ValueError, match="unknown capability NET_BIND"):
        namespaces.drop_privileges({"NET_BIND"})
    assert _capability_names("CapBnd") == before


@inside
def test_privileges_once_forbidden_stay_so() -> None:
    namespaces.forbid_new_privileges()
    assert _status("NoNewPrivs") == "1"


@inside
def test_a_child_dies_with_its_parent() -> None:
    """The first process of the namespace inherits it and sees by which signal it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            namespaces.die_with_parent()
            os.write(writing, b"armed")
            signal.pause()
        signal.pause()
    assert os.read(reading, 5) == b"armed"
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGKILL


def test_a_refusal_names_the_call_and_the_path() -> None:
    with pytest.raises(OSError, match=r"mount: No such file or directory.*'/nowhere'") as caught:
        namespaces.mount("tmpfs", "/nowhere", "tmpfs")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == "/nowhere"


SECONDS = 30.0


@pytest.mark.real("ip")
def test_networks_of_tests_bear_our_pid_and_nothing_is_left_of_them_nor_of_a_killed_run() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(SECONDS)
    orphan = f"umbtest-{gone.pid}-1-orphan"
    run(["ip", "netns", "add", orphan], SECONDS)
    with contextlib.suppress(RuntimeError), Network("umbtest") as network, Network("umbtest") as other:
        assert not (FOLDER / orphan).exists()
        made = [network.create("same"), other.create("same")]
        assert [f"-{os.getpid()}-" in one.name and one.path.exists() for one in made] == [True, True]
        raise RuntimeError
    assert [one.path.exists() for one in made] == [False, False]
