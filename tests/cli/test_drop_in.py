"""What both drop-in programs do around their flags: help, options at start, failures."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from umbilical.cli import drop_in
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import BOOL, STRING, Flag, FlagSet
from umbilical.tunnel.errors import StartupError


def program(start: "Sequence[BaseException]" = (), refused: str = "") -> drop_in.DropIn:
    def check(flags: FlagSet) -> None:
        if refused:
            raise OptionRefused(refused)

    def run(flags: FlagSet) -> int:
        for fault in start:
            raise fault
        return 7

    table = (Flag("name", STRING, "x", "who"), Flag("old", BOOL, True, "gone", deprecated="leave it"))
    return drop_in.DropIn("proxy-thing", "thing", "A thing.", "failed with ", lambda: table, check, run)


def test_the_exit_status_is_that_of_the_engine(capfd: pytest.CaptureFixture[str]) -> None:
    assert drop_in.run(program(), []) == 7
    assert re.search(r'^I.* drop_in\.py:\d+\] --name set to "x"$', capfd.readouterr().err, re.M)


def test_at_verbosity_zero_options_are_not_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert drop_in.run(program(), ["--v=0"]) == 7
    assert capfd.readouterr().err == ""


def test_help_goes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert drop_in.run(program(), ["--help"]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("A thing.\n\nUsage:\n  thing [flags]\n\nFlags:\n")
    assert "--name string" in captured.out
    assert captured.err == ""


def test_a_deprecated_flag_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert drop_in.run(program(), ["--old", "--v=0"]) == 7
    assert capfd.readouterr().err == "Flag --old has been deprecated, leave it\n"


@pytest.mark.parametrize(
    ("thing", "arguments", "text"),
    [
        (program(), ["--nope"], "unknown flag: --nope"),
        (program(refused="name is taken"), [], "failed with name is taken"),
        (program([OptionRefused("no such label")]), [], "no such label"),
        (
            program([StartupError("UMB202", "failed to listen", "port taken", "free it")]),
            [],
            "failed to listen: port taken",
        ),
    ],
)
def test_a_failure_is_an_error_line_the_usage_and_a_log_line(
    thing: drop_in.DropIn, arguments: list[str], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert drop_in.run(thing, arguments) == 1
    lines = capfd.readouterr().err.splitlines()
    start = lines.index(f"Error: {text}")
    assert lines[start + 1 : start + 3] == ["Usage:", "  thing [flags]"]
    assert lines[-2] == ""
    assert re.fullmatch(rf"E\d{{4}} .* drop_in\.py:\d+\] error: {re.escape(text)}", lines[-1])


def test_a_log_file_that_cannot_be_opened_is_a_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert drop_in.run(program(), ["--logtostderr=false", f"--log-file={tmp_path}/no/log"]) == 1
    assert "No such file or directory" in capfd.readouterr().err


def test_an_interrupt_before_the_engine_runs_is_a_failure() -> None:
    assert drop_in.run(program([KeyboardInterrupt()]), ["--v=0"]) == 1
