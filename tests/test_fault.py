"""The form of every error."""

from umbilical.fault import Fault


def test_the_message_is_three_lines_with_the_code_first_and_brief_one_line() -> None:
    fault = Fault("UMB001", "what", "reason", "command")

    assert str(fault) == "UMB001 what\n  why: reason\n  next: command"
    assert Fault("UMB001", "what", "reason", "command").brief == "UMB001 what: reason"
