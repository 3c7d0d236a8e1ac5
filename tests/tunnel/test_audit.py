"""The audit: what a record says, and what happens to its file."""

import json
import logging
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.in_process import Stage, refused_address
from tests.support.tunnel_client import DialRefused, assert_echoes

from umbilical.fault import StartupError
from umbilical.tunnel.audit import KEPT, Audit, RotatedFile
from umbilical.tunnel.certificate_dates import shown_exactly
from umbilical.tunnel.log_queue import LostLines
from umbilical.tunnel.settings import AuditSettings
from umbilical.tunnel.supervisor import worker_settings


def answer_once(sock: socket.socket) -> None:
    sock.sendall(sock.recv(100))


def records(path: Path, count: int) -> list[dict[str, Any]]:
    """Wait for so many."""
    deadline = time.monotonic() + 30.0
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [json.loads(line) for line in lines]
        assert time.monotonic() < deadline, lines
        time.sleep(0.01)


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_a_tunnel_leaves_a_record_of_who_dialled_what_by_which_agent_and_how_it_ended(
    stage: Stage, tmp_path: Path, mode: str, tcp: bool
) -> None:
    path = tmp_path / "audit.jsonl"
    server, _ = stage.start_pair(mode, tcp=tcp, audit=AuditSettings(path))
    address = stage.endpoint().serve(answer_once).address
    tunnel = server.frontend.open(address)
    assert_echoes(tunnel, b"sixteen bytes...")
    assert tunnel.receive(1) == b""
    tunnel.close()
    (record,) = records(path, 1)
    client = "CN=proxy-client" if tcp else f"uid={os.getuid()} pid={os.getpid()}"
    assert (record["event"], record["client"], record["endpoint"]) == ("tunnel", client, address)
    assert (record["server"], record["agent"], record["up"], record["down"]) == ("server-0", "agent-0", 16, 16)
    # The last end counts; the test's TLS client says no goodbye.
    end = "endpoint closed" if mode == "grpc" else "client failed: TLS" if tcp else "client closed"
    assert record["end"].startswith(end)
    assert record["code"] == ""
    assert record["asked"] <= record["time"]
    assert 0 <= record["seconds"] < 60
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_refused_dial_leaves_a_record_with_its_reason(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server, _ = stage.start_pair(audit=AuditSettings(path))
    with pytest.raises(DialRefused):
        server.frontend.open(refused_address())
    (record,) = records(path, 1)
    assert (record["event"], record["code"], record["up"]) == ("refused", "UMB401", 0)
    assert record["end"].endswith("connection refused")


def test_without_the_option_there_is_no_audit(stage: Stage) -> None:
    server, _ = stage.start_pair()
    assert server.server.core.audit is None
    assert b"umbilical_audit_records_lost_total" not in stage.call(server.server.render_metrics)


def test_a_full_file_is_renamed_and_five_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = RotatedFile(path, 30, LostLines())
    for number in range(20):
        file.write(f"record {number:02}\n".encode())
    file.close()
    assert path.read_text() == "record 18\nrecord 19\n"
    assert (tmp_path / "audit.jsonl.1").read_text() == "record 15\nrecord 16\nrecord 17\n"
    assert sorted(os.listdir(tmp_path)) == ["audit.jsonl", *(f"audit.jsonl.{number}" for number in range(1, KEPT + 1))]


def test_a_record_larger_than_the_maximum_is_written_whole(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "audit.jsonl", 10, LostLines())
    file.write(b"x" * 100 + b"\n")
    file.close()
    assert (tmp_path / "audit.jsonl").stat().st_size == 101


def test_a_file_that_logrotate_moved_away_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = RotatedFile(path, 1000, LostLines())
    file.write(b"first\n")
    path.rename(tmp_path / "moved")
    file.write(b"second\n")
    file.close()
    assert (path.read_text(), (tmp_path / "moved").read_text()) == ("second\n", "first\n")


def test_a_pipe_is_written_and_never_rotated(tmp_path: Path) -> None:
    """As /dev/stdout in a container."""
    reading, writing = os.pipe()
    file = RotatedFile(Path(f"/proc/self/fd/{writing}"), 1, LostLines())
    file.write(b"first\n")
    file.write(b"second\n")
    file.close()
    os.close(writing)
    assert os.read(reading, 100) == b"first\nsecond\n"
    os.close(reading)


def test_records_that_the_disk_does_not_take_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    lost = LostLines()
    file = RotatedFile(Path("/dev/full"), 1000, lost)
    with caplog.at_level(logging.WARNING):
        file.write(b"one\ntwo\n")
        file.write(b"three\n")
    file.close()
    assert lost.total == 3
    (line,) = caplog.messages
    assert line == "UMB432 audit records are lost file=/dev/full lost=2: No space left on device"


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError) as caught:
        Audit(AuditSettings(tmp_path / "missing" / "audit.jsonl"), "s1")
    assert caught.value.code == "UMB027"


def test_workers_have_files_of_their_own_but_share_a_pipe(stage: Stage, tmp_path: Path) -> None:
    settings = stage.start_server(audit=AuditSettings(tmp_path / "audit.jsonl"), workers=2).settings
    assert worker_settings(settings, 1).audit.path == tmp_path / "audit-1.jsonl"
    shared = type(settings)(**(vars(settings) | {"audit": AuditSettings(Path("/dev/null"))}))
    assert worker_settings(shared, 1).audit.path == Path("/dev/null")


def test_moments_are_shown_in_utc_with_milliseconds() -> None:
    assert shown_exactly(1_795_161_600.0625) == "2026-11-20T08:00:00.062Z"
