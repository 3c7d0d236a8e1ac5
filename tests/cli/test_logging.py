"""Logging: the flags of klog, and the loggers of a process."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fixture_types import Captured

from umbilical.cli import log_setup
from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.pflag import FlagError, FlagSet
from umbilical.cli.log_setup import JsonForm, KlogForm, LineForm, LogRoute, TextForm
from umbilical.tunnel.log_queue import DescriptorSink, FileSink

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
    log_setup.flush()


def words(text: str) -> list[str]:
    return [line.rpartition(" ")[2] for line in text.splitlines()]


def test_detail_comes_from_five_on(capfd: Captured) -> None:
    for arguments in ((), ("--v=0",), ("--v=-1",), ("-v4",), ("--log-file=unused",)):
        install(*arguments)
        say_everything()
        assert words(capfd.readouterr().err) == ["tunnel", "warned", "failed"]
    install("-v", "5")
    say_everything()
    assert words(capfd.readouterr().err) == ["detail", "tunnel", "warned", "failed"]


def test_a_log_file_takes_everything_and_standard_error_only_errors(tmp_path: Path, capfd: Captured) -> None:
    install("--logtostderr=false", f"--log-file={tmp_path}/log", "--log-file-max-size=0")
    say_everything()
    assert words((tmp_path / "log").read_text()) == ["tunnel", "warned", "failed"]
    assert words(capfd.readouterr().err) == ["failed"]


def test_standard_error_can_have_a_copy(tmp_path: Path, capfd: Captured) -> None:
    install("--logtostderr=false", f"--log-dir={tmp_path}", "--alsologtostderr", "--alsologtostderrthreshold=WARNING")
    say_everything()
    assert words((tmp_path / "proxy-server.log").read_text()) == ["tunnel", "warned", "failed"]
    assert words(capfd.readouterr().err) == ["warned", "failed"]


def test_the_threshold_of_standard_error(capfd: Captured, tmp_path: Path) -> None:
    install("--legacy-stderr-threshold-behavior=false", "--stderrthreshold=warning")
    say_everything()
    assert words(capfd.readouterr().err) == ["warned", "failed"]
    install("--logtostderr=false", f"--log-file={tmp_path}/log", "--stderrthreshold=9")
    say_everything()
    assert capfd.readouterr().err == ""
    install("--logtostderr=false")
    say_everything()
    assert words(capfd.readouterr().err) == ["tunnel", "warned", "failed"]
    install("--skip-headers")
    LOGGER.info("only this")
    log_setup.flush()
    assert capfd.readouterr().err == "only this\n"


def test_flags_without_effect_are_accepted() -> None:
    for argument in ("--vmodule=", "--vmodule=server*=5,agent=0,", "--log-backtrace-at=", "--log-backtrace-at=a.go:12"):
        install(argument, "--one-output")


def test_a_wrong_value_is_refused_with_the_text_of_klog() -> None:
    no_list = "syntax error: expect comma-separated list of filename=N"
    for name, value, fault in (
        ("logtostderr", "x", "parse error"),
        ("log-file-max-size", "x", "parse error"),
        ("log-file-max-size", "99999999999999999999", "value out of range"),
        ("v", "x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("v", "0x1", 'strconv.ParseInt: parsing "0x1": invalid syntax'),
        ("v", "2147483648", 'strconv.ParseInt: parsing "2147483648": value out of range'),
        ("stderrthreshold", "foo", 'strconv.ParseInt: parsing "foo": invalid syntax'),
        ("vmodule", "x", no_list),
        ("vmodule", "x=y", no_list),
        ("vmodule", "x=-1", "negative value for vmodule level"),
        ("log-backtrace-at", "x", "syntax error: expect file.go:234"),
        ("log-backtrace-at", "a.go:x", "syntax error: expect file.go:234"),
        ("log-backtrace-at", "a.go:0", "negative or zero value for level"),
    ):
        flag = "-v, --v" if name == "v" else f"--{name}"
        with pytest.raises(FlagError) as refusal:
            install(f"--{name}={value}")
        assert str(refusal.value) == f'invalid argument "{value}" for "{flag}" flag: {fault}'


KLOG = re.compile(r"^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +(\d+) ([^ ]+):(\d+)\] (.*)$")


class Kept:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.lines.append(line[:-1].decode())

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def kept(form: LineForm) -> list[str]:
    sink = Kept()
    log_setup.install(form, [LogRoute(sink)], debug=False)
    return sink.lines


def tunnel_logger() -> logging.Logger:
    return logging.getLogger(log_setup.TUNNEL_LOGGER)


def test_a_klog_line_has_severity_time_process_and_place() -> None:
    for level, letter in ((logging.INFO, "I"), (logging.WARNING, "W"), (logging.ERROR, "E"), (logging.CRITICAL, "F")):
        lines = kept(KlogForm())
        logging.getLogger("umbilical.x").log(level, "agent=%s", "a1")
        match = KLOG.match(lines[0])
        assert match is not None
        assert match.group(1, 2, 3, 5) == (letter, str(os.getpid()), "test_logging.py", "agent=a1")


def test_klog_headers_can_be_left_out_or_carry_the_directory() -> None:
    lines = kept(KlogForm(headers=False))
    logging.getLogger("umbilical.x").info("bare")
    tunnel_logger().info("bare too")
    assert lines == ["bare", "bare too"]
    lines = kept(KlogForm(directory=True))
    logging.getLogger("umbilical.x").info("placed")
    assert " cli/test_logging.py:" in lines[0]


def test_the_next_step_is_reported_by_our_own_commands_and_left_out_by_the_drop_in_names() -> None:
    fault = {"fields": {"code": "UMB311", "next": "start the server"}}
    for form, told in ((KlogForm(), False), (TextForm(), True), (log_setup.NATIVE_FORMS["klog"](), True)):
        lines = kept(form)
        logging.getLogger("umbilical.x").warning("UMB311 refused", extra=fault)
        assert "UMB311 refused" in lines[0]
        assert lines[0].endswith("; next: start the server") == told
    lines = kept(JsonForm())
    logging.getLogger("umbilical.x").warning("UMB311 refused", extra=fault)
    line = json.loads(lines[0])
    assert (line["message"], line["code"], line["next"]) == ("UMB311 refused", "UMB311", "start the server")


def test_a_tunnel_line_needs_no_record_and_looks_the_same() -> None:
    sink = Kept()
    logger = log_setup.TunnelLogger(log_setup.TUNNEL_LOGGER, logging.INFO)
    logger.handler = log_setup.LineHandler(KlogForm(), [LogRoute(sink)])
    logger.info("dial=%d 100%%", 7)
    logger.info("100% plain")
    quiet = log_setup.TunnelLogger(log_setup.TUNNEL_LOGGER, logging.WARNING)
    quiet.handler = logger.handler
    quiet.info("not written")
    found = [match.group(1, 3, 5) for line in sink.lines if (match := KLOG.match(line))]
    assert found == [("I", "tunnels", "dial=7 100%"), ("I", "tunnels", "100% plain")]


@pytest.mark.parametrize("loaded", ["", "import umbilical.tunnel.endpoint; ", "import umbilical.cli.proxy.serve; "])
def test_tunnel_lines_have_their_fast_path_whatever_was_loaded_before_the_setup(loaded: str) -> None:
    script = (
        f"{loaded}from umbilical.cli import log_setup; log_setup.install_native('text', debug=False); "
        "import umbilical.tunnel.endpoint as engine; print(type(engine.tunnels).__name__)"
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert completed.stdout == "TunnelLogger\n"


def test_without_setup_a_tunnel_line_reaches_any_handler(caplog: pytest.LogCaptureFixture) -> None:
    log_setup.uninstall(log_setup.install(KlogForm(), [], debug=False))
    with caplog.at_level(logging.INFO):
        tunnel_logger().info("dial=7")
    assert "dial=7" in caplog.text


def test_a_text_line_has_time_level_and_logger() -> None:
    lines = kept(TextForm())
    logging.getLogger("umbilical.tunnel.server").warning("slow")
    tunnel_logger().info("dial=7")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING server: slow", lines[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO  tunnels: dial=7", lines[1])


def test_a_json_line_is_one_object_with_the_fields_of_the_record() -> None:
    lines = kept(JsonForm())
    logging.getLogger("umbilical.x").info("said\n%s", "twice", extra={"fields": {"agent": "a1", "message": "hidden"}})
    tunnel_logger().info("dial=7")
    tunnel_logger().info("closed", extra={"fields": {"bytes": 5}})
    first, second, third = (json.loads(line) for line in lines)
    assert third["bytes"] == 5
    assert first["message"] == "said\ntwice"
    assert (first["level"], first["logger"], first["agent"]) == ("info", "umbilical.x", "a1")
    assert (second["message"], second["logger"]) == ("dial=7", "umbilical.tunnels")


def test_an_exception_is_shown_with_its_traceback() -> None:
    for form in (KlogForm(), TextForm(), JsonForm()):
        lines = kept(form)
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            logging.getLogger("umbilical.x").exception("failed")
        assert "Traceback" in lines[0]
        assert "RuntimeError: broken" in lines[0]


FORMS: dict[str, LineForm] = {
    "klog": KlogForm(),
    "bare": KlogForm(headers=False),
    "text": TextForm(),
    "json": JsonForm(),
}
HOSTILE = (
    "a\nE1118 06:00:00.000000 1 server.py:1] forged\r\t\x00\x1b[2J\x7f\x85\x9b\u2028\u2029\u202e\u2066\ufeff\\n\udcff"
)


def raw_controls(line: str) -> list[str]:
    return [character for character in line if not character.isprintable()]


def unescaped(text: str) -> str:
    """Invert the escapes of a log line."""
    names = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
    code = re.compile(r"\\(?:x(..)|u(....)|U(........)|(.))")
    return code.sub(lambda match: names[match[4]] if match[4] else chr(int(match[match.lastindex or 0], 16)), text)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_text_of_a_peer_cannot_end_a_line_or_move_the_cursor_in_any_format(form: LineForm) -> None:
    lines = kept(form)
    LOGGER.warning("agent=%s", HOSTILE, extra={"fields": {"next": HOSTILE, "peer": HOSTILE}})
    tunnel_logger().info("agent=%s", HOSTILE)
    assert len(lines) == 2
    assert [raw_controls(line) for line in lines] == [[], []]


@given(text=st.text(st.characters(), max_size=60), form=st.sampled_from(sorted(FORMS)))
def test_one_record_is_one_line_that_shows_which_text_was_logged(text: str, form: str) -> None:
    record = logging.LogRecord("umbilical.x", logging.INFO, "x.py", 1, "agent=%s.", (text,), None)
    for line in (FORMS[form].record_line(record), FORMS[form].tunnel_line(0.0, f"agent={text}.")):
        assert raw_controls(line) == []
        found = json.loads(line)["message"] if form == "json" else unescaped(line)
        assert found.partition("agent=")[2] == f"{text}."


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_lines_of_a_trace_are_indented_so_that_the_text_of_an_exception_forges_no_record(form: LineForm) -> None:
    lines = kept(form)
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        LOGGER.exception("failed")
    first, *rest = lines[0].split("\n")
    assert raw_controls("".join([first, *rest])) == []
    assert [line for line in rest if not line.startswith("    ")] == []
    assert bool(rest) == (not isinstance(form, JsonForm))


def test_errors_of_asyncio_are_lines_of_the_log() -> None:
    lines = kept(TextForm())
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    assert lines[0].endswith("ERROR asyncio: Task exception was never retrieved")


def test_a_message_that_is_not_text_in_utf8_is_written_escaped(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "log", max_bytes=0)
    log_setup.install(KlogForm(headers=False), [LogRoute(sink)], debug=False)
    logging.getLogger("umbilical.x").info("odd \udcff")
    assert (tmp_path / "log").read_text() == "odd \\udcff\n"


def test_a_log_file_grows_over_restarts_and_is_truncated_at_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in (b"first\n", b"second\n"):
        sink = FileSink(path, max_bytes=15)
        sink.write(text)
        sink.close()
    assert path.read_bytes() == b"first\nsecond\n"
    sink = FileSink(path, max_bytes=15)
    sink.write(b"third\n")
    sink.close()
    assert path.read_bytes() == b"third\n"
    assert path.stat().st_mode & 0o007 == 0


def test_a_line_is_written_whole_or_dropped_silently() -> None:
    reader, writer = os.pipe()
    try:
        DescriptorSink(writer).write(b"x" * 1000 + b"\n")
        assert os.read(reader, 2000) == b"x" * 1000 + b"\n"
    finally:
        os.close(reader)
        os.close(writer)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        DescriptorSink(writer).write(b"nobody reads\n")
    finally:
        os.close(writer)


def test_a_message_that_does_not_fit_its_arguments_raises_nothing(capsys: Captured) -> None:
    lines = kept(KlogForm())
    logging.getLogger("umbilical.x").info("%d", "no number")
    assert lines == []
    assert "Logging error" in capsys.readouterr().err


def test_native_commands_log_to_standard_error(capfd: Captured) -> None:
    for form in ("text", "json", "klog"):
        log_setup.install_native(form, debug=False)
        logging.getLogger("umbilical.x").info("hello")
        log_setup.flush()
        captured = capfd.readouterr()
        assert "hello" in captured.err
        assert captured.out == ""
