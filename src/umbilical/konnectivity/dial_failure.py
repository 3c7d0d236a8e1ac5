"""Why a dial failed: from the reason to gRPC text, HTTP reply and metric label, and Go's error texts.

Packets carry only text, and upstream's servers choose a status by substring; inside we keep the reason.
"""

from enum import Enum
from typing import Final, NamedTuple


class FailureReason(Enum):
    """Values are upstream's labels of `dial_failure_count`, where a reason has a label of its own."""

    NO_AGENT = "no_agent"
    AGENT_ERROR = "error_response"
    """The agent answered with an error; `text` is the agent's."""
    SEND_FAILED = "send_failed"
    """The dial request did not reach the agent; `text` is the transport's error."""
    SEND_TIMED_OUT = "send_timed_out"
    """The agent's stream took nothing for the whole dial timeout."""
    CAPPED = "capped"
    """The server has a limit, and `text` names it."""
    AGENT_LOST = "agent_lost"
    """The agent's stream ended while the dial was pending."""
    DIAL_TIMED_OUT = "dial_timed_out"
    CANCELLED = "frontend_close"
    """The client cancelled or left, and gets no answer."""
    ANSWER_FAILED = "send_rsp"
    """The dial succeeded, but the answer could not be sent to the client."""
    UNRECOGNIZED = "unrecognized_response"
    """An agent answered a dial that is not pending."""


class DialFailure(NamedTuple):
    reason: FailureReason
    text: str = ""
    """Only for AGENT_ERROR, SEND_FAILED and CAPPED; the other reasons have fixed texts."""


PROBE_HOST: Final = "127.0.0.1"
PROBE_PORT: Final = 1
"""What our own clients dial to test an agent: a closed port of its loopback. "Connection refused" is success."""
PROBE_ADDRESS: Final = f"{PROBE_HOST}:{PROBE_PORT}"

NO_AGENT_TEXT: Final = "No agent available"
TIMED_OUT_TEXT: Final = "timed out waiting for backend dial"
CAPPED_TEXT: Final = "dial refused by a limit of the server"
AGENT_LOST_TEXT: Final = "agent disconnected before the dial was answered"
"""Ours: upstream sends no answer over gRPC, and the client waits for its own timeout."""

_GRPC_TEXTS: Final = {
    FailureReason.NO_AGENT: NO_AGENT_TEXT,
    FailureReason.SEND_TIMED_OUT: TIMED_OUT_TEXT,
    FailureReason.AGENT_LOST: AGENT_LOST_TEXT,
    FailureReason.DIAL_TIMED_OUT: TIMED_OUT_TEXT,
    FailureReason.CANCELLED: "dial cancelled by the client",
    FailureReason.ANSWER_FAILED: "the answer could not be sent to the client",
    FailureReason.UNRECOGNIZED: "the dial is not pending",
}

_METRIC_REASONS: Final = {
    FailureReason.SEND_FAILED: "backend_close",
    FailureReason.AGENT_LOST: "backend_close",
    FailureReason.SEND_TIMED_OUT: "backend_dial_timeout",
    FailureReason.DIAL_TIMED_OUT: "backend_dial_timeout",
}

_CODES: Final = {
    FailureReason.NO_AGENT: "UMB405",
    FailureReason.SEND_FAILED: "UMB408",
    FailureReason.CAPPED: "UMB416",
    FailureReason.AGENT_LOST: "UMB408",
    FailureReason.SEND_TIMED_OUT: "UMB407",
    FailureReason.DIAL_TIMED_OUT: "UMB406",
}

_PLAIN_UTF8: Final = "Content-Type: text/plain; charset=utf-8\r\n\r\n"
_BAD_GATEWAY: Final = "HTTP/1.1 502 Bad Gateway\r\n"
_GATEWAY_TIMEOUT: Final = "HTTP/1.1 504 Gateway Timeout\r\n"

_HTTP_REPLIES: Final = {
    FailureReason.NO_AGENT: (
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\n"
        f"currently no tunnels available: {NO_AGENT_TEXT}"
    ),
    FailureReason.SEND_TIMED_OUT: (
        f"{_GATEWAY_TIMEOUT}{_PLAIN_UTF8}Failed to tunnel dial request: {TIMED_OUT_TEXT}\r\n"
    ),
    FailureReason.AGENT_LOST: f"{_BAD_GATEWAY}{_PLAIN_UTF8}Backend context error: context canceled\r\n",
    FailureReason.DIAL_TIMED_OUT: f"{_GATEWAY_TIMEOUT}{_PLAIN_UTF8}Backend dial timeout: {TIMED_OUT_TEXT}\r\n",
}


def grpc_error_text(failure: DialFailure) -> str:
    """The `error` of the DIAL_RSP for a gRPC client; never empty, since empty means success."""
    if failure.reason is FailureReason.CAPPED:
        return f"{CAPPED_TEXT}: {failure.text}"
    return _GRPC_TEXTS.get(failure.reason) or failure.text or "unknown dial error"


def http_reply(failure: DialFailure) -> bytes:
    """The whole reply to an http-connect client; empty when it has left."""
    if failure.reason is FailureReason.AGENT_ERROR:
        text = grpc_error_text(failure)
        code, words = status_of_dial_error(text)
        reply = f"HTTP/1.1 {code} {words}\r\nConnection: close\r\n{_PLAIN_UTF8}{text}"
    elif failure.reason is FailureReason.SEND_FAILED:
        reply = f"{_BAD_GATEWAY}{_PLAIN_UTF8}Failed to tunnel dial request: {grpc_error_text(failure)}\r\n"
    elif failure.reason is FailureReason.CAPPED:
        reply = f"HTTP/1.1 503 Service Unavailable\r\n{_PLAIN_UTF8}{grpc_error_text(failure)}\r\n"
    else:
        reply = _HTTP_REPLIES.get(failure.reason, "")
    return reply.encode("utf-8", "replace")


def metric_reason(failure: DialFailure) -> str:
    """The label of `dial_failure_count`. Upstream does not count NO_AGENT in http-connect mode."""
    return _METRIC_REASONS.get(failure.reason, failure.reason.value)


def failure_code(failure: DialFailure) -> str:
    """The code of docs/errors.md; empty where the client itself caused the failure.

    The caller knows more about timeouts (UMB406) and missing agents (UMB405), and may choose a more severe code.
    """
    if failure.reason is FailureReason.AGENT_ERROR:
        return endpoint_failure_code(failure.text)
    return _CODES.get(failure.reason, "")


def endpoint_failure_code(text: str) -> str:
    """The code for the error text of an agent, ours or upstream's."""
    if DENIED in text:
        return "UMB415"
    if "i/o timeout" in text or "timed out" in text or "deadline exceeded" in text:
        return "UMB402"
    return "UMB404" if ": lookup " in text else "UMB401"


def status_of_dial_error(text: str) -> tuple[int, str]:
    """Choose the HTTP status for an agent's error text, as upstream's servers do; 403 for what our agents deny."""
    if DENIED in text:
        return 403, "Forbidden"
    lower = text.lower()
    if "timeout" in lower or "deadline exceeded" in lower:
        return 504, "Gateway Timeout"
    if "too many open files" in lower:
        return 503, "Service Unavailable"
    return 502, "Bad Gateway"


DIALABLE_NETWORKS: Final = ("tcp", "tcp4", "tcp6")

_GO_ERRNO_WORDS: Final = {
    "EACCES": "permission denied",
    "EADDRINUSE": "address already in use",
    "EADDRNOTAVAIL": "cannot assign requested address",
    "EAFNOSUPPORT": "address family not supported by protocol",
    "EALREADY": "operation already in progress",
    "ECONNABORTED": "software caused connection abort",
    "ECONNREFUSED": "connection refused",
    "ECONNRESET": "connection reset by peer",
    "EHOSTDOWN": "host is down",
    "EHOSTUNREACH": "no route to host",
    "EINVAL": "invalid argument",
    "EMFILE": "too many open files",
    "ENETDOWN": "network is down",
    "ENETUNREACH": "network is unreachable",
    "ENFILE": "too many open files in system",
    "ENOBUFS": "no buffer space available",
    "ENOMEM": "cannot allocate memory",
    "EPERM": "operation not permitted",
    "EPIPE": "broken pipe",
    "EPROTONOSUPPORT": "protocol not supported",
    "ETIMEDOUT": "connection timed out",
}
_FAIL_IN_SOCKET: Final = ("EAFNOSUPPORT", "EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EPROTONOSUPPORT")
"""Go names the call that failed: these come from socket(2), all others from connect(2)."""

_GO_SERVICES: Final = {
    "domain": 53, "ftp": 21, "ftps": 990, "gopher": 70, "http": 80, "https": 443, "imap2": 143, "imap3": 220,
    "imaps": 993, "pop3": 110, "pop3s": 995, "smtp": 25, "ssh": 22, "submissions": 465, "telnet": 23,
}  # fmt: skip
"""Port names that Go knows without /etc/services."""


class BadAddress(ValueError):
    """An address that cannot be dialled; `text` is Go's error text after `dial tcp: `."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def dial_error_text(network: str, address: str, errno_name: str) -> str:
    """`dial tcp 127.0.0.1:1: connect: connection refused`; `address` as `join_host_port` makes it."""
    words = _GO_ERRNO_WORDS.get(errno_name, f"errno {errno_name}")
    call = "socket" if errno_name in _FAIL_IN_SOCKET else "connect"
    return f"dial {network} {address}: {call}: {words}"


def dial_timeout_text(network: str, address: str) -> str:
    return f"dial {network} {address}: i/o timeout"


def lookup_error_text(network: str, host: str, server: str, words: str = "no such host") -> str:
    """`server` is the resolver as "IP:port", or empty if unknown."""
    on = f" on {server}" if server else ""
    return f"dial {network}: lookup {host}{on}: {words}"


def lookup_timeout_text(network: str, host: str) -> str:
    return lookup_error_text(network, host, "", "i/o timeout")


def bad_address_text(network: str, error: BadAddress) -> str:
    return f"dial {network}: {error.text}"


def no_suitable_address_text(network: str, host: str) -> str:
    """The name exists, but has no address of the family that `network` asks for."""
    return f"dial {network}: address {host}: no suitable address found"


DENIED: Final = "destination denied by the agent"
"""In the text of every dial that the agent's destination rules refuse; servers and clients recognize it."""


def denied_text(network: str, address: str, reason: str) -> str:
    return f"dial {network} {address}: {DENIED}: {reason}"


def unsupported_network_text(network: str) -> str:
    """Upstream's agent passes any network name to Go's dialer, so a client can reach its Unix sockets."""
    return f"dial {network}: protocol not supported, this agent dials {', '.join(DIALABLE_NETWORKS)}"


def endpoint_failure_reason(text: str) -> str:
    """The label of the agent's `endpoint_dial_failure_total`, from a text that this module made."""
    if DENIED in text:
        return "denied"
    return "timeout" if text.endswith(("i/o timeout", "connection timed out")) else "unknown"


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(address: str) -> tuple[str, int]:
    """Split "host:port" as Go's dialer: no host is this machine, no port is 0. Raises BadAddress with Go's words."""
    if not address:
        raise BadAddress("missing address")
    host, port = _split(address)
    return host, _port_number(port)


def _split(address: str) -> tuple[str, str]:
    last = address.rfind(":")
    if last < 0:
        raise BadAddress(f"address {address}: missing port in address")
    if address[0] == "[":
        return _split_bracketed(address, last)
    host = address[:last]
    if ":" in host:
        raise BadAddress(f"address {address}: too many colons in address")
    _refuse_brackets(address, 0, 0)
    return host, address[last + 1 :]


def _split_bracketed(address: str, last: int) -> tuple[str, str]:
    end = address.find("]")
    if end < 0:
        raise BadAddress(f"address {address}: missing ']' in address")
    if end + 1 != last:
        # Either nothing follows the bracket, or a colon follows that is not the last, or something else.
        too_many = end + 1 < len(address) and address[end + 1] == ":"
        words = "too many colons in address" if too_many else "missing port in address"
        raise BadAddress(f"address {address}: {words}")
    _refuse_brackets(address, 1, end + 1)
    return address[1:end], address[last + 1 :]


def _refuse_brackets(address: str, open_from: int, close_from: int) -> None:
    if "[" in address[open_from:]:
        raise BadAddress(f"address {address}: unexpected '[' in address")
    if "]" in address[close_from:]:
        raise BadAddress(f"address {address}: unexpected ']' in address")


def _port_number(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return 0  # Go reads an empty port as 0, and a lone sign likewise
    if not (digits.isascii() and digits.isdigit()):
        return _port_by_name(text)
    number = int(digits) if len(digits) < 100 else 1 << 31
    if number > 65535 or (text[0] == "-" and number > 0):
        raise BadAddress(f"address {text}: invalid port")
    return number


def _port_by_name(text: str) -> int:
    port = _GO_SERVICES.get(text.lower())
    if port is None:
        raise BadAddress(f"lookup tcp/{text}: unknown port")
    return port
