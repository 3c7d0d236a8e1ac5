"""The queue between the data path and a log that may not be read."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.fixture_types import Patch
from tests.support.in_process import echo, listening
from tests.support.tunnel_client import DialRefused, assert_echoes
from tests.support.tunnel_pair import Shape, TunnelPair, metric, wait_until
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.tunnel.log_queue import LOST_LINES, MAX_QUEUED_BYTES, DescriptorSink, LogQueue

LINE = b"x" * 99 + b"\n"


class GatedSink:
    """Writes only while its gate is open, as a pipe does while somebody reads it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.written: list[bytes] = []
        self.closed = 0

    def write(self, line: bytes) -> None:
        self.entered.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        self.written += line.splitlines(keepends=True)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def told(count: int) -> bytes:
    return b"lost %d\n" % count


@contextmanager
def queue_of(sink: GatedSink, max_bytes: int = 1000) -> Iterator[LogQueue]:
    queue = LogQueue(sink, told, max_bytes)
    try:
        yield queue
    finally:
        sink.gate.set()
        queue.flush()
        queue.close()


def test_a_caller_never_waits_and_lines_beyond_the_bound_are_dropped_counted_and_told_in_order() -> None:
    sink, lost_before = GatedSink(), LOST_LINES.total
    with queue_of(sink) as queue:
        queue.write(b"first\n")
        assert sink.entered.wait(PATIENCE_SECONDS)
        for _ in range(15):
            queue.write(LINE)
        queue.write(b"short enough, but later than a dropped one\n")
        assert LOST_LINES.total - lost_before == 6
        sink.gate.set()
        queue.flush()
        queue.write(b"again\n")
        queue.flush()
    assert sink.written == [b"first\n", *[LINE] * 10, b"lost 6\n", b"again\n"]
    assert sink.closed == 1


def test_losses_are_told_though_no_line_follows_and_a_line_above_the_bound_is_one() -> None:
    sink = GatedSink()
    sink.gate.set()
    with queue_of(sink) as queue:
        queue.write(b"y" * 2000 + b"\n")
        queue.flush()
        assert sink.written == [b"lost 1\n"]
        queue.write(b"next\n")
    assert sink.written == [b"lost 1\n", b"next\n"]


def test_lines_of_a_burst_are_written_in_few_batches_in_order() -> None:
    reader, writer = os.pipe()
    lines = [b"%d\n" % number for number in range(5000)]
    found = bytearray()

    def read() -> None:
        while data := os.read(reader, 65536):
            found.extend(data)

    reading = threading.Thread(target=read)
    reading.start()
    queue = LogQueue(DescriptorSink(writer), told)
    for line in lines:
        queue.write(line)
    queue.flush()
    queue.close()
    os.close(writer)
    reading.join(PATIENCE_SECONDS)
    os.close(reader)
    assert bytes(found) == b"".join(lines)


def test_an_exit_does_not_wait_for_a_reader_that_never_comes() -> None:
    sink = GatedSink()
    queue = LogQueue(sink, told)
    queue.write(LINE)
    assert sink.entered.wait(PATIENCE_SECONDS)
    queue.flush()
    queue.close()
    assert (sink.written, sink.closed) == ([], 0)
    sink.gate.set()


def test_a_closed_queue_takes_lines_without_effect() -> None:
    sink = GatedSink()
    sink.gate.set()
    with queue_of(sink) as queue:
        pass
    queue.write(LINE)
    queue.flush()
    assert sink.written == []


def test_lines_wait_in_the_queue_while_the_system_has_no_thread_left(monkeypatch: Patch) -> None:
    sink = GatedSink()
    sink.gate.set()
    with queue_of(sink) as queue:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", _refuse)
            queue.write(b"one\n")
        queue.write(b"two\n")
        queue.flush()
    assert sink.written == [b"one\n", b"two\n"]


def _refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[tuple[TunnelPair, int]]:
    """A server whose log is a pipe of one page that nobody reads, and the pipe's other end."""
    pair = TunnelPair(Shape(), make_tunnel_pki(tmp_path), tmp_path)
    os.mkfifo(pair.server.log)
    reader = os.open(pair.server.log, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    try:
        pair.start()
        yield pair, reader
    finally:
        os.close(reader)
        pair.server.log = tmp_path / "closed"
        pair.stop()


def _lines_until(reader: int, words: str) -> list[str]:
    found = bytearray()

    def has_come() -> bool:
        with suppress(BlockingIOError):
            found.extend(os.read(reader, 1 << 20))
        return words.encode() in found

    wait_until(has_come, words)
    return found.decode().splitlines()


def test_a_server_whose_log_nobody_reads_serves_tunnels_and_health_and_tells_the_losses_later(
    unread: tuple[TunnelPair, int],
) -> None:
    pair, reader = unread
    for number in range(MAX_QUEUED_BYTES // 16_000 + 20):
        with pytest.raises(DialRefused):
            pair.frontend().open(f"{number}.{'x' * 16_000}:99999")
    assert metric(pair.ports.server_admin, "umbilical_log_lines_dropped_total") > 0
    assert pair.server_health("/healthz") == (200, "ok")
    with listening() as endpoint:
        endpoint.serve(echo)
        tunnel = pair.frontend().open(endpoint.address)
        assert_echoes(tunnel)
        tunnel.close()
    assert "UMB430 " in _lines_until(reader, " log lines were dropped")[-1]
    pair.server.signal(signal.SIGTERM)
    assert pair.server.wait() == 0
