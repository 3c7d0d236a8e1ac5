"""The load balancer: what it says is read right, bad configs are refused, and a reload loses no connection."""

import contextlib
import json
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_lab import PROGRAMS, built, small_cluster, start_inside
from tests.support.labs import wait_until

from umbilical.host.errors import HostError
from umbilical.host.haproxy import parse_stats
from umbilical.host.machine_records import BackendServer
from umbilical.lab.errors import LabError
from umbilical.lab.hardway_balancer import MASTER_SOCKET, Balancer, parse_worker
from umbilical.lab.hardway_topology import HOST
from umbilical.lab.lab import Lab

STATS: Final = """\
# pxname,svname,qcur,status,check_status,
api,FRONTEND,,OPEN,,
api,bootstrap.ocp4.example.com,0,UP,L7OK,
api,master-0.ocp4.example.com,0,DOWN,* L4TOUT,
api,master-1.ocp4.example.com,0,UP 1/2,INI,
api,BACKEND,0,UP,,
"""
PROCESSES: Final = """\
#<PID>          <type>          <reloads>       <uptime>        <version>
38              master          1               0d00h00m04s     2.6.12
# workers
61              worker          0               0d00h00m01s     2.6.12
# old workers
42              worker          1               0d00h00m04s     2.6.12
# programs
"""
RELOADS: Final = 12
# Answers with one letter and hangs up; as many at once as come.
BACKEND: Final = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024)
while True:
    connection, _ = listener.accept()
    connection.sendall(sys.argv[2].encode())
    connection.close()
"""
# New connections one after the other until a line comes; what went wrong is told at the end.
PROBE: Final = """
import json, select, socket
seen, wrong = {}, []
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        with socket.create_connection((sys.argv[2], 6443), 30) as connection:
            answer = connection.recv(1).decode()
        seen[answer] = seen.get(answer, 0) + 1
    except OSError as error:
        wrong.append(str(error))
print(json.dumps({"seen": seen, "wrong": wrong}))
"""


def test_servers_are_up_when_their_checks_say_so() -> None:
    assert parse_stats(STATS) == [
        BackendServer("api", "bootstrap.ocp4.example.com", True, "L7OK"),
        BackendServer("api", "master-0.ocp4.example.com", False, "L4TOUT"),
        # Taken for up by HAProxy, and yet never checked.
        BackendServer("api", "master-1.ocp4.example.com", False, "INI"),
    ]


def test_the_worker_that_takes_connections_is_the_new_one() -> None:
    assert parse_worker(PROCESSES) == "61"
    assert parse_worker(PROCESSES.replace("61              worker", "")) is None


@given(st.text())
def test_any_answer_is_read_or_refused(text: str) -> None:
    parse_worker(text)
    with contextlib.suppress(HostError):
        parse_stats(text)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    place = tmp_path_factory.mktemp("balancer") / "lab"
    with built(place, small_cluster()):
        lab = Lab.open(place)
        for port, letter in ((7001, "a"), (7002, "b")):
            lab.start(HOST, f"backend-{letter}", ["python3", "-c", BACKEND, str(port), letter])
        yield lab


def config(port: int, more: str = "") -> bytes:
    return (
        "global\n stats socket unix@stats.sock level admin expose-fd listeners\n"
        "defaults\n mode tcp\n timeout client 1m\n timeout server 1m\n timeout connect 10s\n"
        f"listen api\n bind {small_cluster().networks.api_vip}:6443\n{more}"
        f" server only 127.0.0.1:{port} check inter 100ms\n"
    ).encode()


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_reloading_loses_no_connection(lab: Lab) -> None:
    balancer = Balancer(lab)
    balancer.use(config(7001))
    wait_until(lambda: [server.is_up for server in balancer.servers()] == [True])
    prober = start_inside(lab.directory.path, PROBE, str(small_cluster().networks.api_vip))
    assert prober.stdout is not None
    assert prober.stdout.readline() == "begun\n"
    for turn in range(RELOADS):
        balancer.use(config((7002, 7001)[turn % 2]))
        wait_until(lambda: [server.is_up for server in balancer.servers()] == [True])
    said, _ = prober.communicate("enough\n", timeout=60)
    result = json.loads(said)
    assert result["wrong"] == []
    assert set(result["seen"]) == {"a", "b"}
    assert min(result["seen"].values()) > RELOADS


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
@pytest.mark.parametrize(
    ("more", "words"),
    [(" nonsense\n", "unknown keyword 'nonsense'"), (" mode tcp\n http-check expect status 200\n", "WARNING")],
)
def test_a_config_that_haproxy_finds_fault_with_changes_nothing(lab: Lab, more: str, words: str) -> None:
    balancer = Balancer(lab)
    balancer.use(config(7001))
    with pytest.raises(LabError, match="UMB735") as caught:
        balancer.use(config(7002, more))
    assert words in caught.value.why
    assert balancer.config() == config(7001)
    assert balancer.is_running


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_a_new_authority_is_read_though_the_config_is_the_same(lab: Lab) -> None:
    balancer = Balancer(lab)
    balancer.use(config(7001))

    def worker() -> str | None:
        return parse_worker(balancer._ask(MASTER_SOCKET, "show proc"))

    before = worker()
    balancer.use(config(7001))
    assert worker() == before
    balancer.lay({"other-ca.crt": b"new"})
    balancer.use(config(7001))
    assert worker() != before


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_a_balancer_that_does_not_run_cannot_be_asked_and_is_started_again(lab: Lab) -> None:
    balancer = Balancer(lab)
    balancer.use(config(7001))
    lab.stop(HOST, "haproxy")
    with pytest.raises(LabError, match="UMB736"):
        balancer.servers()
    balancer.use(config(7001))
    assert len(balancer.servers()) == 1


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_a_balancer_that_ends_at_its_start_is_told_of(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.stop(HOST, "haproxy")
    monkeypatch.setattr("umbilical.lab.hardway_balancer.balancer_command", lambda folder: ("haproxy", "-f", "/gone"))
    with pytest.raises(LabError, match="UMB736 HAProxy ended"):
        Balancer(lab).use(config(7002))
    monkeypatch.undo()
    Balancer(lab).use(config(7001))
