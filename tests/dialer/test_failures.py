"""Reasons of failed dials: their reports, and how they are parsed."""

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.architecture.rooms import TESTS
from tests.support.coroutines import PATIENCE_SECONDS, play
from tests.support.tunnel_pair import free_port

from umbilical.dialer import reach
from umbilical.dialer.failure import (
    MAX_TEXT,
    REPORTS,
    STATUSES,
    TEXTS,
    DialFailed,
    DialReason,
    reason_of_reply,
    reason_of_stream_end,
    reason_of_text,
)
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.konnectivity import dial_failure
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason


def test_every_reason_has_a_report_with_a_code_of_its_own() -> None:
    assert set(REPORTS) == set(DialReason)
    assert len({report.code for report in REPORTS.values()}) == len(DialReason)


@pytest.mark.parametrize("reason", DialReason, ids=lambda reason: reason.value)
def test_a_report_is_within_what_the_protocols_know(reason: DialReason) -> None:
    report = REPORTS[reason]
    assert 1 <= report.socks_reply <= 8  # RFC 1928 section 6
    assert report.http_status in (403, 502, 503, 504)
    assert report.code in (TESTS.parent / "docs" / "errors.md").read_text()


def test_socks_and_http_tell_the_causes_apart_that_they_can() -> None:
    """HyperShift's proxy replies "host unreachable" for a refusing endpoint, and "refused" for a missing server."""
    codes = {reason: report.socks_reply for reason, report in REPORTS.items()}
    assert codes[DialReason.REFUSED] == 5
    assert codes[DialReason.UNREACHABLE] == 3
    assert codes[DialReason.NAME] == 4
    assert codes[DialReason.TIMEOUT] == 6
    assert codes[DialReason.FORBIDDEN] == 2
    assert {codes[DialReason.NO_AGENT], codes[DialReason.SERVER], codes[DialReason.TLS]} == {1}
    assert REPORTS[DialReason.TIMEOUT].http_status == 504


def test_a_failure_has_one_line_for_logs() -> None:
    failure = DialFailed(DialReason.REFUSED, "10.0.0.1:443", "dial tcp 10.0.0.1:443: connect: connection refused")
    assert failure.brief == (
        "UMB501 the endpoint refused the connection: 10.0.0.1:443: dial tcp 10.0.0.1:443: connect: connection refused"
    )
    assert failure.report is REPORTS[DialReason.REFUSED]


def test_what_another_side_says_is_one_line_without_commands_for_a_terminal_and_not_endless() -> None:
    """An agent chooses its text freely, and it is shown in logs and terminals."""
    failure = DialFailed(
        DialReason.UNREACHABLE, "10.0.0.1:443", "oops\r\nINFO all is well\x1b[2J\x00 \u202e" + "x" * 9999
    )
    assert failure.text.startswith("oops INFO all is well [2J xxx")
    assert len(failure.text) <= MAX_TEXT
    assert failure.text.isprintable()
    assert str(failure) == f"10.0.0.1:443: {failure.text}"


SERVERS_OWN = {
    FailureReason.NO_AGENT: DialReason.NO_AGENT,
    FailureReason.SEND_FAILED: DialReason.AGENT_LOST,
    FailureReason.SEND_TIMED_OUT: DialReason.AGENT_LOST,
    FailureReason.AGENT_LOST: DialReason.AGENT_LOST,
    FailureReason.DIAL_TIMED_OUT: DialReason.TIMEOUT,
}
AGENTS = [
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ECONNREFUSED"), DialReason.REFUSED),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ECONNRESET"), DialReason.REFUSED),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "EHOSTUNREACH"), DialReason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ENETUNREACH"), DialReason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "[::1]:1", "EAFNOSUPPORT"), DialReason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "EACCES"), DialReason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ETIMEDOUT"), DialReason.TIMEOUT),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "EMFILE"), DialReason.AGENT_LOST),
    (dial_failure.dial_timeout_text("tcp", "10.0.0.1:1"), DialReason.TIMEOUT),
    (dial_failure.lookup_error_text("tcp", "a.b", "10.0.0.10:53"), DialReason.NAME),
    (dial_failure.lookup_timeout_text("tcp", "a.b"), DialReason.NAME),
    (dial_failure.lookup_error_text("tcp", "a.b", "", "server misbehaving"), DialReason.NAME),
    (dial_failure.no_suitable_address_text("tcp4", "a.b"), DialReason.NAME),
    ("dial tcp: address a.b: missing port in address", DialReason.NAME),
    ("dial tcp 10.0.0.1:1: something that no table knows", DialReason.UNREACHABLE),
]


def _split(reply: bytes) -> tuple[int, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()


@pytest.mark.parametrize(("cause", "reason"), SERVERS_OWN.items(), ids=lambda value: value.value)
def test_what_a_server_says_of_itself_is_known_in_both_protocols(cause: FailureReason, reason: DialReason) -> None:
    failure = DialFailure(cause, "write: broken pipe" if cause is FailureReason.SEND_FAILED else "")
    assert reason_of_reply(*_split(dial_failure.http_reply(failure))) is reason
    if cause not in (FailureReason.SEND_FAILED, FailureReason.SEND_TIMED_OUT):  # gRPC has not the prefix that tells
        assert reason_of_text(dial_failure.grpc_error_text(failure)) is reason


@pytest.mark.parametrize(("text", "reason"), AGENTS)
def test_what_an_agent_says_is_known_in_both_protocols(text: str, reason: DialReason) -> None:
    reply = dial_failure.http_reply(DialFailure(FailureReason.AGENT_ERROR, text))
    assert reason_of_text(text) is reason
    if "no table knows" not in text:
        assert reason_of_reply(*_split(reply)) is reason


QUOTING = "currently no tunnels available: No agent available for connection refused.example"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        pytest.param(500, QUOTING, DialReason.NO_AGENT, id="the server's own words go before what they quote"),
        *((status, "connection refused by policy", DialReason.FORBIDDEN) for status in (401, 403, 407)),
        *(
            (status, "i/o timeout", DialReason.PROTOCOL)
            for status in (100, 201, 204, 301, 400, 404, 405, 418, 431, 501, 505)
        ),
        *((status, "", reason) for status, reason in STATUSES.items()),
    ],
)
def test_status_and_words_of_a_reply_decide(status: int, body: str, reason: DialReason) -> None:
    assert reason_of_reply(status, body) is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rpc error: code = Unavailable desc = error reading from server: EOF", DialReason.SERVER),
        ("rpc error: code = PermissionDenied desc = agents get no tunnels", DialReason.FORBIDDEN),
        ("rpc error: code = Unauthenticated desc = who?", DialReason.FORBIDDEN),
        ("rpc error: code = Unimplemented desc = unknown service ProxyService", DialReason.PROTOCOL),
        ("the server ended the stream without an answer", DialReason.SERVER),
    ],
)
def test_a_stream_without_an_answer_has_its_reason(text: str, reason: DialReason) -> None:
    assert reason_of_stream_end(text) is reason


@given(st.integers(0, 999), st.text())
def test_any_reply_has_a_reason(status: int, body: str) -> None:
    assert reason_of_reply(status, body) in DialReason


@given(st.sampled_from(TEXTS), st.text("abcdefgh :/.", max_size=8), st.text("abcdefgh :/.", max_size=8))
def test_a_known_text_is_found_wherever_it_stands_and_however_it_is_written(
    entry: tuple[str, DialReason], before: str, behind: str
) -> None:
    text, reason = entry
    assert reason_of_text(f"{before}{text}{behind}") is reason
    assert reason_of_text(text.upper()) is reason


def test_no_entry_hides_a_later_one() -> None:
    for index, (text, _) in enumerate(TEXTS):
        assert not any(earlier in text for earlier, _ in TEXTS[:index])


def reached(server: UnixServer | TcpServer, seconds: float = PATIENCE_SECONDS) -> socket.socket:
    return play(reach.reach(server, seconds))


@pytest.mark.parametrize(
    ("server", "name"),
    [
        (UnixServer(Path("/run/k.sock")), "unix:/run/k.sock"),
        (TcpServer("konnectivity-server", 8090), "konnectivity-server:8090"),
        (TcpServer("fd00::1", 8090), "[fd00::1]:8090"),
    ],
)
def test_a_server_has_a_name_for_people(server: UnixServer | TcpServer, name: str) -> None:
    assert reach.name_of(server) == name


def test_an_address_is_reached_without_asking_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        reached(TcpServer("127.0.0.1", listener.getsockname()[1])) as sock,
    ):
        assert sock.getblocking() is False
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_of_a_name_s_addresses_the_first_that_listens_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        _resolves(monkeypatch, [("127.0.0.2", port), ("127.0.0.3", port), ("127.0.0.1", port)])
        with reached(TcpServer("localhost", port)) as sock:
            assert sock.getpeername() == ("127.0.0.1", port)


def test_when_none_listens_the_last_one_s_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    _resolves(monkeypatch, [("127.0.0.2", port), ("127.0.0.3", port)])
    with pytest.raises(reach.Unreached, match=r"^127\.0\.0\.3: connection refused$"):
        reached(TcpServer("localhost", port))
    with pytest.raises(reach.Unreached, match=r"^connection refused$"):
        reached(TcpServer("127.0.0.1", port))


def _resolves(monkeypatch: pytest.MonkeyPatch, addresses: list[tuple[str, int]]) -> None:
    def resolve(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_a_name_that_is_unknown_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(reach.Unreached, match="could not be resolved: Name or service not known"):
        reached(TcpServer("nowhere.invalid", 1))


def test_a_name_without_addresses_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolves(monkeypatch, [])
    with pytest.raises(reach.Unreached, match="no address"):
        reached(TcpServer("empty.invalid", 1))


async def test_a_resolver_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    with pytest.raises(reach.Unreached, match=r"not resolved within 0\.01 s"):
        await reach.reach(TcpServer("slow.invalid", 1), 0.01)


def test_a_listener_whose_queue_is_full_is_not_waited_for() -> None:
    """The kernel drops the connection request: the connect hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        with (
            socket.create_connection(address, timeout=PATIENCE_SECONDS),
            pytest.raises(reach.Unreached, match=r"no connection within 0\.2 s"),
        ):
            reached(TcpServer(*address), 0.2)


async def test_a_unix_socket_whose_queue_is_full_is_tried_until_there_is_room(tmp_path: Path) -> None:
    """The kernel returns EAGAIN at once, which asyncio reads as a connect in progress."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with await reach.reach(UnixServer(path), PATIENCE_SECONDS):
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(reach.reach(UnixServer(path), PATIENCE_SECONDS))
                await asyncio.sleep(0.02)
                listener.accept()[0].close()
            waiting.result().close()


def test_a_unix_socket_whose_queue_stays_full_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with reached(UnixServer(path)), pytest.raises(reach.Unreached, match="no connection within"):
            reached(UnixServer(path), 0.05)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (OSError("told without a number"), "told without a number"),
        (OSError(), "OSError"),
    ],
)
def test_errors_are_told_in_the_kernel_s_words(error: OSError, words: str) -> None:
    assert reach.words_of(error) == words
