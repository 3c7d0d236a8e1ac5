"""Every spelling of a flag that pflag knows, and its words for those it does not."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.cli.pflag import BOOL, DURATION, FLOAT, INT, STRING, STRING_SLICE, UINT, Flag, FlagError, FlagSet

TABLE = (
    Flag("name", STRING, "nobody", "who"),
    Flag("port", INT, 8090, "where"),
    Flag("size", UINT, 0, "how much"),
    Flag("rate", FLOAT, 0.0, "how often"),
    Flag("wait", DURATION, 10**9, "how long"),
    Flag("fast", BOOL, False, "hurry"),
    Flag("list", STRING_SLICE, (), "which"),
    Flag("v", INT, 4, "verbosity"),
    Flag("secret", STRING, "", "not shown", hidden=True),
    Flag("old", BOOL, True, "gone soon", deprecated="use another"),
    Flag("nick", STRING, "nobody", "other name", alias_of="name"),
)


def parsed(*arguments: str) -> FlagSet:
    flags = FlagSet("program", TABLE)
    flags.parse(arguments)
    return flags


def refusal(*arguments: str) -> str:
    with pytest.raises(FlagError) as fault:
        parsed(*arguments)
    return str(fault.value)


def test_a_flag_not_given_has_its_default() -> None:
    flags = parsed()
    assert (flags.text("name"), flags.number("port"), flags.seconds("wait")) == ("nobody", 8090, 1.0)
    assert not flags.changed("name")


@pytest.mark.parametrize("arguments", [("--port=1",), ("--port", "1"), ("--port=7", "--port=1"), ("--port=0x1",)])
def test_a_value_follows_an_equals_sign_or_a_space_and_the_last_wins(arguments: tuple[str, ...]) -> None:
    assert parsed(*arguments).number("port") == 1


@pytest.mark.parametrize("spelling", ["", "=true", "=1", "=t", "=T", "=True", "=TRUE"])
def test_a_switch_is_turned_on_bare_or_with_a_word(spelling: str) -> None:
    assert parsed(f"--fast{spelling}").switch("fast")


@pytest.mark.parametrize("spelling", ["=false", "=0", "=f", "=F", "=False", "=FALSE"])
def test_a_switch_is_turned_off_with_a_word(spelling: str) -> None:
    assert not parsed("--fast", f"--fast{spelling}").switch("fast")


def test_a_bare_switch_does_not_swallow_the_next_argument() -> None:
    flags = parsed("--fast", "false")
    assert flags.switch("fast")
    assert flags.positional == ["false"]


def test_an_empty_text_is_a_value() -> None:
    assert parsed("--name=").text("name") == ""
    assert parsed("--name", "").text("name") == ""


def test_only_the_first_equals_sign_divides() -> None:
    assert parsed("--name=a=b").text("name") == "a=b"


def test_a_value_after_a_space_may_look_like_a_flag() -> None:
    assert parsed("--name", "--port").text("name") == "--port"


@pytest.mark.parametrize("arguments", [("-v", "7"), ("-v=7",), ("-v7",), ("--v=7",), ("--v", "7")])
def test_verbosity_has_a_short_form(arguments: tuple[str, ...]) -> None:
    assert parsed(*arguments).number("v") == 7


@pytest.mark.parametrize("arguments", [("-h",), ("--help",), ("--help=true",), ("-hv4",), ("--port=1", "-h")])
def test_help_is_a_switch_that_is_always_there(arguments: tuple[str, ...]) -> None:
    assert parsed(*arguments).switch("help")


def test_two_dashes_end_the_flags() -> None:
    flags = parsed("a", "--fast", "--", "--port=1", "-")
    assert flags.positional == ["a", "--port=1", "-"]
    assert flags.number("port") == 8090


def test_lists_grow_and_the_default_gives_way() -> None:
    assert parsed("--list=a,b", "--list", "c").items("list") == ("a", "b", "c")
    assert parsed("--list=[]").items("list") == ("[]",)
    assert parsed("--list=").items("list") == ()


def test_an_alias_sets_the_flag_it_stands_for() -> None:
    assert parsed("--nick=x").text("name") == "x"
    assert parsed("--nick=x", "--name=y").text("name") == "y"


def test_a_deprecated_flag_works_and_is_told() -> None:
    flags = parsed("--old=false")
    assert not flags.switch("old")
    assert flags.notices == ["Flag --old has been deprecated, use another"]


def test_arguments_for_go_tests_are_passed_over() -> None:
    assert parsed("-test.v", "--port=1").number("port") == 1


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--nope", "unknown flag: --nope"),
        ("--nope=1", "unknown flag: --nope"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("-hx", "unknown shorthand flag: 'x' in -x"),
        ("--port", "flag needs an argument: --port"),
        ("-v", "flag needs an argument: 'v' in -v"),
        ("---", "bad flag syntax: ---"),
        ("--=x", "bad flag syntax: --=x"),
        ("--port=abc", 'invalid argument "abc" for "--port" flag: strconv.ParseInt: parsing "abc": invalid syntax'),
        ("--size=-1", 'invalid argument "-1" for "--size" flag: strconv.ParseUint: parsing "-1": invalid syntax'),
        ("--fast=x", 'invalid argument "x" for "--fast" flag: strconv.ParseBool: parsing "x": invalid syntax'),
        ("--wait=x", 'invalid argument "x" for "--wait" flag: time: invalid duration "x"'),
        ("--rate=x", 'invalid argument "x" for "--rate" flag: strconv.ParseFloat: parsing "x": invalid syntax'),
        ("-v=", 'invalid argument "=" for "-v, --v" flag: strconv.ParseInt: parsing "=": invalid syntax'),
    ],
)
def test_a_fault_is_told_in_the_words_of_pflag(argument: str, text: str) -> None:
    assert refusal(argument) == text


def test_usage_lists_visible_flags_by_name_with_their_defaults() -> None:
    lines = parsed().usage().splitlines()
    assert [line.split()[0] for line in lines] == [
        "--fast",
        "-h,",
        "--list",
        "--name",
        "--nick",
        "--port",
        "--rate",
        "--size",
        "-v,",
        "--wait",
    ]
    assert '      --name string     who (default "nobody")' in lines
    assert "      --wait duration   how long (default 1s)" in lines
    assert "      --fast            hurry" in lines
    assert "  -v, --v int           verbosity (default 4)" in lines


ARGUMENT = st.text(max_size=12) | st.builds(
    "{}{}{}".format,
    st.sampled_from(["--", "-", "---", ""]),
    st.sampled_from([flag.name for flag in TABLE] + ["help", "h", "nope"]),
    st.text(max_size=8) | st.builds("={}".format, st.text(max_size=8)),
)


@given(st.lists(ARGUMENT, max_size=6))
def test_whatever_the_arguments_parsing_ends_or_says_why_not(arguments: list[str]) -> None:
    with contextlib.suppress(FlagError):
        parsed(*arguments)
