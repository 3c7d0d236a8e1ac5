"""The server side of SOCKS5: RFC 1928, with username and password of RFC 1929.

    GREETING → [CREDENTIALS → CHECKING →] REQUEST → DIALLING        and from every state → REFUSED

A client of another protocol raises ProtocolViolation and gets no answer. A request that SOCKS5 can refuse ends in
`refusal`, with the answer in `output()`. Nothing is resolved here.
"""

from typing import Final

from umbilical.wire.errors import MisuseError, ProtocolViolation

VERSION: Final = 5
CREDENTIALS_VERSION: Final = 1

NO_AUTHENTICATION: Final = 0
USERNAME_PASSWORD: Final = 2
NO_ACCEPTABLE_METHOD: Final = 0xFF

CONNECT: Final = 1
BIND: Final = 2
UDP_ASSOCIATE: Final = 3

IPV4: Final = 1
NAME: Final = 3
IPV6: Final = 4

# Replies, RFC 1928 section 6.
SUCCEEDED: Final = 0
GENERAL_FAILURE: Final = 1
NOT_ALLOWED: Final = 2
NETWORK_UNREACHABLE: Final = 3
HOST_UNREACHABLE: Final = 4
CONNECTION_REFUSED: Final = 5
TTL_EXPIRED: Final = 6
COMMAND_NOT_SUPPORTED: Final = 7
ADDRESS_TYPE_NOT_SUPPORTED: Final = 8

# States.
GREETING: Final = 0
CREDENTIALS: Final = 1
CHECKING: Final = 2
"""The caller checks the password and calls `credentials_are`."""
REQUEST: Final = 3
DIALLING: Final = 4
"""`request` is set; the bytes after it are payload for the endpoint."""
REFUSED: Final = 5
STATE_NAMES: Final = ("greeting", "credentials", "checking", "request", "dialling", "refused")

# Why a client was refused.
UNAUTHORIZED: Final = "unauthorized"
UNSUPPORTED: Final = "unsupported"
BAD_REQUEST: Final = "bad-request"

MAX_HANDSHAKE_BYTES: Final = (2 + 255) + (1 + 1 + 255 + 1 + 255) + (4 + 1 + 255 + 2)
"""The most bytes that a client can send up to the end of its request. A security limit, set by the formats."""

_NAME_BYTES: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._:"
"""Characters of host names and addresses. Any other could end the line of the CONNECT request to the next hop."""
_COMMAND_NAMES: Final = {BIND: "BIND", UDP_ASSOCIATE: "UDP ASSOCIATE"}
_NO_ADDRESS: Final = b"\0\0\0\0"


class SocksRequest:
    """The endpoint that a client wants to connect to."""

    def __init__(self, host: str, port: int) -> None:
        self.host: Final = host
        """A name, or an address in its canonical text, without brackets."""
        self.port: Final = port


class SocksRefusal:
    """Why a client is refused; the answer is in `output()`."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind: Final = kind
        self.text: Final = text


class SocksHandshake:
    """One client, up to the end of its request."""

    def __init__(self, password_needed: bool) -> None:
        self.state = GREETING
        self.request: SocksRequest | None = None
        self.refusal: SocksRefusal | None = None
        self.username = b""
        self.password = b""
        """Both are set only in state CHECKING."""
        self._password_needed: Final = password_needed
        self._buffer = bytearray()
        self._output = b""

    def feed(self, data: bytes) -> None:
        """Take bytes from the client. Raises ProtocolViolation: then close without an answer."""
        self._buffer += data
        self._advance()

    def output(self) -> bytes:
        """Return the bytes to send now, each only once."""
        given, self._output = self._output, b""
        return given

    def rest(self) -> bytes:
        """Return, only once, what the client sent after its request: the first payload for the endpoint."""
        if self.state != DIALLING:
            raise MisuseError(f"no rest in state {STATE_NAMES[self.state]}")
        given = bytes(self._buffer)
        self._buffer = bytearray()
        return given

    def credentials_are(self, valid: bool) -> None:
        """Continue with the result of the check of `username` and `password`."""
        if self.state != CHECKING:
            raise MisuseError(f"no credentials in state {STATE_NAMES[self.state]}")
        self.username = self.password = b""
        if not valid:
            self._refuse(bytes((CREDENTIALS_VERSION, 1)), UNAUTHORIZED, "wrong username or password")
            return
        self._output += bytes((CREDENTIALS_VERSION, 0))
        self.state = REQUEST
        self._advance()

    def _advance(self) -> None:
        """Parse as much as has arrived: a client may send everything at once."""
        moved = True
        while moved:
            if self.state == GREETING:
                moved = self._read_greeting()
            elif self.state == CREDENTIALS:
                moved = self._read_credentials()
            elif self.state == REQUEST:
                moved = self._read_request()
            else:
                moved = False
        if self.state == REFUSED:
            self._buffer = bytearray()

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _read_greeting(self) -> bool:
        buffer = self._buffer
        if buffer and buffer[0] != VERSION:
            raise ProtocolViolation(0, f"greeting of SOCKS version {buffer[0]}, not 5")
        if len(buffer) < 2 or len(buffer) < 2 + buffer[1]:
            return False
        self._choose(self._take(2 + buffer[1])[2:])
        return True

    def _choose(self, offered: bytes) -> None:
        wanted = USERNAME_PASSWORD if self._password_needed else NO_AUTHENTICATION
        if wanted not in offered:
            text = "offers no username and password" if self._password_needed else "offers no method without a password"
            self._refuse(bytes((VERSION, NO_ACCEPTABLE_METHOD)), UNAUTHORIZED, text)
            return
        self._output += bytes((VERSION, wanted))
        self.state = CREDENTIALS if self._password_needed else REQUEST

    def _read_credentials(self) -> bool:
        buffer = self._buffer
        if buffer and buffer[0] != CREDENTIALS_VERSION:
            raise ProtocolViolation(0, f"credentials of version {buffer[0]}, not 1")
        if len(buffer) < 2:
            return False
        name_end = 2 + buffer[1]
        if len(buffer) <= name_end or len(buffer) < name_end + 1 + buffer[name_end]:
            return False
        taken = self._take(name_end + 1 + buffer[name_end])
        self.username, self.password = taken[2:name_end], taken[name_end + 1 :]
        self.state = CHECKING
        return True

    def _read_request(self) -> bool:
        buffer = self._buffer
        if buffer and buffer[0] != VERSION:
            raise ProtocolViolation(0, f"request of SOCKS version {buffer[0]}, not 5")
        if len(buffer) < 4:
            return False
        if buffer[1] != CONNECT:
            name = _COMMAND_NAMES.get(buffer[1], f"command {buffer[1]}")
            self._refuse(encode_reply(COMMAND_NOT_SUPPORTED), UNSUPPORTED, f"{name} is not supported")
            return True
        kind = buffer[3]
        if kind == NAME:
            return self._read_name()
        size = 4 if kind == IPV4 else 16 if kind == IPV6 else 0
        if not size:
            text = f"address type {kind} is not supported"
            self._refuse(encode_reply(ADDRESS_TYPE_NOT_SUPPORTED), UNSUPPORTED, text)
            return True
        if len(buffer) < 4 + size + 2:
            return False
        taken = self._take(4 + size + 2)
        address = taken[4 : 4 + size]
        self._ask(ipv4_text(address) if kind == IPV4 else ipv6_text(address), taken)
        return True

    def _read_name(self) -> bool:
        buffer = self._buffer
        if len(buffer) < 5 or len(buffer) < 5 + buffer[4] + 2:
            return False
        taken = self._take(5 + buffer[4] + 2)
        name = taken[5:-2]
        if not name or name.strip(_NAME_BYTES):
            self._refuse(encode_reply(HOST_UNREACHABLE), BAD_REQUEST, f"{name!r} is not a host name")
            return True
        self._ask(name.decode("ascii"), taken)
        return True

    def _ask(self, host: str, taken: bytes) -> None:
        port = taken[-2] << 8 | taken[-1]
        if not port:
            self._refuse(encode_reply(GENERAL_FAILURE), BAD_REQUEST, "port 0 is not a valid port")
            return
        self.request = SocksRequest(host, port)
        self.state = DIALLING

    def _refuse(self, answer: bytes, kind: str, text: str) -> None:
        self._output += answer
        self.refusal = SocksRefusal(kind, text)
        self.state = REFUSED


def encode_reply(code: int, address: bytes = _NO_ADDRESS, port: int = 0) -> bytes:
    """`address` is the local address of the outgoing connection if known: packed IPv4 or IPv6."""
    kind = IPV6 if len(address) == 16 else IPV4
    return bytes((VERSION, code, 0, kind)) + address + bytes((port >> 8, port & 0xFF))


def ipv4_text(packed: bytes) -> str:
    return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}"


def ipv6_text(packed: bytes) -> str:
    """The canonical text of RFC 5952, which agents and certificates use."""
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        return "::ffff:" + ipv4_text(packed[12:])
    groups = [packed[index] << 8 | packed[index + 1] for index in range(0, 16, 2)]
    start, length = _longest_zeros(groups)
    if length < 2:
        return _hex(groups)
    return f"{_hex(groups[:start])}::{_hex(groups[start + length :])}"


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    """Start and length of the first of the longest runs of zeros."""
    best, best_length, length = 0, 0, 0
    for index, group in enumerate(groups):
        length = length + 1 if group == 0 else 0
        if length > best_length:
            best, best_length = index - length + 1, length
    return best, best_length


def _hex(groups: list[int]) -> str:
    return ":".join([f"{group:x}" for group in groups])
