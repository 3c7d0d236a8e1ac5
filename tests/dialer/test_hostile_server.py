"""The dialer and a server in mode grpc that breaks the rules of HTTP/2: the dial fails with a reason."""

import socket
from pathlib import Path

import pytest
from tests.dialer.test_grpc import failure_of
from tests.support.hostile_server import CONNECTION, FOR_PROGRAMS, SUBJECT, Fault, answer, goaway_codes, play_server
from tests.wire.http2.ends import Frame, frame, settings_frame

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.wire.http2 import frames


def failed_dial(path: Path, octets: bytes) -> tuple[DialFailed, list[Frame]]:
    told: list[Frame] = []

    def deed(sock: socket.socket) -> None:
        told.extend(play_server(sock, octets))

    return failure_of(path, deed), told


@pytest.mark.parametrize("fault", FOR_PROGRAMS, ids=str)
def test_a_dial_through_a_server_that_breaks_the_rules_fails_with_a_reason(tmp_path: Path, fault: Fault) -> None:
    octets = (answer(SUBJECT) if fault.is_answered else b"") + fault.octets
    failure, told = failed_dial(tmp_path / "frontend.sock", octets)
    assert failure.reason == DialReason.PROTOCOL
    assert failure.hop == "the-server"
    if fault.reaction == CONNECTION and len(fault.octets) < 1000:
        assert goaway_codes(told) == [fault.code]


def test_a_dial_through_a_server_that_takes_no_streams_fails_at_once(tmp_path: Path) -> None:
    refusal = frame(frames.RST_STREAM, 0, SUBJECT, frames.REFUSED_STREAM.to_bytes(4, "big"))
    octets = settings_frame([(frames.MAX_CONCURRENT_STREAMS, 0)]) + refusal
    failure, _ = failed_dial(tmp_path / "frontend.sock", octets)
    assert (failure.reason, failure.hop) == (DialReason.SERVER, "the-server"), "another server may be tried"
