"""Every text that our server, upstream's, or an agent of either can answer with has its reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.dialer.causes import STATUSES, TEXTS, reason_of_reply, reason_of_stream_end, reason_of_text
from umbilical.dialer.failure import Reason
from umbilical.konnectivity import dial_failure
from umbilical.konnectivity.dial_failure import DialFailure, FailureReason

SERVERS_OWN = {
    FailureReason.NO_AGENT: Reason.NO_AGENT,
    FailureReason.SEND_FAILED: Reason.AGENT_LOST,
    FailureReason.SEND_TIMED_OUT: Reason.AGENT_LOST,
    FailureReason.AGENT_LOST: Reason.AGENT_LOST,
    FailureReason.DIAL_TIMED_OUT: Reason.TIMEOUT,
}
AGENTS = [
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ECONNREFUSED"), Reason.REFUSED),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ECONNRESET"), Reason.REFUSED),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "EHOSTUNREACH"), Reason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ENETUNREACH"), Reason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "[::1]:1", "EAFNOSUPPORT"), Reason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "EACCES"), Reason.UNREACHABLE),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "ETIMEDOUT"), Reason.TIMEOUT),
    (dial_failure.dial_error_text("tcp", "10.0.0.1:1", "EMFILE"), Reason.AGENT_LOST),
    (dial_failure.dial_timeout_text("tcp", "10.0.0.1:1"), Reason.TIMEOUT),
    (dial_failure.lookup_error_text("tcp", "a.b", "10.0.0.10:53"), Reason.NAME),
    (dial_failure.lookup_timeout_text("tcp", "a.b"), Reason.NAME),
    (dial_failure.lookup_error_text("tcp", "a.b", "", "server misbehaving"), Reason.NAME),
    (dial_failure.no_suitable_address_text("tcp4", "a.b"), Reason.NAME),
    ("dial tcp: address a.b: missing port in address", Reason.NAME),
    ("dial tcp 10.0.0.1:1: something that no table knows", Reason.UNREACHABLE),
]


def _split(reply: bytes) -> tuple[int, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()


@pytest.mark.parametrize(("cause", "reason"), SERVERS_OWN.items(), ids=lambda value: value.value)
def test_what_a_server_says_of_itself_is_known_in_both_protocols(cause: FailureReason, reason: Reason) -> None:
    failure = DialFailure(cause, "write: broken pipe" if cause is FailureReason.SEND_FAILED else "")
    assert reason_of_reply(*_split(dial_failure.http_reply(failure))) is reason
    if cause not in (FailureReason.SEND_FAILED, FailureReason.SEND_TIMED_OUT):  # gRPC has not the prefix that tells
        assert reason_of_text(dial_failure.grpc_error_text(failure)) is reason


@pytest.mark.parametrize(("text", "reason"), AGENTS)
def test_what_an_agent_says_is_known_in_both_protocols(text: str, reason: Reason) -> None:
    reply = dial_failure.http_reply(DialFailure(FailureReason.AGENT_ERROR, text))
    assert reason_of_text(text) is reason
    if "no table knows" not in text:
        assert reason_of_reply(*_split(reply)) is reason


def test_an_agent_s_words_that_quote_an_endpoint_do_not_outdo_the_server_s_own() -> None:
    body = "currently no tunnels available: No agent available for connection refused.example"
    assert reason_of_reply(500, body) is Reason.NO_AGENT


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_refusal_by_policy_is_one_whatever_its_text(status: int) -> None:
    assert reason_of_reply(status, "connection refused by policy") is Reason.FORBIDDEN


@pytest.mark.parametrize("status", [100, 201, 204, 301, 400, 404, 405, 418, 431, 501, 505])
def test_a_status_that_no_dial_is_answered_with_is_a_matter_of_protocol(status: int) -> None:
    assert reason_of_reply(status, "i/o timeout") is Reason.PROTOCOL


@pytest.mark.parametrize(("status", "reason"), STATUSES.items())
def test_without_words_the_status_decides(status: int, reason: Reason) -> None:
    assert reason_of_reply(status, "") is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rpc error: code = Unavailable desc = error reading from server: EOF", Reason.SERVER),
        ("rpc error: code = PermissionDenied desc = agents get no tunnels", Reason.FORBIDDEN),
        ("rpc error: code = Unauthenticated desc = who?", Reason.FORBIDDEN),
        ("rpc error: code = Unimplemented desc = unknown service ProxyService", Reason.PROTOCOL),
        ("the server ended the stream without an answer", Reason.SERVER),
    ],
)
def test_a_stream_without_an_answer_has_its_reason(text: str, reason: Reason) -> None:
    assert reason_of_stream_end(text) is reason


@given(st.integers(0, 999), st.text())
def test_any_reply_has_a_reason(status: int, body: str) -> None:
    assert reason_of_reply(status, body) in Reason


@given(st.sampled_from(TEXTS), st.text("abcdefgh :/.", max_size=8), st.text("abcdefgh :/.", max_size=8))
def test_a_known_text_is_found_wherever_it_stands_and_however_it_is_written(
    entry: tuple[str, Reason], before: str, behind: str
) -> None:
    text, reason = entry
    assert reason_of_text(f"{before}{text}{behind}") is reason
    assert reason_of_text(text.upper()) is reason


def test_no_entry_hides_a_later_one() -> None:
    for index, (text, _) in enumerate(TEXTS):
        assert not any(earlier in text for earlier, _ in TEXTS[:index])
