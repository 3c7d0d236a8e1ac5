"""Messages between commands and keeper: bounded, and never a traceback for what cannot be read."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab import control
from umbilical.lab.control import Message, MessageError
from umbilical.lab.errors import LabError
from umbilical.lab.paths import LabDirectory

TEXTS = st.dictionaries(st.text(max_size=5).filter(lambda name: name != "payload"), st.text(max_size=5), max_size=3)


async def received(content: bytes) -> Message:
    reader = asyncio.StreamReader(limit=control.MAX_LINE_BYTES)
    reader.feed_data(content)
    reader.feed_eof()
    return await control.receive(reader)


@given(TEXTS, st.binary(max_size=100))
def test_what_is_sent_is_received(fields: dict[str, str], payload: bytes) -> None:
    message = Message(fields, payload)
    assert asyncio.run(received(message.encode())) == message


@given(st.binary(max_size=200))
def test_noise_is_no_message(noise: bytes) -> None:
    try:
        message = asyncio.run(received(noise))
    except MessageError:
        return
    assert b"payload" in noise
    assert len(message.payload) <= len(noise)


@pytest.mark.parametrize("size", [-1, 1.0, True, None, "1", control.MAX_PAYLOAD_BYTES + 1])
def test_a_size_that_cannot_be_is_refused_before_anything_is_read(size: object) -> None:
    with pytest.raises(MessageError):
        control.decode_line(json.dumps({"payload": size}).encode())


def test_a_message_that_is_cut_off_is_none() -> None:
    whole = Message({"a": "b"}, b"payload").encode()
    for length in range(len(whole)):
        with pytest.raises(MessageError):
            asyncio.run(received(whole[:length]))


def test_too_long_a_line_is_refused_on_both_sides() -> None:
    with pytest.raises(MessageError):
        Message({"x": "y" * control.MAX_LINE_BYTES}).encode()
    with pytest.raises(MessageError):
        asyncio.run(received(b"x" * (control.MAX_LINE_BYTES + 10)))


@contextmanager
def keeper(folder: Path, answer: Callable[[socket.socket], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Play a keeper that answers one question this way."""
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("control.sock")
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(10)


def refusal(folder: Path, timeout_seconds: float = 60.0) -> LabError:
    with pytest.raises(LabError) as refused:
        control.ask(LabDirectory(folder), Message({"operation": "x"}), timeout_seconds)
    return refused.value


def test_a_keeper_that_is_not_there_is_told(tmp_path: Path) -> None:
    fault = refusal(tmp_path)
    assert fault.code == "UMB819"
    assert "keeper.log" in fault.remedy


@pytest.mark.parametrize("answer", [b"", b"{", b"null\n", b'{"payload": 5}\nabc', b'{"payload": 99999999999}\n'])
def test_a_keeper_that_talks_nonsense_is_told(tmp_path: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with keeper(tmp_path, lambda connection: connection.sendall(answer), monkeypatch):
        assert refusal(tmp_path).code == "UMB819"


def test_a_keeper_that_stays_silent_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()
    with keeper(tmp_path, lambda connection: given_up.wait(10), monkeypatch):
        assert refusal(tmp_path, 0.05).why == "timed out"
        given_up.set()


def test_a_fault_of_the_keepers_is_raised_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = LabError("UMB817", "what", "why", "remedy")
    answer = control.fault_message(fault).encode()
    with keeper(tmp_path, lambda connection: connection.sendall(answer), monkeypatch):
        assert str(refusal(tmp_path)) == str(fault)


def test_a_socket_with_a_long_path_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    answer = Message({"a": 1}, b"bytes")
    with keeper(folder, lambda connection: connection.sendall(answer.encode()), monkeypatch):
        assert control.ask(LabDirectory(folder), Message()) == answer
