"""DER, read as X.690 says, and never past its end."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.pki import der
from umbilical.pki.der import DerError, Element


def element(tag: int, content: bytes) -> Element:
    return der.elements(bytes([tag, len(content)]) + content)[0]


def test_elements_are_parted_with_short_and_long_lengths() -> None:
    data = b"\x02\x01\x05" + b"\x04\x81\x80" + bytes(128)
    first, second = der.elements(data)
    assert (first.tag, first.content, first.encoded) == (der.INTEGER, b"\x05", b"\x02\x01\x05")
    assert (second.tag, len(second.content), len(second.encoded)) == (der.OCTET_STRING, 128, 131)


@pytest.mark.parametrize(
    "data",
    [b"\x02", b"\x02\x05\x00", b"\x02\x80", b"\x02\x85\x00\x00\x00\x00\x01x", b"\x02\x82\x01", b"\x1f\x81\x00\x00"],
    ids=["no length", "too short", "indefinite", "length too long", "length cut", "tag of many octets"],
)
def test_what_does_not_add_up_is_refused(data: bytes) -> None:
    with pytest.raises(DerError):
        der.elements(data)


def test_exactly_one_element_of_the_right_tag_is_taken() -> None:
    assert der.only(b"\x30\x00", der.SEQUENCE).content == b""
    with pytest.raises(DerError, match="2 elements"):
        der.only(b"\x30\x00\x30\x00", der.SEQUENCE)
    with pytest.raises(DerError, match="0x31"):
        der.only(b"\x31\x00", der.SEQUENCE)


@pytest.mark.parametrize(("content", "value"), [(b"\x00", 0), (b"\x7f", 127), (b"\x00\xff", 255), (b"\xff", -1)])
def test_integers_have_a_sign(content: bytes, value: int) -> None:
    assert der.integer(element(der.INTEGER, content)) == value


@pytest.mark.parametrize(("content", "value"), [(b"\xff", True), (b"\x01", True), (b"\x00", False), (b"", False)])
def test_booleans_are_true_where_anything_is_set(content: bytes, value: bool) -> None:
    assert der.boolean(element(der.BOOLEAN, content)) is value


def test_bit_strings_carry_a_count_of_unused_bits() -> None:
    assert der.bits(element(der.BIT_STRING, b"\x05\xa0")) == b"\xa0"
    for content in (b"", b"\x08\x00"):
        with pytest.raises(DerError, match="unused bits"):
            der.bits(element(der.BIT_STRING, content))


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"\x55\x04\x03", "2.5.4.3"),
        (b"\x2a\x86\x48\x86\xf7\x0d", "1.2.840.113549"),
        (b"\x88\x37", "2.999"),
        (b"\x00", "0.0"),
    ],
)
def test_object_identifiers_are_spelled_out(content: bytes, value: str) -> None:
    assert der.oid(element(der.OBJECT_IDENTIFIER, content)) == value


@pytest.mark.parametrize("content", [b"", b"\x55\x84"])
def test_an_object_identifier_that_does_not_end_is_refused(content: bytes) -> None:
    with pytest.raises(DerError, match="does not end"):
        der.oid(element(der.OBJECT_IDENTIFIER, content))


@pytest.mark.parametrize(
    ("tag", "content", "value"),
    [
        (der.UTC_TIME, b"261115131000Z", datetime(2026, 11, 15, 13, 10, tzinfo=UTC)),
        (der.UTC_TIME, b"491231235959Z", datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (der.UTC_TIME, b"500101000000Z", datetime(1950, 1, 1, tzinfo=UTC)),
        (der.UTC_TIME, b"520229000000Z", datetime(1952, 2, 29, tzinfo=UTC)),
        (der.GENERALIZED_TIME, b"20520229000000Z", datetime(2052, 2, 29, tzinfo=UTC)),
    ],
)
def test_times_turn_the_century_where_x509_does(tag: int, content: bytes, value: datetime) -> None:
    assert der.moment(element(tag, content)) == value


@pytest.mark.parametrize(("tag", "content"), [(der.UTC_TIME, b"soon"), (der.UTC_TIME, b"\xff"), (der.INTEGER, b"\x01")])
def test_a_time_that_cannot_be_read_is_refused(tag: int, content: bytes) -> None:
    with pytest.raises(DerError):
        der.moment(element(tag, content))


@pytest.mark.parametrize(
    ("tag", "content", "value"),
    [
        (0x0C, "ü".encode(), "ü"),
        (0x13, b"a", "a"),
        (0x14, b"\xfc", "ü"),
        (0x1E, b"\x00a", "a"),
        (0x1C, b"\0\0\0a", "a"),
    ],
)
def test_text_is_read_in_its_own_encoding(tag: int, content: bytes, value: str) -> None:
    assert der.text(element(tag, content)) == value


@pytest.mark.parametrize(("tag", "content"), [(0x0C, b"\xff"), (0x02, b"a")])
def test_text_that_is_none_is_refused(tag: int, content: bytes) -> None:
    with pytest.raises(DerError):
        der.text(element(tag, content))


@given(st.binary(max_size=400))
def test_whatever_comes_in_the_elements_are_the_whole_of_it(data: bytes) -> None:
    try:
        found = der.elements(data)
    except DerError:
        return
    assert b"".join(one.encoded for one in found) == data
