"""Konnectivity's `Packet`: its types, a small object for each, and how each is written.

`packet_decoding` reads them, and `packet_data` is the data path's own way with DATA, which is most of the traffic.
`random` and `connectID` of the .proto files are called dial id and connection id here.
"""

from typing import Final

from umbilical.wire import protobuf

DIAL_REQ: Final = 0
DIAL_RSP: Final = 1
CLOSE_REQ: Final = 2
CLOSE_RSP: Final = 3
DATA: Final = 4
DIAL_CLS: Final = 5
DRAIN: Final = 6
PAUSE: Final = 64
"""Ours, sent only to peers that announced it: stop reading this connection's far end (docs/protocol.md)."""
RESUME: Final = 65

TYPE_NAMES: Final = ("DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN")


class Packet:
    """Any packet; a bare one is of a type that we do not know and ignore."""

    def __init__(self, kind: int) -> None:
        self.kind = kind


class DialRequest(Packet):
    def __init__(self, protocol: str, address: str, dial_id: int) -> None:
        super().__init__(DIAL_REQ)
        self.protocol = protocol
        self.address = address
        self.dial_id = dial_id


class DialResponse(Packet):
    def __init__(self, error: str, connection_id: int, dial_id: int) -> None:
        super().__init__(DIAL_RSP)
        self.error = error
        self.connection_id = connection_id
        self.dial_id = dial_id


class CloseRequest(Packet):
    def __init__(self, connection_id: int) -> None:
        super().__init__(CLOSE_REQ)
        self.connection_id = connection_id


class CloseResponse(Packet):
    def __init__(self, error: str, connection_id: int) -> None:
        super().__init__(CLOSE_RSP)
        self.error = error
        self.connection_id = connection_id


class Data(Packet):
    def __init__(self, connection_id: int, error: str, payload: bytes) -> None:
        super().__init__(DATA)
        self.connection_id = connection_id
        self.error = error
        self.payload = payload


class CloseDial(Packet):
    def __init__(self, dial_id: int) -> None:
        super().__init__(DIAL_CLS)
        self.dial_id = dial_id


class Drain(Packet):
    def __init__(self) -> None:
        super().__init__(DRAIN)


class Pause(Packet):
    def __init__(self, connection_id: int) -> None:
        super().__init__(PAUSE)
        self.connection_id = connection_id


class Resume(Packet):
    def __init__(self, connection_id: int) -> None:
        super().__init__(RESUME)
        self.connection_id = connection_id


def encode_dial_request(protocol: str, address: str, dial_id: int) -> bytes:
    body = (
        protobuf.encode_text(0x0A, protocol)
        + protobuf.encode_text(0x12, address)
        + protobuf.encode_integer(0x18, dial_id)
    )
    return protobuf.encode_bytes(0x12, body)


def encode_dial_response(error: str, connection_id: int, dial_id: int) -> bytes:
    body = (
        protobuf.encode_text(0x0A, error)
        + protobuf.encode_integer(0x10, connection_id)
        + protobuf.encode_integer(0x18, dial_id)
    )
    return b"\x08\x01" + protobuf.encode_bytes(0x1A, body)


def encode_close_request(connection_id: int) -> bytes:
    return b"\x08\x02" + protobuf.encode_bytes(0x2A, protobuf.encode_integer(0x08, connection_id))


def encode_close_response(error: str, connection_id: int) -> bytes:
    body = protobuf.encode_text(0x0A, error) + protobuf.encode_integer(0x10, connection_id)
    return b"\x08\x03" + protobuf.encode_bytes(0x32, body)


def encode_close_dial(dial_id: int) -> bytes:
    return b"\x08\x05" + protobuf.encode_bytes(0x3A, protobuf.encode_integer(0x08, dial_id))


def encode_drain() -> bytes:
    return b"\x08\x06\x42\x00"


def encode_pause(connection_id: int) -> bytes:
    return b"\x08\x40" + protobuf.encode_bytes(0x7A, protobuf.encode_integer(0x08, connection_id))


def encode_resume(connection_id: int) -> bytes:
    return b"\x08\x41" + protobuf.encode_bytes(0x7A, protobuf.encode_integer(0x08, connection_id))


def encode_data(connection_id: int, payload: bytes) -> bytes:
    """A DATA packet in its shortest form; the data path uses `packet_data.DataPrefix` instead."""
    body = protobuf.encode_integer(0x08, connection_id) + (protobuf.encode_bytes(0x1A, payload) if payload else b"")
    return b"\x08\x04" + protobuf.encode_bytes(0x22, body)
