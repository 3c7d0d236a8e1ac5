"""gRPC messages and status texts: however they are cut, the same messages, or the same refusal.

Input: the largest piece, then the bytes of a stream; its bytes are also read as a status and as a text.
"""

from tests.fuzz.choices import Choices, pieces

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.grpc import (
    PREFIX_BYTES,
    MessageReader,
    decode_status_message,
    encode_status_message,
    message_prefix,
    status_of,
)


def target(data: bytes) -> None:
    choices = Choices(data)
    largest = choices.number()
    octets = choices.rest()
    messages, refusal = _read(octets, len(octets))
    assert _read(octets, largest) == (messages, refusal), "cut differently, other messages"
    assert octets.startswith(b"".join([message_prefix(len(message)) + message for message in messages]))
    is_one = len(messages) == 1 and len(messages[0]) + PREFIX_BYTES == len(octets)
    assert MessageReader().is_whole(bytearray(octets), 0, len(octets)) == is_one
    _check_status(octets)


def _read(octets: bytes, largest: int) -> tuple[list[bytes], str]:
    reader = MessageReader()
    messages: list[bytes] = []
    try:
        for piece in pieces(octets, largest):
            source = bytearray(piece)
            reader.feed(source, memoryview(source), 0, len(source))
            while reader.next_message():
                message = bytes(reader.view[reader.start : reader.end])
                assert message == reader.source[reader.start : reader.end]
                messages.append(message)
    except ProtocolViolation as violation:
        return messages, violation.message
    return messages, ""


def _check_status(octets: bytes) -> None:
    text = decode_status_message(octets)
    assert decode_status_message(encode_status_message(text)) == text
    status, _ = status_of([(b"grpc-status", octets), (b"grpc-message", octets)])
    assert status >= 0
