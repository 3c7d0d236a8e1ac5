"""Unit files as rules read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.hardway.lint.unit_text import commands, environment_files
from umbilical.ignition.config import Unit


def unit(contents: str, **dropins: str) -> Unit:
    return Unit("a.service", contents, True, {f"{name}.conf": text for name, text in dropins.items()})


def test_a_command_over_several_lines_is_one_with_its_flags() -> None:
    (command,) = commands(unit("[Service]\nExecStart=/usr/bin/kubelet \\\n  --config=/a/b \\\n  --v=2\n"))
    assert command.program == "/usr/bin/kubelet"
    assert command.flags == {"config": "/a/b", "v": "2"}


@pytest.mark.parametrize("mark", ["-", "@", "+", "!!", ":", "-+"])
def test_marks_before_the_program_are_no_part_of_it(mark: str) -> None:
    assert commands(unit(f"ExecStartPre={mark}/bin/mkdir /a"))[0].program == "/bin/mkdir"


def test_every_exec_line_counts_those_of_drop_ins_too() -> None:
    found = commands(
        unit("ExecStartPre=/a\nExecStart=/b\nExecStartPost=/c", more="[Service]\nExecStart=\nExecStart=/d")
    )
    assert [command.program for command in found] == ["/a", "/b", "/c", "/d"]


def test_comments_and_headers_are_nothing() -> None:
    assert commands(unit("[Exec=x]\n# ExecStart=/a\n;ExecStart=/b\n")) == []


def test_quotes_that_no_shell_would_take_are_words_all_the_same() -> None:
    assert commands(unit("ExecStart=/bin/echo it's"))[0].words == ("/bin/echo", "it's")


def test_files_that_may_be_missing_are_not_wanted() -> None:
    assert list(environment_files(unit("EnvironmentFile=/a\nEnvironmentFile=-/b\n"))) == ["/a"]


@given(st.text(), st.text())
def test_no_text_is_too_strange(contents: str, dropin: str) -> None:
    for command in commands(unit(contents, x=dropin)):
        assert command.words
        assert isinstance(command.flags, dict)
