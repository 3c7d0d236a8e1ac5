"""`umbilical trace`: which events are shown, what a line says, and following a real pair of programs."""

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Run
from tests.support.in_process import echo, listening, refused_address
from tests.support.tunnel_client import DialRefused, assert_echoes, close_leftovers
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.cli.trace import TraceFilter, line_of, parsed

AT = "2026-11-20T09:12:44.502Z"
OPENED: dict[str, Any] = {
    "at": AT,
    "server": "s1",
    "dialId": 7,
    "client": "CN=kube-apiserver",
    "endpoint": "10.128.2.5:8443",
    "agent": "worker-0",
    "relay": None,
    "dialMilliseconds": 4.21,
    "roundTripMilliseconds": 1.1,
}
FAILED: dict[str, Any] = {
    "at": AT,
    "server": "s1",
    "dialId": 8,
    "client": "uid=0 pid=1",
    "endpoint": "10.0.0.9:443",
    "agent": None,
    "relay": None,
    "code": "UMB402",
    "text": "dial tcp 10.0.0.9:443: i/o timeout",
    "milliseconds": 5003.2,
}
CLOSED: dict[str, Any] = {
    "at": AT,
    "server": "s1",
    "dialId": 7,
    "client": "CN=kube-apiserver",
    "endpoint": "10.128.2.5:8443",
    "agent": "worker-0",
    "relay": None,
    "code": None,
    "text": "endpoint closed",
    "bytesFromClient": 2048,
    "bytesToClient": 911,
    "ageSeconds": 2.317,
}


@pytest.mark.parametrize(
    ("kind", "event", "line"),
    [
        (
            "tunnel-opened",
            OPENED | {"client": "CN=a"},
            "open    10.128.2.5:8443  by worker-0  for CN=a  in 4.2 ms: 1.1 ms to the agent and back, 3.1 ms there",
        ),
        (
            "tunnel-closed",
            CLOSED,
            "close   10.128.2.5:8443  by worker-0  for CN=kube-apiserver  2.0k up, 911 down in 2.3s  endpoint closed",
        ),
        (
            "dial-failed",
            FAILED,
            "FAIL    10.0.0.9:443  by s1  for uid=0 pid=1  after 5003 ms  UMB402 dial tcp 10.0.0.9:443: i/o timeout",
        ),
        (
            "agent-gone",
            {"at": AT, "server": "s1", "agent": "worker-0", "tunnels": 3, "text": "connection reset by peer"},
            "AGENT   worker-0  3 tunnels  connection reset by peer",
        ),
        (
            "server-connected",
            {"at": AT, "server": "s1", "address": "10.0.0.1:8091"},
            "server  s1  from 10.0.0.1:8091",
        ),
        (
            "tunnel-opened",
            {"at": AT, "dialId": 1, "server": "s1", "endpoint": "10.0.0.1:1", "dialMilliseconds": 12.4},
            "open    10.0.0.1:1  by s1  in 12 ms",
        ),
    ],
)
def test_a_line_says_when_what_where_by_whom_and_how_long(kind: str, event: dict[str, Any], line: str) -> None:
    assert line_of(kind, event) == f"09:12:44.502  {line}"


def test_what_a_peer_chose_cannot_control_the_terminal() -> None:
    assert "\x1b" not in line_of("tunnel-opened", OPENED | {"endpoint": "\x1b[2Jweb:443"})


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        (TraceFilter(), ["tunnel-opened", "tunnel-closed", "dial-failed", "agent-gone"]),
        (TraceFilter(endpoint="10.128.*"), ["tunnel-opened", "tunnel-closed"]),
        (TraceFilter(endpoint="*:443"), ["dial-failed"]),
        (TraceFilter(agent="worker-*"), ["tunnel-opened", "tunnel-closed"]),
        (TraceFilter(client="uid=0 *"), ["dial-failed"]),
        (TraceFilter(outcomes=("failed", "opened")), ["tunnel-opened", "dial-failed"]),
        (TraceFilter(slow_seconds=0.5), ["dial-failed"]),
        (TraceFilter(slow_seconds=0.004), ["tunnel-opened", "dial-failed"]),
    ],
)
def test_a_filter_shows_certain_dials_and_then_nothing_else(wanted: TraceFilter, kinds: list[str]) -> None:
    gone = {"at": AT, "agent": "worker-0", "tunnels": 0, "text": "lost"}
    happened: dict[str, dict[str, Any]] = {
        "tunnel-opened": OPENED,
        "tunnel-closed": CLOSED,
        "dial-failed": FAILED,
        "agent-gone": gone,
    }
    assert [kind for kind, event in happened.items() if wanted.shows(kind, event)] == kinds


def test_a_stream_is_read_line_by_line_and_comments_are_passed_over() -> None:
    octets = (
        b': nothing has happened\n\nevent: listening\ndata: {"id": "s1"}\n\nevent: cut\r\ndata: {"text": "x"}\r\n\r\n'
    )
    assert list(parsed(iter(octets.splitlines(keepends=True)))) == [("listening", {"id": "s1"}), ("cut", {"text": "x"})]
    with pytest.raises(ValueError, match="no object"):
        list(parsed(iter([b"event: cut\n", b"data: 5\n"])))


def test_where_nobody_answers_is_a_fault_in_three_lines(umbilical: Run, tmp_path: Path) -> None:
    text = umbilical("trace", "--admin", f"unix:{tmp_path}/missing.sock", status=4).err
    assert text.startswith(f"UMB212 no status from unix:{tmp_path}/missing.sock\n  why: No such file")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TunnelPair]:
    pair = TunnelPair(Shape(), make_tunnel_pki(tmp_path), tmp_path)
    try:
        pair.start()
        yield pair
    finally:
        print(pair.logs())
        pair.stop()
        close_leftovers()


@contextmanager
def following(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-P", "-m", "umbilical", "trace", *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60.0)


def until_seen(pair: TunnelPair, process: "subprocess.Popen[str]", closed: str) -> str:
    """Dial until the command, which has to connect first, prints a line."""
    assert process.stdout is not None
    for _ in range(600):
        with pytest.raises(DialRefused):
            pair.frontend().open(closed)
        if select.select([process.stdout], [], [], 0.1)[0]:
            return process.stdout.readline()
    raise AssertionError("nothing was printed")


def test_dials_through_real_programs_are_followed_live_and_across_a_restart(pair: TunnelPair) -> None:
    closed, admin = refused_address(), f"127.0.0.1:{pair.ports.server_admin}"
    with listening() as endpoint, following("--admin", admin, "--endpoint", closed, "--outcome=failed") as process:
        assert f"FAIL    {closed}  by a1  for uid=" in until_seen(pair, process, closed)
        assert_echoes(pair.frontend().open(endpoint.serve(echo).address))
        pair.server.kill()
        assert process.stderr is not None
        assert process.stderr.readline().endswith("asking again\n")
        pair.start_server()
        pair.wait_ready()
        assert "connection refused" in until_seen(pair, process, closed)


def test_a_count_ends_it_and_json_has_all_members(pair: TunnelPair) -> None:
    admin = f"127.0.0.1:{pair.ports.agent_admin}"
    with following("--admin", admin, "--count=1", "-o", "json") as process:
        event = json.loads(until_seen(pair, process, refused_address()))
        assert (event["from"], event["event"], event["code"]) == (admin, "dial-failed", "UMB401")
        assert process.wait(60.0) == 0


def test_a_time_limit_ends_it_without_an_event(pair: TunnelPair, umbilical: Run) -> None:
    assert umbilical("trace", f"--admin=127.0.0.1:{pair.ports.agent_admin}", "--for=100ms").out == ""
