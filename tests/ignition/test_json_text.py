"""JSON with places: every value is found where it lies, and what is not plain JSON is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ignition.configs import JSON_VALUES, formatted

from umbilical.ignition import json_text
from umbilical.ignition.errors import IgnitionError
from umbilical.ignition.json_text import MAX_DEPTH, decode_text, elements, members, parse_object


@given(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=4), st.data())
def test_every_member_is_found_where_it_lies(value: dict[str, object], data: st.DataObject) -> None:
    text = decode_text(data.draw(formatted(value)))
    places = members(text, text.index("{"))
    assert {key: json.loads(text[place.span.start : place.span.end]) for key, place in places.items()} == value
    assert all(text[place.span.start : place.span.end].strip() == text[slice(*place.span)] for place in places.values())


@given(st.lists(JSON_VALUES, max_size=4), st.data())
def test_every_element_is_found_where_it_lies(value: list[object], data: st.DataObject) -> None:
    text = decode_text(data.draw(formatted({"list": value})))
    start = members(text, text.index("{"))["list"].span.start
    assert [json.loads(text[slice(*place.span)]) for place in elements(text, start)] == value


def test_a_key_that_stands_twice_is_refused_where_it_matters() -> None:
    with pytest.raises(IgnitionError, match="'a' stands twice"):
        members('{"a": 1, "b": {"c": 1, "c": 2}, "\\u0061": 2}', 0)
    assert members('{"b": {"c": 1, "c": 2}}', 0)["b"].value == {"c": 2}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[]", "not an object"),
        (b'"text"', "not an object"),
        (b"{} {}", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": -Infinity}', "-Infinity is no JSON"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
        (b'{"a":' * 200_000, "nested deeper"),
        (b"[" * 200_000, "nested deeper"),
    ],
)
def test_what_is_no_plain_json_object_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(IgnitionError) as caught:
        parse_object(decode_text(content))
    assert caught.value.code == "UMB140"
    assert why in caught.value.why


def test_depth_is_measured_from_the_outermost_object() -> None:
    def nested(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    parse_object(nested(MAX_DEPTH))
    with pytest.raises(IgnitionError, match="nested deeper"):
        parse_object(nested(MAX_DEPTH + 1))


def test_a_number_of_a_thousand_digits_is_kept() -> None:
    assert parse_object(f'{{"a": {"9" * 1000}}}') == {"a": int("9" * 1000)}


def test_a_config_past_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_CONFIG_BYTES", 10)
    assert decode_text(bytes(10)) == "\0" * 10
    with pytest.raises(IgnitionError, match="11 bytes"):
        decode_text(bytes(11))
