"""Options that several commands share, their types and checks."""

import io
import sys
import uuid
from pathlib import Path

import click
import pytest

from umbilical.cli.drop_ins.drop_in import check_file, random_id, stat_fault
from umbilical.cli.options import (
    SocketPath,
    address,
    check_readable,
    duration,
    listen_place,
    server_address,
    size,
    tls_files,
)
from umbilical.cli.terminal import HEARTBEAT_SECONDS, ProgressLine, has_colour, has_unicode
from umbilical.cli.tree_files import write_tree
from umbilical.fault import HostError, StartupError
from umbilical.manifests.tree import AssetTree
from umbilical.tunnel.settings import ListenAddress, TlsFiles


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    check_readable(None)
    with pytest.raises(StartupError) as fault:
        check_readable(tmp_path / "missing")
    assert (fault.value.code, fault.value.why) == ("UMB002", "No such file or directory")


def test_a_certificate_and_its_key_come_together(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    assert tls_files("", file, file, None) == TlsFiles(file, file, None)
    with pytest.raises(StartupError) as fault:
        tls_files("agent-", file, None, None)
    assert (fault.value.code, fault.value.what) == ("UMB003", "--agent-cert without --agent-key")
    with pytest.raises(StartupError, match=r"^--key without --cert"):
        tls_files("", None, file, None)


def test_a_file_that_is_not_named_or_is_there_passes(tmp_path: Path) -> None:
    check_file("server key", "")
    check_file("server key", str(tmp_path))
    (tmp_path / "file").touch()
    assert stat_fault(f"{tmp_path}/file/below") is None


def test_an_id_is_a_random_uuid() -> None:
    first, second = uuid.UUID(random_id()), uuid.UUID(random_id())
    assert (first.version, first.variant) == (4, uuid.RFC_4122)
    assert first != second


def test_durations_become_seconds_or_are_refused() -> None:
    for text, seconds in (("10s", 10.0), ("500ms", 0.5), ("1h30m", 5400.0), ("0", 0.0)):
        assert duration(text) == seconds
    for text in ("", "10", "soon", "-1s"):
        with pytest.raises(click.BadParameter):
            duration(text)


def test_sizes_become_bytes_or_are_refused() -> None:
    for text, count in (("auto", 0), ("1000", 1000), ("64Ki", 65536), ("512Mi", 512 << 20), ("2Gi", 2 << 30)):
        assert size(text) == count
    for text in ("", "0", "Mi", "1.5Gi", "-1", "10M", "1iM", "1Mi1", "9" * 16):
        with pytest.raises(click.BadParameter):
            size(text)


def test_an_address_is_a_host_and_a_port() -> None:
    for text, place in (
        ("127.0.0.1:80", ListenAddress("127.0.0.1", 80)),
        (":8091", ListenAddress("", 8091)),
        ("[::1]:0", ListenAddress("::1", 0)),
        ("host.example:65535", ListenAddress("host.example", 65535)),
    ):
        assert address(text) == place
        assert listen_place(text) == place


def test_what_is_not_an_address_is_refused() -> None:
    for text in ("", "host", "host:", "host:x", "::1:80", "host:65536", "host:99999999", "host:-1"):
        with pytest.raises(click.BadParameter):
            address(text)
    for text in (":8091", "host:0"):
        with pytest.raises(click.BadParameter):
            server_address(text)


def test_a_unix_socket_is_a_place_to_listen() -> None:
    assert listen_place("unix:/run/k.sock") == SocketPath(Path("/run/k.sock"))
    with pytest.raises(click.BadParameter):
        listen_place("unix:")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_is_rewritten_and_cleared_if_anything_was_shown() -> None:
    stream = Terminal()
    with ProgressLine(stream):
        pass
    assert stream.getvalue() == ""
    stream = Terminal()
    with ProgressLine(stream, columns=20) as line:
        line.show("waiting for a")
        line.show("waiting for something long")
    assert stream.getvalue() == "\r\x1b[Kwaiting for a\r\x1b[Kwaiting for somethi\r\x1b[K"


def test_a_log_gets_a_line_per_change_and_a_heartbeat() -> None:
    now = [0.0]
    stream = io.StringIO()
    with ProgressLine(stream, clock=lambda: now[0]) as line:
        for seconds, text in ((0, "a"), (1, "a"), (2, "b"), (3, "b"), (2 + HEARTBEAT_SECONDS, "b")):
            now[0] = seconds
            line.show(text)
    assert stream.getvalue() == "a\nb\nb\n"


class _Screen(io.StringIO):
    def __init__(self, encoding: str, *, is_terminal: bool) -> None:
        super().__init__()
        self._encoding = encoding
        self._is_terminal = is_terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "environment", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True),
    ],
)
def test_colour_follows_the_owners_wish_and_then_the_output(
    is_terminal: bool, environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", _Screen("utf-8", is_terminal=is_terminal))

    assert has_colour() is expected


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", True), ("UTF8", True), ("ascii", False), ("", False)])
def test_glyphs_need_utf_8(encoding: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Screen(encoding, is_terminal=True))

    assert has_unicode() is expected


def tree(**files: bytes) -> AssetTree:
    made = AssetTree()
    for name, content in files.items():
        made.add(f"/etc/{name}/file", content, 0o555 if name == "script" else 0o600)
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("exists", [False, True])
def test_files_are_below_the_directory_with_their_modes(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "deep" / "out"
    if exists:
        folder.mkdir(parents=True)
    write_tree(tree(key=b"secret", script=b"#!"), folder, overwrite=False)
    assert content(folder) == {"etc/key/file": b"secret", "etc/script/file": b"#!"}
    assert (folder / "etc/key/file").stat().st_mode & 0o777 == 0o600
    assert (folder / "etc/script/file").stat().st_mode & 0o777 == 0o555
    assert [path.name for path in folder.parent.iterdir()] == ["out"]
    assert [path.name for path in folder.iterdir()] == ["etc"]


def test_one_file_that_exists_keeps_all_others_away_unless_it_may_be_replaced(tmp_path: Path) -> None:
    write_tree(tree(b=b"old"), tmp_path, overwrite=False)
    with pytest.raises(HostError, match=r"(?s)UMB801.*why: .*/etc/b/file"):
        write_tree(tree(a=b"new", b=b"new"), tmp_path, overwrite=False)
    assert content(tmp_path) == {"etc/b/file": b"old"}
    write_tree(tree(a=b"new", b=b"new"), tmp_path, overwrite=True)
    assert content(tmp_path) == {"etc/a/file": b"new", "etc/b/file": b"new"}


def test_a_failure_half_way_reverts_everything(tmp_path: Path) -> None:
    write_tree(tree(a=b"old", z=b"old"), tmp_path, overwrite=False)
    (tmp_path / "etc" / "m").write_bytes(b"a file where a directory is needed")
    before = content(tmp_path)
    with pytest.raises(HostError, match="UMB118"):
        write_tree(tree(a=b"new", b=b"new", m=b"new", z=b"new"), tmp_path, overwrite=True)
    assert content(tmp_path) == before


def test_a_file_in_the_directorys_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(HostError, match="UMB801"):
        write_tree(tree(a=b"new"), tmp_path / "out", overwrite=True)
