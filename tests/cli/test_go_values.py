"""Go's spellings: what is read, what is refused and in which words, and that nothing else is ever raised."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.cli import go_values
from umbilical.cli.go_values import ValueSyntaxError

NANOSECONDS = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1h0m0s", HOUR),
        ("100ms", 10**8),
        ("1.5h", HOUR * 3 // 2),
        ("-5s", -5 * 10**9),
        ("+5s", 5 * 10**9),
        ("0", 0),
        ("-0", 0),
        (".5s", 5 * 10**8),
        ("1.s", 10**9),
        ("1m1m", 120 * 10**9),
        ("3us", 3000),
        ("3\u00b5s", 3000),
        ("3\u03bcs", 3000),
        ("9223372036854775807ns", (1 << 63) - 1),
        ("-9223372036854775808ns", -(1 << 63)),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, nanoseconds: int) -> None:
    assert go_values.parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "fault"),
    [
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
    ],
)
def test_a_wrong_duration_is_refused_in_go_words(text: str, fault: str) -> None:
    with pytest.raises(ValueSyntaxError) as refusal:
        go_values.parse_duration(text)
    assert str(refusal.value) == fault


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1100, "1.1\u00b5s"),
        (2_200_000, "2.2ms"),
        (10**9, "1s"),
        (90 * 10**9, "1m30s"),
        (HOUR, "1h0m0s"),
        (-HOUR - 1, "-1h0m0.000000001s"),
    ],
)
def test_a_duration_is_printed_as_go_prints_it(nanoseconds: int, text: str) -> None:
    assert go_values.format_duration(nanoseconds) == text


@given(NANOSECONDS)
def test_a_printed_duration_reads_back(nanoseconds: int) -> None:
    assert go_values.parse_duration(go_values.format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+12", 12),
        ("0x1F", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("0_7", 7),
        ("1_000", 1000),
        ("0x_f", 15),
        ("-9223372036854775808", -(1 << 63)),
    ],
)
def test_an_integer_takes_the_literals_of_go(text: str, number: int) -> None:
    assert go_values.parse_int(text) == number


@pytest.mark.parametrize("text", ["", "-", "abc", " 1", "1 ", "1__0", "_1", "08", "0x", "\u0663", "1.0", "1e3"])
def test_what_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(ValueSyntaxError, match=r"^strconv.ParseInt: parsing .*: invalid syntax$"):
        go_values.parse_int(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "0x8000000000000000", "9" * 5000])
def test_an_integer_past_64_bits_is_out_of_range(text: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x", "invalid syntax"),
        ("", "invalid syntax"),
        ("0x1", "invalid syntax"),
        ("1e60", "value out of range"),
        ("0x1p9999", "value out of range"),
        ("1e999", "value out of range"),
    ],
)
def test_a_wrong_float_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueSyntaxError) as refusal:
        go_values.parse_float32(text)
    assert str(refusal.value) == f'strconv.ParseFloat: parsing "{text}": {fault}'


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", ()),
        ("[]", ("[]",)),
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        (",", ("", "")),
        ('"a,b",c', ("a,b", "c")),
        ('"say ""hi"""', ('say "hi"',)),
        ("a\nb", ("a",)),
        ("\na", ("a",)),
    ],
)
def test_a_list_is_one_record_of_comma_separated_values(text: str, values: tuple[str, ...]) -> None:
    assert go_values.parse_csv(text) == values


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('a"b', 'parse error on line 1, column 2: bare " in non-quoted-field'),
        ('"a"b', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        ('"a', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        ("\n", "EOF"),
    ],
)
def test_a_wrong_list_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueSyntaxError) as refusal:
        go_values.parse_csv(text)
    assert str(refusal.value) == fault


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("tab\tline\n", '"tab\\tline\\n"'),
        ("\x00\x7f", '"\\x00\\x7f"'),
        ("\u00e9", '"\u00e9"'),
        ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'),
        ("\udcff", '"\\xff"'),
    ],
)
def test_a_text_is_quoted_as_go_quotes_it(text: str, quoted: str) -> None:
    assert go_values.quote(text) == quoted


PARSERS: list[Callable[[str], object]] = [
    go_values.parse_bool,
    go_values.parse_int,
    go_values.parse_uint,
    go_values.parse_float32,
    go_values.parse_duration,
    go_values.parse_csv,
]


@given(st.sampled_from(PARSERS), st.text() | st.text('0123456789.+-_xXbohmsnu\u00b5,"\nine'))
def test_whatever_the_text_a_parser_answers_or_says_why_not(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(ValueSyntaxError):
        parse(text)
