"""How commands talk to a lab's keeper: over a Unix socket, one question and one answer per connection.

A message is a line of JSON, and after it as many raw bytes as its `payload` says: what a program reads or prints
need not be text. Both are bounded, and every wait has an end.
"""

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from umbilical.fault import LabError
from umbilical.lab.state import LabDirectory

MAX_LINE_BYTES: Final = 1 << 20
MAX_PAYLOAD_BYTES: Final = 16 << 20
# unix(7): sun_path has 108 bytes, the last a zero.
MAX_SOCKET_PATH_BYTES: Final = 107
ANSWER_SECONDS: Final = 30.0


class MessageError(Exception):
    """What came is no message of ours."""


@dataclass(frozen=True)
class Message:
    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def encode(self) -> bytes:
        """Spell it for the socket. Raises MessageError: it is too large."""
        line = json.dumps({**self.fields, "payload": len(self.payload)}).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES or len(self.payload) > MAX_PAYLOAD_BYTES:
            raise MessageError(f"{len(line)} and {len(self.payload)} bytes are too many for one message")
        return line + self.payload


def fault_message(fault: LabError) -> Message:
    return Message({"fault": [fault.code, fault.what, fault.why, fault.remedy]})


def decode_line(line: bytes) -> tuple[dict[str, Any], int]:
    """Return the fields, and how many raw bytes follow. Raises MessageError: it is not a line of ours."""
    try:
        fields = json.loads(line)
        size = fields.pop("payload")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError(f"not a message: {type(error).__name__}") from error
    if type(size) is not int or not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise MessageError(f"a payload of {size!r} bytes")
    return fields, size


async def receive(reader: asyncio.StreamReader) -> Message:
    """Read one message; the reader's limit bounds its line. Raises MessageError: too large, broken or cut off."""
    try:
        fields, size = decode_line(await reader.readuntil(b"\n"))
        return Message(fields, await reader.readexactly(size))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise MessageError(str(error)) from error


def ask(directory: LabDirectory, question: Message, timeout_seconds: float = ANSWER_SECONDS) -> Message:
    """Put a question to the keeper. Raises LabError: no answer (UMB819), too long (UMB816), or its refusal."""
    try:
        content = question.encode()
    except MessageError as error:
        remedy = "write it to a file on the node first"
        raise LabError("UMB816", "too much to hand to a program on a node", str(error), remedy) from error
    try:
        with _connect(directory, timeout_seconds) as connection:
            connection.sendall(content)
            with connection.makefile("rb") as stream:
                answer = _receive_answer(stream)
    except (OSError, MessageError) as error:
        raise _silence(directory, error) from error
    if "fault" in answer.fields:
        raise LabError(*answer.fields["fault"])
    return answer


def _connect(directory: LabDirectory, timeout_seconds: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        _connect_by_path(connection, directory)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_by_path(connection: socket.socket, directory: LabDirectory) -> None:
    path = os.fspath(directory.control_socket)
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        connection.connect(path)
        return
    # The kernel follows the descriptor's link, so only this short name has to fit.
    descriptor = os.open(directory.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{directory.control_socket.name}")
    finally:
        os.close(descriptor)


def _receive_answer(stream: BinaryIO) -> Message:
    line = stream.readline(MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise MessageError("the keeper hung up")
    fields, size = decode_line(line)
    payload = stream.read(size)
    if len(payload) != size:
        raise MessageError("the keeper hung up in the middle of its answer")
    return Message(fields, payload)


def _silence(directory: LabDirectory, error: Exception) -> LabError:
    what = f"the keeper of the lab in {directory.path} does not answer"
    return LabError("UMB819", what, str(error) or type(error).__name__, f"read {directory.keeper_log}")
