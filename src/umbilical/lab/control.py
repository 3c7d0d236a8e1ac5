"""The protocol between commands and a lab's keeper: a Unix socket, one request and one answer per connection.

A message is a line of JSON, followed by `payload` raw bytes (stdin or output of a program). Both are limited in size.
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
# unix(7): sun_path has 108 bytes with the final zero.
MAX_SOCKET_PATH_BYTES: Final = 107
ANSWER_SECONDS: Final = 30.0


class MessageError(Exception):
    """The received bytes are not a valid message."""


@dataclass(frozen=True)
class Message:
    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def encode(self) -> bytes:
        """Encode it for the socket. Raises MessageError: it is too large."""
        line = json.dumps({**self.fields, "payload": len(self.payload)}).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES or len(self.payload) > MAX_PAYLOAD_BYTES:
            raise MessageError(
                f"a line of {len(line)} bytes and a payload of {len(self.payload)} bytes exceed the limit"
            )
        return line + self.payload


def fault_message(fault: LabError) -> Message:
    return Message({"fault": [fault.code, fault.what, fault.why, fault.remedy]})


def decode_line(line: bytes) -> tuple[dict[str, Any], int]:
    """Return the fields and the payload's size. Raises MessageError: the line is not valid."""
    try:
        fields = json.loads(line)
        size = fields.pop("payload")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError(f"not a message: {type(error).__name__}") from error
    if type(size) is not int or not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise MessageError(f"invalid payload size {size!r}")
    return fields, size


async def receive(reader: asyncio.StreamReader) -> Message:
    """Read one message; the reader limits the line. Raises MessageError: too large, invalid or incomplete."""
    try:
        fields, size = decode_line(await reader.readuntil(b"\n"))
        return Message(fields, await reader.readexactly(size))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise MessageError(str(error)) from error


def ask(directory: LabDirectory, question: Message, timeout_seconds: float = ANSWER_SECONDS) -> Message:
    """Send a request to the keeper. Raises LabError: no answer (UMB819), too large (UMB816), or the keeper's error."""
    try:
        content = question.encode()
    except MessageError as error:
        remedy = "write it to a file on the node first"
        raise LabError("UMB816", "the input for a program on a node is too large", str(error), remedy) from error
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
    # Through the directory's descriptor the path is short enough.
    descriptor = os.open(directory.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{directory.control_socket.name}")
    finally:
        os.close(descriptor)


def _receive_answer(stream: BinaryIO) -> Message:
    line = stream.readline(MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise MessageError("the keeper closed the connection")
    fields, size = decode_line(line)
    payload = stream.read(size)
    if len(payload) != size:
        raise MessageError("the keeper closed the connection within its answer")
    return Message(fields, payload)


def _silence(directory: LabDirectory, error: Exception) -> LabError:
    what = f"the keeper of the lab in {directory.path} did not answer"
    return LabError("UMB819", what, str(error) or type(error).__name__, f"read {directory.keeper_log}")
