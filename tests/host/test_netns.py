"""Real namespaces: what runs inside sees only what we gave it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from umbilical.host.errors import HostError
from umbilical.host.netns import FOLDER, Namespace, Network, isolated_resolver
from umbilical.host.processes import run, start

pytestmark = pytest.mark.root
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


def test_a_namespace_has_its_loopback_and_nothing_else(network: Network) -> None:
    namespace = network.create("alone")
    links = run(namespace.command("ip", "-brief", "link"), SECONDS).splitlines()
    assert [line.split()[0] for line in links] == ["lo"]
    assert "ConnectionRefusedError" in _python(namespace, CONNECT, "127.0.0.1", "1", "5")
    assert "Network is unreachable" in _python(namespace, CONNECT, "192.0.2.1", "1", "5")


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


def test_ipv6_works_at_once(network: Network) -> None:
    left, right = network.create("left"), network.create("right")
    network.link(left, "fd00:91::1/64", right, "fd00:91::2/64")
    assert "ConnectionRefusedError" in _python(left, CONNECT, "fd00:91::2", "1", "10")


def test_a_route_leads_through_a_neighbour(network: Network) -> None:
    left, right = network.create("left"), network.create("right")
    network.link(left, "10.91.1.1/24", right, "10.91.1.2/24")
    network.route(left, "10.92.0.0/16", "10.91.1.2")
    assert "via 10.91.1.2" in run(left.command("ip", "route", "get", "10.92.3.4"), SECONDS)


def test_a_swallowed_address_never_answers(network: Network) -> None:
    namespace = network.create("swallow")
    network.swallow(namespace)
    assert _python(namespace, CONNECT, "198.18.0.254", "1234", "0.5").startswith("TimeoutError")


def test_everything_is_gone_after_the_block_even_after_an_error() -> None:
    network = Network("umbtest")
    path = _fail_inside(network)
    assert not path.exists()


def test_names_are_unique_within_the_process_and_carry_its_pid(network: Network) -> None:
    with Network("umbtest") as other:
        first, second = network.create("same"), other.create("same")
    assert first.name != second.name
    assert f"-{os.getpid()}-" in first.name


def test_what_a_killed_run_left_behind_is_swept() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(SECONDS)
    orphan = f"umbtest-{gone.pid}-1-orphan"
    run(["ip", "netns", "add", orphan], SECONDS)
    with Network("umbtest"):
        assert not (FOLDER / orphan).exists()


def test_a_program_in_a_namespace_keeps_its_pid(network: Network, tmp_path: Path) -> None:
    namespace = network.create("pid")
    script = "import os; print(os.getpid())"
    with start(namespace.command(sys.executable, "-c", script), tmp_path / "log") as child:
        child.wait(SECONDS)
    assert child.log_text().strip() == str(child.pid)


@pytest.mark.parametrize("options", ["", "options use-vc\n"], ids=["udp", "tcp"])
def test_a_private_resolver_answers_no_such_name(
    network: Network, tmp_path: Path, repository: Path, options: str
) -> None:
    namespace = network.create("dns")
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text(f"nameserver 127.0.0.1\n{options}")
    server = namespace.command(sys.executable, "-m", "tests.support.nxdomain")
    with start(server, tmp_path / "log", folder=repository) as child:
        child.wait_ready(lambda: "ready" in child.log_text(), SECONDS)
        lookup = isolated_resolver(resolv_conf, [sys.executable, "-c", LOOKUP])
        assert run(namespace.command(*lookup), SECONDS).strip() == "True"
    assert Path("/etc/resolv.conf").read_text() != resolv_conf.read_text()


def test_a_step_that_fails_is_an_error_with_the_programs_own_words() -> None:
    with pytest.raises(HostError, match="UMB804 ip failed"):
        Network("umbtest").create("x" * 300)


def test_without_the_right_to_make_one_the_remedy_is_named() -> None:
    powerless = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-all", "--"]
    script = "from umbilical.host.netns import Network\nNetwork('umbtest').create('x')"
    with pytest.raises(HostError) as caught:
        run([*powerless, sys.executable, "-c", script], SECONDS)
    assert "UMB805 cannot set up a network namespace" in caught.value.why
