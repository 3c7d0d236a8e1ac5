"""Network namespaces."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.netns import FOLDER, Namespace, Network, isolated_resolver
from tests.support.worlds import NOBODY, SCRATCH, World, run_in

from umbilical.fault import HostError
from umbilical.host import namespaces
from umbilical.host.namespaces import CAPABILITIES, Kind, Mount
from umbilical.host.processes import run, start

pytestmark = pytest.mark.root
WORLDS = pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)


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


@WORLDS
def test_a_read_only_bind_shows_and_protects_what_is_mounted_below_too(world: World) -> None:
    def body() -> list[int | None]:
        source, target = SCRATCH / "source", SCRATCH / "target"
        (source / "below").mkdir(parents=True)
        target.mkdir()
        namespaces.mount("tmpfs", source / "below", "tmpfs")
        (source / "below/file").write_text("kept")
        namespaces.bind(source, target, is_read_only=True)
        assert (target / "below/file").read_text() == "kept"
        return [_refusal(path) for path in (target / "a", target / "below/file", source / "a", source / "below/file")]

    assert run_in(world, body) == [errno.EROFS, errno.EROFS, None, None]


@WORLDS
def test_the_systems_own_directories_can_be_bound_read_only(world: World) -> None:
    """In a user namespace their mounts have flags that may not be lost: nosuid, nodev, noexec."""

    def body() -> None:
        for name in ("usr", "dev", "sys"):
            target = SCRATCH / name
            target.mkdir()
            namespaces.bind(f"/{name}", target, is_read_only=True)
            assert os.statvfs(target).f_flag & os.ST_RDONLY
            assert sorted(os.listdir(target)) == sorted(os.listdir(f"/{name}"))

    run_in(world, body)


@WORLDS
def test_flags_of_a_mount_stay_when_it_becomes_read_only(world: World) -> None:
    def body() -> int:
        target = SCRATCH / "target"
        target.mkdir()
        namespaces.mount("tmpfs", target, "tmpfs", Mount.NO_SUID | Mount.NO_DEVICES | Mount.NO_EXEC, "mode=700")
        namespaces.make_read_only(target)
        return os.statvfs(target).f_flag

    wanted = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
    assert run_in(world, body) & wanted == wanted


@WORLDS
def test_read_only_can_spare_what_is_mounted_below(world: World) -> None:
    def body() -> list[int | None]:
        source = SCRATCH / "source"
        source.mkdir()
        namespaces.mount("tmpfs", source, "tmpfs")
        (source / "below").mkdir()
        namespaces.mount("tmpfs", source / "below", "tmpfs")
        namespaces.make_read_only(source, is_recursive=False)
        return [_refusal(source / "a"), _refusal(source / "below/a")]

    assert run_in(world, body) == [errno.EROFS, None]


@WORLDS
def test_after_pivot_root_the_old_root_is_gone(world: World) -> None:
    def body() -> tuple[list[str], str, int]:
        root = SCRATCH / "root"
        root.mkdir()
        namespaces.mount("tmpfs", root, "tmpfs")
        (root / "proc").mkdir()
        namespaces.mount("proc", root / "proc", "proc")
        namespaces.pivot_root(root)
        return os.listdir("/"), os.getcwd(), len(Path("/proc/self/mountinfo").read_text().splitlines())

    assert run_in(world, body) == (["proc"], "/", 2)


@WORLDS
def test_an_unmounted_directory_shows_what_was_below(world: World) -> None:
    def body() -> None:
        (SCRATCH / "folder").mkdir()
        namespaces.mount("tmpfs", SCRATCH / "folder", "tmpfs")
        (SCRATCH / "folder/file").touch()
        with (SCRATCH / "folder/file").open(), pytest.raises(OSError, match="umount2: Device or resource busy"):
            namespaces.unmount(SCRATCH / "folder")
        namespaces.unmount(SCRATCH / "folder")
        assert os.listdir(SCRATCH / "folder") == []

    run_in(world, body)


@WORLDS
def test_a_network_namespace_has_a_loopback_of_its_own_and_the_caller_stays_where_it_was(world: World) -> None:
    def body() -> None:
        before = os.readlink("/proc/thread-self/ns/net")
        namespaces.create_network(SCRATCH / "net")
        inside = namespaces.in_network(SCRATCH / "net", lambda: os.readlink("/proc/thread-self/ns/net"))
        assert inside != before
        assert os.readlink("/proc/thread-self/ns/net") == before
        assert namespaces.in_network(SCRATCH / "net", lambda: [name for _, name in socket.if_nameindex()]) == ["lo"]

    run_in(world, body)


@WORLDS
def test_kernel_settings_below_proc_sys_net_are_those_of_the_namespace(world: World) -> None:
    def body() -> tuple[str, str]:
        setting = Path("/proc/sys/net/ipv4/ip_forward")
        namespaces.create_network(SCRATCH / "net")
        namespaces.in_network(SCRATCH / "net", lambda: setting.write_text("1"))
        inside = namespaces.in_network(SCRATCH / "net", setting.read_text)
        return inside.strip(), setting.read_text().strip()

    assert run_in(world, body) == ("1", "0")


@WORLDS
def test_a_program_started_inside_stays_inside(world: World) -> None:
    def body() -> bool:
        namespaces.create_network(SCRATCH / "net")
        command = [sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))"]
        shown = namespaces.in_network(SCRATCH / "net", lambda: subprocess.check_output(command, timeout=60, text=True))
        return shown.strip() == f"net:[{(SCRATCH / 'net').stat().st_ino}]"

    assert run_in(world, body)


@WORLDS
def test_what_is_raised_inside_a_namespace_arrives_outside(world: World) -> None:
    def body() -> None:
        namespaces.create_network(SCRATCH / "net")
        with pytest.raises(ZeroDivisionError):
            namespaces.in_network(SCRATCH / "net", lambda: 1 / 0)
        with pytest.raises(FileNotFoundError):
            namespaces.in_network(SCRATCH / "missing", lambda: None)

    run_in(world, body)


@WORLDS
def test_a_removed_network_namespace_leaves_no_file_and_no_mount(world: World) -> None:
    def body() -> None:
        mounts = Path("/proc/self/mountinfo").read_text()
        namespaces.create_network(SCRATCH / "net")
        assert Path("/proc/self/mountinfo").read_text() != mounts
        namespaces.remove_network(SCRATCH / "net")
        assert os.listdir(SCRATCH) == []
        assert Path("/proc/self/mountinfo").read_text() == mounts

    run_in(world, body)


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


@WORLDS
def test_a_host_name_is_private_to_its_namespace(world: World) -> None:
    def body() -> str:
        namespaces.set_hostname("master-0")
        return os.uname().nodename

    before = os.uname().nodename
    assert run_in(world, body) == "master-0"
    assert os.uname().nodename == before


@WORLDS
def test_a_process_is_entered_by_its_descriptor(world: World) -> None:
    def body() -> str:
        child = os.fork()
        if child == 0:
            namespaces.unshare(Kind.UTS | Kind.NETWORK)
            namespaces.set_hostname("inner")
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        namespaces.enter(os.pidfd_open(child), Kind.UTS | Kind.NETWORK)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return os.uname().nodename

    assert run_in(world, body) == "inner"


@WORLDS
def test_dropped_capabilities_cannot_come_back_by_an_exec(world: World) -> None:
    def body() -> tuple[set[str], set[str], str]:
        namespaces.drop_privileges({"NET_BIND_SERVICE", "CHOWN"})
        shown = subprocess.check_output(["grep", "CapEff", "/proc/self/status"], timeout=60, text=True)
        return _capability_names("CapEff"), _capability_names("CapBnd"), shown.split()[1]

    kept = {"NET_BIND_SERVICE", "CHOWN"}
    assert run_in(world, body) == (kept, kept, f"{1 << 10 | 1:016x}")


def test_another_user_is_become_and_has_no_capability() -> None:
    def body() -> tuple[int, int, list[int], set[str]]:
        namespaces.drop_privileges({"NET_BIND_SERVICE"}, user=1001, group=1002, groups=[1003])
        return os.getuid(), os.getgid(), os.getgroups(), _capability_names("CapEff")

    assert run_in(World.ROOT, body) == (1001, 1002, [1003], set())


def test_an_unknown_capability_is_refused_before_anything_is_dropped() -> None:
    before = _capability_names("CapBnd")
    with pytest.raises(ValueError, match="no capability is called NET_BIND"):
        namespaces.drop_privileges({"NET_BIND"})
    assert _capability_names("CapBnd") == before


def test_the_table_of_capabilities_reaches_to_the_last_one_of_this_kernel() -> None:
    assert len(CAPABILITIES) >= int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1
    assert CAPABILITIES.index("SYS_ADMIN") == 21
    assert CAPABILITIES.index("CHECKPOINT_RESTORE") == 40


@WORLDS
def test_privileges_once_forbidden_stay_so(world: World) -> None:
    def body() -> str:
        namespaces.forbid_new_privileges()
        return _status("NoNewPrivs")

    assert run_in(world, body) == "1"


@WORLDS
def test_a_child_dies_with_its_parent(world: World) -> None:
    """The first process of the namespace inherits it and sees by which signal it ended."""

    def body() -> int:
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
        return os.waitstatus_to_exitcode(os.wait()[1])

    assert run_in(world, body) == -signal.SIGKILL


def test_a_refusal_names_the_call_and_the_path() -> None:
    with pytest.raises(OSError, match=r"mount: No such file or directory.*'/nowhere'") as caught:
        namespaces.mount("tmpfs", "/nowhere", "tmpfs")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == "/nowhere"


SECONDS = 30.0
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
    print("connected")
except OSError as error:
    print(type(error).__name__, error)
"""
LOOKUP = """
import socket
try:
    print(socket.getaddrinfo("name.example", 80))
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME)
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("umbtest") as network:
        yield network


def _python(namespace: Namespace, script: str, *arguments: str) -> str:
    return run(namespace.command(sys.executable, "-c", script, *arguments), SECONDS).strip()


def _fail_inside(network: Network) -> Path:
    try:
        with network:
            path = network.create("gone").path
            assert path.exists()
            raise RuntimeError
    except RuntimeError:
        return path


@pytest.mark.real("ip")
def test_a_namespace_has_its_loopback_and_nothing_else(network: Network) -> None:
    namespace = network.create("alone")
    links = run(namespace.command("ip", "-brief", "link"), SECONDS).splitlines()
    assert [line.split()[0] for line in links] == ["lo"]
    assert "ConnectionRefusedError" in _python(namespace, CONNECT, "127.0.0.1", "1", "5")
    assert "Network is unreachable" in _python(namespace, CONNECT, "192.0.2.1", "1", "5")


@pytest.mark.real("ip")
def test_two_namespaces_are_joined_until_the_link_is_cut(network: Network) -> None:
    left, right = network.create("left"), network.create("right")
    near, far = network.link(left, "10.91.1.1/24", right, "10.91.1.2/24")
    assert "ConnectionRefusedError" in _python(left, CONNECT, "10.91.1.2", "1", "5")
    assert "ConnectionRefusedError" in _python(right, CONNECT, "10.91.1.1", "1", "5")
    network.cut(left, near)
    assert "Network is unreachable" in _python(left, CONNECT, "10.91.1.2", "1", "5")
    network.mend(left, near)
    assert "ConnectionRefusedError" in _python(left, CONNECT, "10.91.1.2", "1", "5")
    assert far in run(right.command("ip", "-brief", "link"), SECONDS)


@pytest.mark.real("ip")
def test_ipv6_works_at_once(network: Network) -> None:
    left, right = network.create("left"), network.create("right")
    network.link(left, "fd00:91::1/64", right, "fd00:91::2/64")
    assert "ConnectionRefusedError" in _python(left, CONNECT, "fd00:91::2", "1", "10")


@pytest.mark.real("ip")
def test_a_route_leads_through_a_neighbour(network: Network) -> None:
    left, right = network.create("left"), network.create("right")
    network.link(left, "10.91.1.1/24", right, "10.91.1.2/24")
    network.route(left, "10.92.0.0/16", "10.91.1.2")
    assert "via 10.91.1.2" in run(left.command("ip", "route", "get", "10.92.3.4"), SECONDS)


@pytest.mark.real("ip")
def test_a_swallowed_address_never_answers(network: Network) -> None:
    namespace = network.create("swallow")
    network.swallow(namespace)
    assert _python(namespace, CONNECT, "198.18.0.254", "1234", "0.5").startswith("TimeoutError")


@pytest.mark.real("ip")
def test_everything_is_gone_after_the_block_even_after_an_error() -> None:
    network = Network("umbtest")
    path = _fail_inside(network)
    assert not path.exists()


@pytest.mark.real("ip")
def test_names_are_unique_within_the_process_and_carry_its_pid(network: Network) -> None:
    with Network("umbtest") as other:
        first, second = network.create("same"), other.create("same")
    assert first.name != second.name
    assert f"-{os.getpid()}-" in first.name


@pytest.mark.real("ip")
def test_what_a_killed_run_left_behind_is_swept() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(SECONDS)
    orphan = f"umbtest-{gone.pid}-1-orphan"
    run(["ip", "netns", "add", orphan], SECONDS)
    with Network("umbtest"):
        assert not (FOLDER / orphan).exists()


@pytest.mark.real("ip")
def test_a_program_in_a_namespace_keeps_its_pid(network: Network, tmp_path: Path) -> None:
    namespace = network.create("pid")
    script = "import os; print(os.getpid())"
    with start(namespace.command(sys.executable, "-c", script), tmp_path / "log") as child:
        child.wait(SECONDS)
    assert child.log_text().strip() == str(child.pid)


@pytest.mark.parametrize("options", ["", "options use-vc\n"], ids=["udp", "tcp"])
@pytest.mark.real("ip")
def test_a_private_resolver_knows_no_name(network: Network, tmp_path: Path, repository: Path, options: str) -> None:
    namespace = network.create("dns")
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text(f"nameserver 127.0.0.1\n{options}")
    server = namespace.command(sys.executable, "-m", "tests.support.nxdomain")
    with start(server, tmp_path / "log", folder=repository) as child:
        child.wait_ready(lambda: "ready" in child.log_text(), SECONDS)
        lookup = isolated_resolver(resolv_conf, [sys.executable, "-c", LOOKUP])
        assert run(namespace.command(*lookup), SECONDS).strip() == "True"
    assert Path("/etc/resolv.conf").read_text() != resolv_conf.read_text()


@pytest.mark.real("ip")
def test_a_step_that_fails_is_an_error_with_the_programs_own_words() -> None:
    with pytest.raises(HostError, match="UMB804 ip failed"):
        Network("umbtest").create("x" * 300)
