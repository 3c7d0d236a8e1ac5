"""What the terminal can show."""

import io
import sys

import pytest

from umbilical.cli.terminal import has_colour, has_unicode


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
