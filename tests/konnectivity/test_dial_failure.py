import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity import dial_failure
from umbilical.konnectivity.dial_failure import BadAddress, DialFailure, FailureReason

REFUSED = "dial tcp 127.0.0.1:1: connect: connection refused"


TIMED_OUT = "dial tcp 10.0.0.1:1: i/o timeout"
EXHAUSTED = "socket: Too Many Open Files"
UNAVAILABLE = "rpc error: code = Unavailable desc = transport is closing"
PLAIN = "Content-Type: text/plain; charset=utf-8\r\n\r\n"
CLOSE = f"Connection: close\r\n{PLAIN}"
BARE = "Content-Type: text/plain\r\n\r\n"
TUNNEL = "Failed to tunnel dial request: "
TIMEOUT = "timed out waiting for backend dial\r\n"


@pytest.mark.parametrize(
    ("reason", "text", "reply"),
    [
        ("NO_AGENT", "", f"500 Internal Server Error\r\n{BARE}currently no tunnels available: No agent available"),
        ("AGENT_ERROR", REFUSED, f"502 Bad Gateway\r\n{CLOSE}{REFUSED}"),
        ("AGENT_ERROR", TIMED_OUT, f"504 Gateway Timeout\r\n{CLOSE}{TIMED_OUT}"),
        ("AGENT_ERROR", EXHAUSTED, f"503 Service Unavailable\r\n{CLOSE}{EXHAUSTED}"),
        ("SEND_FAILED", UNAVAILABLE, f"502 Bad Gateway\r\n{PLAIN}{TUNNEL}{UNAVAILABLE}\r\n"),
        ("SEND_TIMED_OUT", "", f"504 Gateway Timeout\r\n{PLAIN}{TUNNEL}{TIMEOUT}"),
        ("AGENT_LOST", "", f"502 Bad Gateway\r\n{PLAIN}Backend context error: context canceled\r\n"),
        ("DIAL_TIMED_OUT", "", f"504 Gateway Timeout\r\n{PLAIN}Backend dial timeout: {TIMEOUT}"),
    ],
)
def test_http_reply_is_upstreams_to_the_byte(reason: str, text: str, reply: str) -> None:
    assert dial_failure.http_reply(DialFailure(FailureReason[reason], text)) == f"HTTP/1.1 {reply}".encode()


@pytest.mark.parametrize("reason", ["CANCELLED", "ANSWER_FAILED", "UNRECOGNIZED"])
def test_nobody_is_left_to_read_of_other_failures(reason: str) -> None:
    assert dial_failure.http_reply(DialFailure(FailureReason[reason])) == b""


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (DialFailure(FailureReason.NO_AGENT), "No agent available"),
        (DialFailure(FailureReason.AGENT_ERROR, REFUSED), REFUSED),
        (DialFailure(FailureReason.SEND_FAILED, "EOF"), "EOF"),
        (DialFailure(FailureReason.SEND_TIMED_OUT), "timed out waiting for backend dial"),
        (DialFailure(FailureReason.DIAL_TIMED_OUT), "timed out waiting for backend dial"),
    ],
)
def test_grpc_error_text_is_upstreams(failure: DialFailure, text: str) -> None:
    assert dial_failure.grpc_error_text(failure) == text


@pytest.mark.parametrize("reason", FailureReason)
def test_a_failure_never_looks_like_success(reason: FailureReason) -> None:
    assert dial_failure.grpc_error_text(DialFailure(reason)) != ""


def test_every_reason_has_one_of_upstreams_labels_but_for_limits_which_upstream_has_not() -> None:
    assert {reason: dial_failure.metric_reason(DialFailure(reason)) for reason in FailureReason} == {
        FailureReason.CAPPED: "capped",
        FailureReason.NO_AGENT: "no_agent",
        FailureReason.AGENT_ERROR: "error_response",
        FailureReason.SEND_FAILED: "backend_close",
        FailureReason.AGENT_LOST: "backend_close",
        FailureReason.SEND_TIMED_OUT: "backend_dial_timeout",
        FailureReason.DIAL_TIMED_OUT: "backend_dial_timeout",
        FailureReason.CANCELLED: "frontend_close",
        FailureReason.ANSWER_FAILED: "send_rsp",
        FailureReason.UNRECOGNIZED: "unrecognized_response",
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("dial tcp 1.2.3.4:5: I/O Timeout", 504),
        ("context deadline exceeded", 504),
        ("socket: too many open files, timeout", 504),
        ("socket: too many open files", 503),
        ("dial tcp: lookup nowhere on 10.0.0.10:53: no such host", 502),
        ("connect: connection timed out", 502),
        ("remote error: tls: bad certificate", 502),
        ("", 502),
    ],
)
def test_the_first_matching_words_choose_the_status(text: str, code: int) -> None:
    assert dial_failure.status_of_dial_error(text)[0] == code


@given(st.text())
def test_any_agent_text_makes_a_reply(text: str) -> None:
    reply = dial_failure.http_reply(DialFailure(FailureReason.AGENT_ERROR, text))
    assert reply.startswith(b"HTTP/1.1 50")


@pytest.mark.parametrize(
    ("errno_name", "text"),
    [
        ("ECONNREFUSED", "dial tcp [::1]:80: connect: connection refused"),
        ("ENETUNREACH", "dial tcp [::1]:80: connect: network is unreachable"),
        ("EHOSTUNREACH", "dial tcp [::1]:80: connect: no route to host"),
        ("ECONNRESET", "dial tcp [::1]:80: connect: connection reset by peer"),
        ("EACCES", "dial tcp [::1]:80: connect: permission denied"),
        ("EMFILE", "dial tcp [::1]:80: socket: too many open files"),
        ("ENFILE", "dial tcp [::1]:80: socket: too many open files in system"),
        ("EXDEV", "dial tcp [::1]:80: connect: errno EXDEV"),
    ],
)
def test_errno_becomes_the_words_of_go(errno_name: str, text: str) -> None:
    address = dial_failure.join_host_port("::1", 80)
    assert dial_failure.dial_error_text("tcp", address, errno_name) == text


def test_every_errno_in_the_table_exists() -> None:
    assert [name for name in dial_failure._GO_ERRNO_WORDS if not hasattr(errno, name)] == []


def test_texts_around_the_connect_are_gos() -> None:
    assert dial_failure.dial_timeout_text("tcp", "10.0.0.1:80") == "dial tcp 10.0.0.1:80: i/o timeout"
    assert (
        dial_failure.lookup_error_text("tcp", "nowhere", "10.0.0.10:53")
        == "dial tcp: lookup nowhere on 10.0.0.10:53: no such host"
    )
    assert dial_failure.lookup_error_text("tcp", "nowhere", "") == "dial tcp: lookup nowhere: no such host"
    assert dial_failure.lookup_timeout_text("tcp", "slow") == "dial tcp: lookup slow: i/o timeout"
    assert dial_failure.no_suitable_address_text("tcp4", "::1") == "dial tcp4: address ::1: no suitable address found"


def test_other_networks_than_tcp_are_refused_by_name() -> None:
    assert dial_failure.unsupported_network_text("unix").startswith("dial unix: protocol not supported")
    assert dial_failure.DIALABLE_NETWORKS == ("tcp", "tcp4", "tcp6")


def test_a_denied_destination_has_a_code_a_status_and_a_label_of_its_own() -> None:
    text = dial_failure.denied_text("tcp", "127.0.0.1:2379", "no rule allows it")
    assert text == "dial tcp 127.0.0.1:2379: destination denied by the agent: no rule allows it"
    assert dial_failure.endpoint_failure_code(text) == "UMB415"
    assert dial_failure.status_of_dial_error(text) == (403, "Forbidden")
    assert dial_failure.endpoint_failure_reason(text) == "denied"


def test_endpoint_failures_are_timeouts_or_unknown() -> None:
    assert dial_failure.endpoint_failure_reason(REFUSED) == "unknown"
    assert dial_failure.endpoint_failure_reason(dial_failure.dial_timeout_text("tcp", "a:1")) == "timeout"
    assert dial_failure.endpoint_failure_reason(dial_failure.dial_error_text("tcp", "a:1", "ETIMEDOUT")) == "timeout"


@pytest.mark.parametrize(
    ("address", "pair"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
        (":80", ("", 80)),
        ("host:", ("host", 0)),
        ("host:+80", ("host", 80)),
        ("host:-0", ("host", 0)),
        ("host:-", ("host", 0)),
        ("host:HTTPS", ("host", 443)),
    ],
)
def test_split_host_port_accepts_what_go_accepts(address: str, pair: tuple[str, int]) -> None:
    assert dial_failure.split_host_port(address) == pair


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("", "missing address"),
        ("foo", "address foo: missing port in address"),
        ("[::1]", "address [::1]: missing port in address"),
        ("[::1]x:80", "address [::1]x:80: missing port in address"),
        ("::1", "address ::1: too many colons in address"),
        ("[::1]::80", "address [::1]::80: too many colons in address"),
        ("[::1:80", "address [::1:80: missing ']' in address"),
        ("[a[b]:80", "address [a[b]:80: unexpected '[' in address"),
        ("a]:80", "address a]:80: unexpected ']' in address"),
        ("a:8]", "address a:8]: unexpected ']' in address"),
        ("a:99999", "address 99999: invalid port"),
        ("a:-1", "address -1: invalid port"),
        ("a:" + "9" * 200, f"address {'9' * 200}: invalid port"),
        ("a:8x", "lookup tcp/8x: unknown port"),
        ("a:²", "lookup tcp/²: unknown port"),
    ],
)
def test_split_host_port_refuses_with_the_words_of_go(address: str, text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        dial_failure.split_host_port(address)
    assert caught.value.text == text
    assert dial_failure.bad_address_text("tcp", caught.value) == f"dial tcp: {text}"


@given(st.text(alphabet=":a1.%"), st.integers(0, 65535))
def test_split_undoes_join(host: str, port: int) -> None:
    assert dial_failure.split_host_port(dial_failure.join_host_port(host, port)) == (host, port)


@given(st.text(alphabet="[]:a1-+"))
def test_any_address_is_split_or_refused_by_name(address: str) -> None:
    try:
        _, port = dial_failure.split_host_port(address)
    except BadAddress:
        return
    assert 0 <= port <= 65535


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (DialFailure(FailureReason.NO_AGENT), "UMB405"),
        (DialFailure(FailureReason.AGENT_ERROR, "dial tcp 10.0.0.5:1: connect: connection refused"), "UMB401"),
        (DialFailure(FailureReason.AGENT_ERROR, "dial tcp 10.0.0.5:1: i/o timeout"), "UMB402"),
        (DialFailure(FailureReason.AGENT_ERROR, "context deadline exceeded"), "UMB402"),
        (DialFailure(FailureReason.AGENT_ERROR, "dial tcp: lookup web on 10.0.0.1:53: no such host"), "UMB404"),
        (DialFailure(FailureReason.SEND_FAILED, "broken pipe"), "UMB408"),
        (DialFailure(FailureReason.AGENT_LOST), "UMB408"),
        (DialFailure(FailureReason.SEND_TIMED_OUT), "UMB407"),
        (DialFailure(FailureReason.DIAL_TIMED_OUT), "UMB406"),
        (DialFailure(FailureReason.CANCELLED), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else value.reason.value,
)
def test_a_failure_has_the_code_of_its_cause(failure: DialFailure, code: str) -> None:
    assert dial_failure.failure_code(failure) == code
