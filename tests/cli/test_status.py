"""`umbilical status`: what it asks, the set that it makes of the answers, its tables, and repainting in a terminal."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Run
from tests.support.tunnel_pair import free_port, wait_until
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.cli import status as command
from umbilical.cli import status_text
from umbilical.cli.status import merged_set, read_saved
from umbilical.dialer.settings import TcpServer
from umbilical.fault import Fault
from umbilical.tunnel.admin import ServerAdminRoutes
from umbilical.tunnel.certificates import admin
from umbilical.tunnel.event_loop import new_event_loop
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.http_server import HttpListener, HttpRoutes
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import ListenAddress, TlsFiles, TlsPolicy, UnixFrontend
from umbilical.tunnel.status.routes import StatusAccess, StatusRoutes
from umbilical.tunnel.status.state import Document

IDLE_SERVER: Document = json.loads((Path(__file__).parents[1] / "tunnel" / "status" / "idle_server.json").read_text())
TOKEN = "s3cret-t0ken"
PATIENCE_SECONDS = 60.0
NO_TLS = TlsFiles()


def server(state: str = "idle", reason: str = "nobody dialled", **members: Any) -> Document:
    reasons = [{"rule": "x", "text": reason}]
    return IDLE_SERVER | {"state": state, "reason": reason, "reasons": reasons} | members


def agent(state: str = "healthy", reason: str = "1 server connected") -> Document:
    shared = {name: IDLE_SERVER[name] for name in ("apiVersion", "time", "dials", "certificates", "windows")}
    return shared | {
        "kind": "AgentStatus",
        "state": state,
        "reason": reason,
        "reasons": [{"rule": "x", "text": reason}],
        "agent": {"id": "a1"},
        "servers": {
            "count": 1,
            "expected": 2,
            "items": [
                {
                    "id": "s1",
                    "address": "10.0.0.1:8091",
                    "state": "connected",
                    "load": 3,
                    "roundTripMilliseconds": 1.25,
                    "connectedSeconds": 7300.0,
                }
            ],
            "unreached": [
                {"address": "10.0.0.2:8091", "state": "waiting", "error": {"code": "UMB311", "text": "TCP: refused"}}
            ],
        },
        "tunnels": {"count": 3, "dialling": 0, "shown": 0, "items": []},
    }


class Answers:
    """A `StatusSource` that answers what the test says now."""

    def __init__(self, document: Document) -> None:
        self.now = document
        self.asked: list[int] = []

    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        self.asked.append(most_tunnels)
        return self.now

    def events(self) -> EventSource:
        raise AssertionError("the command does not listen")

    def whose(self) -> Document:
        raise AssertionError("the command does not listen")


@contextmanager
def admin_port(
    source: Answers, place: ListenAddress | UnixFrontend, tls: TlsFiles = NO_TLS, token: Path | None = None
) -> Iterator[ListenAddress]:
    """The real admin port of a daemon, in a thread."""
    loop = new_event_loop()
    routes: HttpRoutes = StatusRoutes(
        ServerAdminRoutes(lambda: b"", profiling=False), source, StatusAccess(place, tls.certificate is not None, token)
    )
    listener = HttpListener(place, routes, tls=admin(tls, TlsPolicy(), loop.data_plane, CertificateMetrics()))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result(PATIENCE_SECONDS)
        yield ListenAddress("127.0.0.1", listener.port)
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


LOOPBACK = ListenAddress("127.0.0.1", 0)


def test_a_server_is_shown_with_its_state_and_reason_first(umbilical: Run) -> None:
    source = Answers(server())
    with admin_port(source, LOOPBACK) as place:
        out, _ = umbilical("status", "--admin", f"127.0.0.1:{place.port}", "--tunnels", "7")
    lines = out.splitlines()
    assert lines[0] == "idle: nobody dialled"
    assert lines[2].split()[:3] == ["SERVER", "STATE", "AGENTS"]
    assert lines[3].split()[:4] == ["server-0", "idle", "1", "0"]
    assert lines[6].split()[:4] == ["agent-0", "-", "ready", "1/1"]
    assert source.asked == [7]


@pytest.mark.parametrize(("state", "code"), [("healthy", 0), ("idle", 0), ("degraded", 1), ("down", 1)])
def test_the_exit_status_follows_the_state(umbilical: Run, tmp_path: Path, state: str, code: int) -> None:
    saved = tmp_path / "status.json"
    saved.write_text(json.dumps(server(state)))
    assert umbilical("status", "--from", str(saved), status=code)[0].startswith(f"{state}: ")


def test_a_unix_socket_is_asked(umbilical: Run, tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with admin_port(Answers(agent()), UnixFrontend(path)):
        out, _ = umbilical("status", "--admin", f"unix:{path}")
    assert out.splitlines()[2:5] == [
        "AGENT a1 TO  ADDRESS        STATE      LOAD  ROUND TRIP  SINCE  LAST ERROR",
        "s1           10.0.0.1:8091  connected  3     1.2ms       2h     -",
        "?            10.0.0.2:8091  waiting    -     -           -      UMB311 TCP: refused",
    ]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


def test_tls_and_a_token_open_another_address(umbilical: Run, tmp_path: Path, pki: TunnelPki) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    tls = TlsFiles(pki.server.certificate, pki.server.key)
    with admin_port(Answers(server()), ListenAddress("", 0), tls, token) as place:
        asked = ("status", "--admin", f"127.0.0.1:{place.port}", "--ca", str(pki.authority.certificate_file))
        assert umbilical(*asked, "--token-file", str(token))[0].startswith("idle: ")
        _, err = umbilical(*asked, status=4)
        assert err.splitlines() == [
            f"UMB211 127.0.0.1:{place.port} refused: the status is refused",
            "  why: the request has no bearer token",
            "  next: give the token: umbilical status --token-file FILE",
        ]
        token.write_text("another")
        (tmp_path / "old").write_text(TOKEN)
        _, err = umbilical(*asked, "--token-file", str(tmp_path / "old"), status=4)
        assert "another bearer token" in err
        assert TOKEN not in err


def test_a_closed_address_gives_the_reason_of_the_process(umbilical: Run) -> None:
    with admin_port(Answers(server()), ListenAddress("", 0)) as place:
        _, err = umbilical("status", "--admin", f"127.0.0.1:{place.port}", status=4)
    assert err.startswith(
        f"UMB211 127.0.0.1:{place.port} refused: the status is not served on this address\n  why: *:0 "
    )


def test_what_does_not_answer_is_a_fault_alone_and_down_among_others(umbilical: Run) -> None:
    closed = f"127.0.0.1:{free_port()}"
    _, err = umbilical("status", "--admin", closed, status=4)
    assert err.startswith(f"UMB212 no status from {closed}\n  why: Connection refused\n")
    with admin_port(Answers(server()), LOOPBACK) as place:
        out, _ = umbilical("status", "--admin", f"127.0.0.1:{place.port}", "--admin", closed, status=1)
    assert out.startswith(f"degraded: {closed}: UMB212 Connection refused\n")


def test_without_an_address_the_usual_ones_are_asked_and_one_is_enough(
    umbilical: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with admin_port(Answers(agent()), LOOPBACK) as place:
        usual = (TcpServer("127.0.0.1", free_port()), TcpServer("127.0.0.1", place.port))
        monkeypatch.setattr(command, "DEFAULT_PLACES", usual)
        assert umbilical("status")[0].startswith("healthy: 1 server connected\n")


def test_a_port_that_speaks_something_else_is_named(umbilical: Run) -> None:
    loop = new_event_loop()
    listener = HttpListener(LOOPBACK, ServerAdminRoutes(lambda: b"", profiling=False))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result(PATIENCE_SECONDS)
        _, err = umbilical("status", "--admin", f"127.0.0.1:{listener.port}", status=4)
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()
    assert "HTTP 404: 404 page not found" in err


def test_a_port_that_speaks_no_http_is_named(umbilical: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_says_nonsense, args=(listener,)).start()
        _, err = umbilical("status", "--admin", f"127.0.0.1:{listener.getsockname()[1]}", status=4)
    assert "UMB212 no status from 127.0.0.1:" in err


def _says_nonsense(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    with sock:
        sock.recv(65536)
        sock.sendall(b"SSH-2.0-x\r\n")


def test_of_usual_addresses_one_that_has_answered_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    with admin_port(Answers(agent()), LOOPBACK) as lasting:
        with admin_port(Answers(server()), LOOPBACK) as passing:
            usual = [TcpServer("127.0.0.1", port) for port in (free_port(), passing.port, lasting.port)]
            monkeypatch.setattr(command, "DEFAULT_PLACES", usual)
            source = command.Source((), None, None, 7)
            assert [one["kind"] for one in source.ask(is_first=True)] == ["ServerStatus", "AgentStatus"]
        assert [one["kind"] for one in source.ask(is_first=False)] == ["AgentStatus", "UnreachedStatus"]


def test_json_comes_back_by_from_and_yaml_is_the_same(umbilical: Run, tmp_path: Path) -> None:
    with admin_port(Answers(server("degraded", "an agent is lost")), LOOPBACK) as place:
        asked = ("status", "--admin", f"127.0.0.1:{place.port}")
        table, _ = umbilical(*asked, status=1)
        written, _ = umbilical(*asked, "-o", "json", status=1)
        as_yaml, _ = umbilical(*asked, "-o", "yaml", status=1)
    saved = tmp_path / "saved.json"
    saved.write_text(written)
    assert umbilical("status", "--from", str(saved), status=1)[0] == table
    assert as_yaml.startswith(
        "apiVersion: umbilical.dev/v1\nkind: SetStatus\nstate: degraded\nreason: an agent is lost\n"
    )
    both, _ = umbilical("status", "--from", str(saved), "--from", str(saved), "-o", "json", status=1)
    assert len(json.loads(both)["items"]) == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"kind": "PingReport", "state": "x"}', '{"kind": "SetStatus", "items": []}']
)
def test_what_is_no_status_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(Fault, match=r"UMB213 .*x has no status"):
        read_saved(path)


def test_a_file_does_not_go_with_addresses(umbilical: Run, tmp_path: Path) -> None:
    umbilical("status", "--from", str(tmp_path / "x"), "--watch", status=2)
    umbilical("status", "--from", str(tmp_path / "x"), "--admin", "127.0.0.1:1", status=2)
    umbilical("status", "--from", str(tmp_path / "x"), status=3)


def test_the_reasons_of_bad_ones_come_first_and_name_whose_they_are() -> None:
    found = merged_set([server(), agent("degraded", "one server is missing"), server("down", "no agent is connected")])
    assert found["state"] == "degraded"
    assert [reason["text"] for reason in found["reasons"]] == [
        "server server-0: no agent is connected",
        "agent a1: one server is missing",
    ]
    alone = merged_set([server("down", "no agent is connected")])
    assert (alone["state"], alone["reason"]) == ("down", "no agent is connected")


def test_what_peers_sent_cannot_control_the_terminal() -> None:
    item = IDLE_SERVER["agents"]["items"][0] | {"id": "a\x1b[2J\u202e"}
    text = status_text.as_table(
        merged_set([server("down", "evil \x1b]0;x\x07", agents=IDLE_SERVER["agents"] | {"items": [item]})]),
        is_wide=True,
        colour=False,
    )
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


def test_only_the_word_is_coloured() -> None:
    text = status_text.as_table(merged_set([server("down", "x")]), is_wide=False, colour=True)
    assert text.startswith("\x1b[31mdown\x1b[0m: x\n")
    assert text.count("\x1b") == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0s"), (9.9, "9.9s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert status_text.span(seconds) == text


def test_sizes_are_short() -> None:
    assert [status_text.size(count) for count in (0, 999, 1500, 2_000_000, 3_100_000_000)] == [
        *("0", "999", "1.5k", "2.0M", "3.1G")
    ]


def test_a_line_is_cut_to_the_terminal() -> None:
    assert status_text.cut("\x1b[31mdown\x1b[0m", 4) == "\x1b[31mdown\x1b[0m"
    assert status_text.cut("\x1b[31mdown\x1b[0m: x", 6) == "down:…"


class Terminal:
    """A command in a terminal of its own, and what it has shown so far."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        for name in ("NO_COLOR", "FORCE_COLOR"):
            environment.pop(name, None)
        program = [sys.executable, "-P", "-m", "umbilical", *arguments]
        self._process = subprocess.Popen(
            program, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, claim: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not claim(self.seen):
            assert time.monotonic() < deadline, self.seen
            if select.select([self._ours], [], [], 0.1)[0]:
                self.seen += os.read(self._ours, 65536).decode()

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        os.close(self._ours)


def test_watch_repaints_in_place_until_ctrl_c() -> None:
    source = Answers(server("idle", "nobody dialled"))
    with admin_port(source, LOOPBACK) as place:
        target = f"127.0.0.1:{place.port}"
        terminal = Terminal("status", "--watch", "--interval", "10ms", "--admin", target)
        with closing(terminal):
            terminal.wait_for(lambda seen: "idle: nobody dialled" in seen)
            began, asked = time.monotonic(), len(source.asked)
            source.now = server("degraded", "an agent is lost")
            terminal.wait_for(lambda seen: "\x1b[33mdegraded\x1b[0m: an agent is lost" in seen)
            assert len(source.asked) - asked <= (time.monotonic() - began) / command.SHORTEST_SECONDS + 2
            assert terminal.seen.count("\x1b[2J") == 1, "it is cleared once, then overwritten"
            source.now = server("idle", "well again")
            terminal.wait_for(lambda seen: "well again" in seen)
            assert terminal.interrupt() == 8


def test_watch_shows_what_has_gone_away() -> None:
    with admin_port(Answers(server()), LOOPBACK) as place:
        terminal = Terminal("status", "--watch", "--interval", "10ms", "--admin", f"127.0.0.1:{place.port}")
        terminal.wait_for(lambda seen: "idle: " in seen)
    with closing(terminal):
        terminal.wait_for(lambda seen: "down" in seen and "UMB212 Connection refused" in seen)
        assert terminal.interrupt() == 8


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        program = [sys.executable, "-P", "-m", "umbilical", *arguments]
        process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        print(log.read_text())


def test_server_and_agent_as_users_run_them_are_shown_as_one_set(
    umbilical: Run, tmp_path: Path, pki: TunnelPki
) -> None:
    ports, ca = [free_port() for _ in range(3)], str(pki.authority.certificate_file)
    places = [f"unix:{tmp_path}/{name}.sock" for name in ("server", "agent")]
    server_options = (
        *("--listen", f"unix:{tmp_path}/clients.sock", "--agents", f"127.0.0.1:{ports[0]}", "--id", "s1"),
        *("--agent-cert", str(pki.server.certificate), "--agent-key", str(pki.server.key), "--agent-ca", ca),
        *("--health", f"127.0.0.1:{ports[1]}", "--admin", places[0], "--expected-agents", "2"),
    )
    agent_options = (
        *("--server", f"127.0.0.1:{ports[0]}", "--id", "a1", "--ca", ca, "--identifiers", "host=worker-0"),
        *("--cert", str(pki.agent.certificate), "--key", str(pki.agent.key)),
        *("--health", f"127.0.0.1:{ports[2]}", "--admin", places[1]),
    )
    asked = ("status", "--admin", places[0], "--admin", places[1])

    def state() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "umbilical", *asked, "-o", "json"],
            check=False,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
        if not done.stdout:
            return "", done.stderr.decode()
        found = json.loads(done.stdout)
        assert done.returncode == (1 if found["state"] in ("degraded", "down") else 0)
        return found["state"], found["reason"]

    with daemon(tmp_path / "server.log", "server", "run", *server_options):
        with daemon(tmp_path / "agent.log", "agent", "run", *agent_options):
            wait_until(lambda: state() == ("degraded", "server s1: 1 of 2 agents connected"), "both are asked")
            out, _ = umbilical(*asked, status=1)
            assert re.search(r"^a1 +worker-0 +ready +1/1 ", out, re.MULTILINE)
            assert re.search(r"^AGENT a1 TO +ADDRESS ", out, re.MULTILINE)
        wait_until(lambda: state()[0] == "down", "the agent is gone")
        assert state()[1].startswith("server s1: no agent is connected; agent a1 was lost ")
