import os
from pathlib import Path

import click
import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.install_directories import Directory

from umbilical.bootstrap.errors import BootstrapError
from umbilical.cli.bootstrap_file import BootstrapFile, kibibytes, read_source, target_of, write_result
from umbilical.fault import Fault


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config())
    path.chmod(0o640)
    return path


def test_a_file_is_read_with_its_mode(config: Path) -> None:
    source = read_source(config, None)
    assert source == BootstrapFile(config, config.read_bytes(), 0o640)
    assert source.platform() is None


def test_a_directory_gives_its_file_and_platform(config: Path) -> None:
    Directory(config.parent).metadata(aws=None, gcp={})
    source = read_source(None, config.parent)
    assert source.path == config
    assert source.platform() == "gcp"


def test_a_directory_whose_platform_is_not_told_gives_none(config: Path) -> None:
    assert read_source(None, config.parent).platform() is None


def test_neither_and_both_are_wrong_usage(config: Path) -> None:
    with pytest.raises(click.UsageError):
        read_source(None, None)
    with pytest.raises(click.UsageError):
        read_source(config, config.parent)


def test_what_is_missing_is_told_as_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="UMB002 cannot read"):
        read_source(tmp_path / "none.ign", None)
    with pytest.raises(BootstrapError, match="UMB170"):
        read_source(None, tmp_path)


def test_a_fault_of_the_format_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.ign"
    path.write_text("{}")
    with pytest.raises(Fault, match=r"broken\.ign"):
        read_source(path, None).document()


def test_a_result_goes_where_the_user_said(config: Path, tmp_path: Path) -> None:
    by_file, by_directory = read_source(config, None), read_source(None, tmp_path)
    out = tmp_path / "out.ign"
    assert target_of(by_file, out, False) == out
    assert target_of(by_file, None, True) == config
    assert target_of(by_directory, None, False) == config
    assert target_of(by_directory, out, False) == out


def test_a_result_never_goes_where_the_user_did_not_say(config: Path) -> None:
    source = read_source(config, None)
    with pytest.raises(click.UsageError, match="say where"):
        target_of(source, None, False)
    with pytest.raises(click.UsageError, match="exclude each other"):
        target_of(source, config.parent / "out", True)
    with pytest.raises(click.UsageError, match="use --in-place"):
        target_of(source, config.parent / "." / config.name, False)


@pytest.mark.root
def test_a_replaced_file_keeps_its_owner(config: Path) -> None:
    os.chown(config, 12345, 12346)
    write_result(read_source(config, None), config, b"new")
    assert (config.stat().st_uid, config.stat().st_gid) == (12345, 12346)
    assert config.read_bytes() == b"new"
    assert config.stat().st_mode & 0o777 == 0o640


def test_a_directory_that_cannot_be_written_to_is_told_as_a_fault(config: Path, tmp_path: Path) -> None:
    with pytest.raises(Fault, match="UMB002 cannot write"):
        write_result(read_source(config, None), tmp_path / "missing" / "out.ign", b"new")


def test_sizes_are_rounded() -> None:
    assert [kibibytes(count) for count in (0, 511, 512, 1536, 5 * 1024 * 1024)] == [
        "0 KiB",
        "0 KiB",
        "1 KiB",
        "2 KiB",
        "5120 KiB",
    ]
