"""Flags and values as Go reads and prints them."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.cli.drop_ins import go_values, pflag
from umbilical.cli.drop_ins.go_values import ValueSyntaxError

TABLE = (
    pflag.FlagSpec("name", pflag.STRING, "nobody", "who"),
    pflag.FlagSpec("port", pflag.INT, 8090, "where"),
    pflag.FlagSpec("size", pflag.UINT32, 0, "how much"),
    pflag.FlagSpec("rate", pflag.FLOAT, 0.0, "how often"),
    pflag.FlagSpec("wait", pflag.DURATION, 10**9, "how long"),
    pflag.FlagSpec("fast", pflag.BOOL, False, "hurry"),
    pflag.FlagSpec("list", pflag.STRING_SLICE, (), "which"),
    pflag.FlagSpec("v", pflag.INT, 4, "verbosity"),
    pflag.FlagSpec("secret", pflag.STRING, "", "not shown", hidden=True),
    pflag.FlagSpec("old", pflag.BOOL, True, "gone soon", deprecated="use another"),
    pflag.FlagSpec("nick", pflag.STRING, "nobody", "other name", alias_of="name"),
)


def parsed(*arguments: str) -> pflag.FlagSet:
    flags = pflag.FlagSet("program", TABLE)
    flags.parse(arguments)
    return flags


def refusal(*arguments: str) -> str:
    with pytest.raises(pflag.FlagError) as fault:
        parsed(*arguments)
    return str(fault.value)


def test_flags_have_defaults_short_forms_and_aliases() -> None:
    flags = parsed()
    assert (flags.text("name"), flags.number("port"), flags.seconds("wait")) == ("nobody", 8090, 1.0)
    assert not flags.changed("name")
    for arguments in (("-v", "7"), ("-v=7",), ("-v7",), ("--v=7",), ("--v", "7")):
        assert parsed(*arguments).number("v") == 7
    for arguments in (("-h",), ("--help",), ("--help=true",), ("-hv4",), ("--port=1", "-h")):
        assert parsed(*arguments).switch("help")
    assert parsed("--nick=x").text("name") == "x"
    assert parsed("--nick=x", "--name=y").text("name") == "y"


def test_a_value_follows_an_equals_sign_or_a_space_and_the_last_wins() -> None:
    for arguments in (("--port=1",), ("--port", "1"), ("--port=7", "--port=1"), ("--port=0x1",)):
        assert parsed(*arguments).number("port") == 1
    assert parsed("--name=").text("name") == ""
    assert parsed("--name", "").text("name") == ""
    assert parsed("--name=a=b").text("name") == "a=b"
    assert parsed("--name", "--port").text("name") == "--port"
    assert parsed("-test.v", "--port=1").number("port") == 1


def test_a_switch_is_turned_on_and_off() -> None:
    for spelling in ("", "=true", "=1", "=t", "=T", "=True", "=TRUE"):
        assert parsed(f"--fast{spelling}").switch("fast")
    for spelling in ("=false", "=0", "=f", "=F", "=False", "=FALSE"):
        assert not parsed("--fast", f"--fast{spelling}").switch("fast")
    flags = parsed("--fast", "false")
    assert flags.switch("fast")
    assert flags.positional == ["false"]


def test_lists_grow_two_dashes_end_the_flags_and_deprecated_ones_are_reported() -> None:
    flags = parsed("a", "--fast", "--", "--port=1", "-")
    assert flags.positional == ["a", "--port=1", "-"]
    assert flags.number("port") == 8090
    assert parsed("--list=a,b", "--list", "c").items("list") == ("a", "b", "c")
    assert parsed("--list=[]").items("list") == ("[]",)
    assert parsed("--list=").items("list") == ()
    flags = parsed("--old=false")
    assert not flags.switch("old")
    assert flags.notices == ["Flag --old has been deprecated, use another"]


def test_a_fault_is_reported_with_the_text_of_pflag() -> None:
    for argument, text in (
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
    ):
        assert refusal(argument) == text


def test_usage_lists_visible_flags_by_name_with_their_defaults() -> None:
    lines = parsed().usage().splitlines()
    assert [line.split()[0] for line in lines] == [
        *("--fast", "-h,", "--list", "--name", "--nick", "--port", "--rate", "--size", "-v,", "--wait")
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
def test_whatever_the_arguments_parsing_ends_or_reports_why_not(arguments: list[str]) -> None:
    with contextlib.suppress(pflag.FlagError):
        parsed(*arguments)


NANOSECONDS = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
HOUR = 3600 * 10**9


def test_a_duration_is_read_as_go_reads_it() -> None:
    for text, nanoseconds in (
        *(("1h0m0s", HOUR), ("100ms", 10**8), ("1.5h", HOUR * 3 // 2), ("-5s", -5 * 10**9), ("+5s", 5 * 10**9)),
        *(("0", 0), ("-0", 0), (".5s", 5 * 10**8), ("1.s", 10**9), ("1m1m", 120 * 10**9), ("3us", 3000)),
        *(("3\u00b5s", 3000), ("3\u03bcs", 3000), ("9223372036854775807ns", (1 << 63) - 1)),
        ("-9223372036854775808ns", -(1 << 63)),
    ):
        assert go_values.parse_duration(text) == nanoseconds


def test_a_wrong_duration_is_refused_with_the_text_of_go() -> None:
    for text, fault in (
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("x", 'time: invalid duration "x"'),
        (".s", 'time: invalid duration ".s"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5x", 'time: unknown unit "x" in duration "5x"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("99999999999999999999h", 'time: invalid duration "99999999999999999999h"'),
        ("1\u00e9", 'time: unknown unit "\\xc3\\xa9" in duration "1\\xc3\\xa9"'),
        ('1"', 'time: unknown unit "\\"" in duration "1\\""'),
    ):
        with pytest.raises(ValueSyntaxError) as refusal:
            go_values.parse_duration(text)
        assert str(refusal.value) == fault


def test_a_duration_is_printed_as_go_prints_it() -> None:
    for nanoseconds, text in (
        *((0, "0s"), (1, "1ns"), (1100, "1.1\u00b5s"), (2_200_000, "2.2ms"), (10**9, "1s"), (90 * 10**9, "1m30s")),
        *((HOUR, "1h0m0s"), (-HOUR - 1, "-1h0m0.000000001s")),
    ):
        assert go_values.format_duration(nanoseconds) == text


@given(NANOSECONDS)
def test_a_printed_duration_reads_back(nanoseconds: int) -> None:
    assert go_values.parse_duration(go_values.format_duration(nanoseconds)) == nanoseconds


def test_an_integer_takes_the_literals_of_go() -> None:
    for text, number in (
        *(("0", 0), ("-0", 0), ("+12", 12), ("0x1F", 31), ("0b101", 5), ("0o17", 15), ("017", 15), ("0_7", 7)),
        *(("1_000", 1000), ("0x_f", 15), ("-9223372036854775808", -(1 << 63))),
    ):
        assert go_values.parse_int(text) == number


def test_what_is_not_an_integer_of_64_bits_is_refused() -> None:
    for text in ("", "-", "abc", " 1", "1 ", "1__0", "_1", "08", "0x", "\u0663", "1.0", "1e3"):
        with pytest.raises(ValueSyntaxError, match=r"^strconv.ParseInt: parsing .*: invalid syntax$"):
            go_values.parse_int(text)
    for text in ("9223372036854775808", "0x8000000000000000", "9" * 5000):
        with pytest.raises(ValueSyntaxError, match=r"value out of range$"):
            go_values.parse_int(text)


def test_an_unsigned_integer_has_no_sign() -> None:
    assert go_values.parse_uint("18446744073709551615") == (1 << 64) - 1
    with pytest.raises(ValueSyntaxError, match=r'^strconv.ParseUint: parsing "-1": invalid syntax$'):
        go_values.parse_uint("-1")
    with pytest.raises(ValueSyntaxError, match=r"value out of range$"):
        go_values.parse_uint("18446744073709551616")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.5", 0.5), ("1e3", 1000.0), ("-.5", -0.5), ("1.", 1.0), ("0x1p-2", 0.25), ("inf", float("inf"))],
)
def test_a_float_is_read_in_single_precision(text: str, number: float) -> None:
    assert go_values.parse_float32(text) == number


def test_a_wrong_float_is_refused() -> None:
    for text, fault in (
        *(("x", "invalid syntax"), ("", "invalid syntax"), ("0x1", "invalid syntax"), ("1e60", "value out of range")),
        *(("0x1p9999", "value out of range"), ("1e999", "value out of range")),
    ):
        with pytest.raises(ValueSyntaxError) as refusal:
            go_values.parse_float32(text)
        assert str(refusal.value) == f'strconv.ParseFloat: parsing "{text}": {fault}'


def test_a_list_is_one_record_of_comma_separated_values() -> None:
    for text, values in (
        *(("", ()), ("[]", ("[]",)), ("a", ("a",)), ("a,b", ("a", "b")), (",", ("", "")), ('"a,b",c', ("a,b", "c"))),
        *(('"say ""hi"""', ('say "hi"',)), ("a\nb", ("a",)), ("\na", ("a",))),
    ):
        assert go_values.parse_csv(text) == values


def test_a_wrong_list_is_refused() -> None:
    for text, fault in (
        ('a"b', 'parse error on line 1, column 2: bare " in non-quoted-field'),
        ('"a"b', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        ('"a', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        ("\n", "EOF"),
    ):
        with pytest.raises(ValueSyntaxError) as refusal:
            go_values.parse_csv(text)
        assert str(refusal.value) == fault


def test_a_text_is_quoted_as_go_quotes_it() -> None:
    for text, quoted in (
        *(("plain", '"plain"'), ('a"b\\c', '"a\\"b\\\\c"'), ("tab\tline\n", '"tab\\tline\\n"')),
        *(("\x00\x7f", '"\\x00\\x7f"'), ("\u00e9", '"\u00e9"'), ("\u200b", '"\\u200b"')),
        *(("\U000e0001", '"\\U000e0001"'), ("\udcff", '"\\xff"')),
    ):
        assert go_values.quote(text) == quoted


PARSERS: list[Callable[[str], object]] = [
    *(go_values.parse_bool, go_values.parse_int, go_values.parse_uint, go_values.parse_float32),
    *(go_values.parse_duration, go_values.parse_csv),
]


@given(st.sampled_from(PARSERS), st.text() | st.text('0123456789.+-_xXbohmsnu\u00b5,"\nine'))
def test_whatever_the_text_a_parser_answers_or_reports_why_not(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(ValueSyntaxError):
        parse(text)
