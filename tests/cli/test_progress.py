"""The line about what is waited for, on a terminal and in a log."""

import io

from umbilical.cli.progress import HEARTBEAT_SECONDS, ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_is_rewritten_and_cleared() -> None:
    stream = Terminal()
    with ProgressLine(stream, columns=20) as line:
        line.show("waiting for a")
        line.show("waiting for something long")
    assert stream.getvalue() == "\r\x1b[Kwaiting for a\r\x1b[Kwaiting for somethi\r\x1b[K"


def test_a_terminal_that_was_shown_nothing_is_left_alone() -> None:
    stream = Terminal()
    with ProgressLine(stream):
        pass
    assert stream.getvalue() == ""


def test_a_log_gets_a_line_per_change_and_a_heartbeat() -> None:
    now = [0.0]
    stream = io.StringIO()
    with ProgressLine(stream, clock=lambda: now[0]) as line:
        for seconds, text in ((0, "a"), (1, "a"), (2, "b"), (3, "b"), (2 + HEARTBEAT_SECONDS, "b")):
            now[0] = seconds
            line.show(text)
    assert stream.getvalue() == "a\nb\nb\n"
