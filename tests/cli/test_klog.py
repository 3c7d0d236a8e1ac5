"""klog's flags: upstream's spellings and defaults, and where lines then go."""

import logging
from pathlib import Path

import pytest

from umbilical.cli import klog, log_setup
from umbilical.cli.pflag import FlagError, FlagSet

LOGGER = logging.getLogger("umbilical.x")


def install(*arguments: str) -> None:
    flags = FlagSet("proxy", klog.FLAGS)
    flags.parse(arguments)
    klog.install_klog(flags, "proxy-server")


def say_everything() -> None:
    LOGGER.debug("detail")
    logging.getLogger(log_setup.TUNNEL_LOGGER).info("tunnel")
    LOGGER.warning("warned")
    LOGGER.error("failed")


def words(text: str) -> list[str]:
    return [line.rpartition(" ")[2] for line in text.splitlines()]


@pytest.mark.parametrize("arguments", [(), ("--v=0",), ("--v=-1",), ("-v4",), ("--log-file=unused",)])
def test_below_five_there_is_one_line_per_tunnel_on_standard_error(
    arguments: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    install(*arguments)
    say_everything()
    assert words(capfd.readouterr().err) == ["tunnel", "warned", "failed"]


def test_from_five_on_there_is_detail(capfd: pytest.CaptureFixture[str]) -> None:
    install("-v", "5")
    say_everything()
    assert words(capfd.readouterr().err) == ["detail", "tunnel", "warned", "failed"]


def test_a_log_file_takes_everything_and_standard_error_only_errors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    install("--logtostderr=false", f"--log-file={tmp_path}/log", "--log-file-max-size=0")
    say_everything()
    assert words((tmp_path / "log").read_text()) == ["tunnel", "warned", "failed"]
    assert words(capfd.readouterr().err) == ["failed"]


def test_standard_error_can_have_a_copy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install("--logtostderr=false", f"--log-dir={tmp_path}", "--alsologtostderr", "--alsologtostderrthreshold=WARNING")
    say_everything()
    assert words((tmp_path / "proxy-server.log").read_text()) == ["tunnel", "warned", "failed"]
    assert words(capfd.readouterr().err) == ["warned", "failed"]


def test_the_threshold_counts_without_the_legacy_behaviour(capfd: pytest.CaptureFixture[str]) -> None:
    install("--legacy-stderr-threshold-behavior=false", "--stderrthreshold=warning")
    say_everything()
    assert words(capfd.readouterr().err) == ["warned", "failed"]


def test_a_threshold_past_fatal_lets_nothing_through(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    install("--logtostderr=false", f"--log-file={tmp_path}/log", "--stderrthreshold=9")
    say_everything()
    assert capfd.readouterr().err == ""


def test_without_any_file_named_lines_still_go_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    install("--logtostderr=false")
    say_everything()
    assert words(capfd.readouterr().err) == ["tunnel", "warned", "failed"]


def test_headers_can_be_skipped(capfd: pytest.CaptureFixture[str]) -> None:
    install("--skip-headers")
    LOGGER.info("only this")
    assert capfd.readouterr().err == "only this\n"


@pytest.mark.parametrize(
    "argument",
    ["--vmodule=", "--vmodule=server*=5,agent=0,", "--log-backtrace-at=", "--log-backtrace-at=a.go:12", "--one-output"],
)
def test_flags_without_effect_are_accepted(argument: str) -> None:
    install(argument)


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("--logtostderr=x", '"x" for "--logtostderr" flag: parse error'),
        ("--log-file-max-size=x", '"x" for "--log-file-max-size" flag: parse error'),
        (
            "--log-file-max-size=99999999999999999999",
            '"99999999999999999999" for "--log-file-max-size" flag: value out of range',
        ),
        ("--v=x", '"x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid syntax'),
        ("--v=0x1", '"0x1" for "-v, --v" flag: strconv.ParseInt: parsing "0x1": invalid syntax'),
        (
            "--v=2147483648",
            '"2147483648" for "-v, --v" flag: strconv.ParseInt: parsing "2147483648": value out of range',
        ),
        (
            "--stderrthreshold=foo",
            '"foo" for "--stderrthreshold" flag: strconv.ParseInt: parsing "foo": invalid syntax',
        ),
        ("--vmodule=x", '"x" for "--vmodule" flag: syntax error: expect comma-separated list of filename=N'),
        ("--vmodule=x=y", '"x=y" for "--vmodule" flag: syntax error: expect comma-separated list of filename=N'),
        ("--vmodule=x=-1", '"x=-1" for "--vmodule" flag: negative value for vmodule level'),
        ("--log-backtrace-at=x", '"x" for "--log-backtrace-at" flag: syntax error: expect file.go:234'),
        ("--log-backtrace-at=a.go:x", '"a.go:x" for "--log-backtrace-at" flag: syntax error: expect file.go:234'),
        ("--log-backtrace-at=a.go:0", '"a.go:0" for "--log-backtrace-at" flag: negative or zero value for level'),
    ],
)
def test_a_wrong_value_is_refused_in_the_words_of_klog(argument: str, fault: str) -> None:
    with pytest.raises(FlagError) as refusal:
        install(argument)
    assert str(refusal.value) == f"invalid argument {fault}"
