"""Options that our own commands share, and files that they name."""

from pathlib import Path

import pytest

from umbilical.cli.options import check_readable, keepalive, missing_option, tls_files
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import Keepalive, TlsFiles


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


def test_keepalive_has_an_interval_and_an_answer_time() -> None:
    assert keepalive({"keepalive": 31.0, "keepalive_answer": 10.0}) == Keepalive(31.0, 10.0)


def test_a_missing_option_points_at_the_help() -> None:
    assert missing_option("server run", "--ca", "why").next == "umbilical server run --help"
