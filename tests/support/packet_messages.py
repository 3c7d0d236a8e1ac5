"""The Konnectivity messages as `protobuf` classes made at run time, so that no generated file is kept.

Shares nothing with `umbilical.wire`: what these two agree on is the protocol.
"""

from enum import IntEnum
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD: Final[Any] = descriptor_pb2.FieldDescriptorProto


class PacketType(IntEnum):
    DIAL_REQ = 0
    DIAL_RSP = 1
    CLOSE_REQ = 2
    CLOSE_RSP = 3
    DATA = 4
    DIAL_CLS = 5
    DRAIN = 6


_PAYLOADS: Final = {
    "dialRequest": "DialRequest",
    "dialResponse": "DialResponse",
    "data": "Data",
    "closeRequest": "CloseRequest",
    "closeResponse": "CloseResponse",
    "closeDial": "CloseDial",
    "drain": "Drain",
}
_SHAPES: Final[dict[str, dict[str, int]]] = {
    "DialRequest": {"protocol": _FIELD.TYPE_STRING, "address": _FIELD.TYPE_STRING, "random": _FIELD.TYPE_INT64},
    "DialResponse": {"error": _FIELD.TYPE_STRING, "connectID": _FIELD.TYPE_INT64, "random": _FIELD.TYPE_INT64},
    "CloseRequest": {"connectID": _FIELD.TYPE_INT64},
    "CloseResponse": {"error": _FIELD.TYPE_STRING, "connectID": _FIELD.TYPE_INT64},
    "CloseDial": {"random": _FIELD.TYPE_INT64},
    "Drain": {},
    "Data": {"connectID": _FIELD.TYPE_INT64, "error": _FIELD.TYPE_STRING, "data": _FIELD.TYPE_BYTES},
}


def _packet_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="packets.proto", syntax="proto3")
    for name, fields in _SHAPES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            message.field.add(name=field, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    packet = file.message_type.add(name="Packet")
    # An int32 is an enum's twin on the wire, and keeps types that nobody has named yet.
    packet.field.add(name="type", number=1, type=_FIELD.TYPE_INT32, label=_FIELD.LABEL_OPTIONAL)
    packet.oneof_decl.add(name="payload")
    for number, (field, payload) in enumerate(_PAYLOADS.items(), start=2):
        packet.field.add(
            name=field,
            number=number,
            type=_FIELD.TYPE_MESSAGE,
            type_name=payload,
            label=_FIELD.LABEL_OPTIONAL,
            oneof_index=0,
        )
    return file


def _packet_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_packet_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Packet"))


Packet: Final[Any] = _packet_class()


def dial_request(address: str, dial_id: int, protocol: str = "tcp") -> Any:
    return Packet(type=PacketType.DIAL_REQ, dialRequest={"protocol": protocol, "address": address, "random": dial_id})


def dial_response(dial_id: int, connection_id: int = 0, error: str = "") -> Any:
    return Packet(
        type=PacketType.DIAL_RSP, dialResponse={"random": dial_id, "connectID": connection_id, "error": error}
    )


def close_dial(dial_id: int) -> Any:
    return Packet(type=PacketType.DIAL_CLS, closeDial={"random": dial_id})


def data(connection_id: int, payload: bytes) -> Any:
    return Packet(type=PacketType.DATA, data={"connectID": connection_id, "data": payload})


def close_request(connection_id: int) -> Any:
    return Packet(type=PacketType.CLOSE_REQ, closeRequest={"connectID": connection_id})


def close_response(connection_id: int, error: str = "") -> Any:
    return Packet(type=PacketType.CLOSE_RSP, closeResponse={"connectID": connection_id, "error": error})
