"""Data URLs, gzip, hashes and JSON with places: what Ignition takes is taken, the rest is refused."""

import gzip as standard_gzip
import json
import urllib.request
import zlib
from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.ignition.configs import JSON_VALUES, formatted
from tests.support.ignition_validate import refusal_of

from umbilical.fault import IgnitionError
from umbilical.ignition import data_url, json_text
from umbilical.ignition.data_url import DataUrl, format_data_url, is_data_url, parse_data_url
from umbilical.ignition.json_text import MAX_DEPTH, decode_text, elements, members, parse_object

MEDIA_TYPES = st.sampled_from(
    [
        *("", "text/plain", "text/plain;charset=utf-8", "application/octet-stream", "x-a/b;c=d", ';charset="utf-8"'),
        ";a=%20",
    ]
)
URLS = st.builds(DataUrl, MEDIA_TYPES, st.booleans(), st.binary(max_size=200))


def test_a_data_url_is_decoded() -> None:
    for text, content in (
        ("data:,", b""),
        ("data:,a%20b%C3%A9", "a bé".encode()),
        ("data:,a+b?c=d&e/~'(*)!", b"a+b?c=d&e/~'(*)!"),
        ("data:;base64,", b""),
        ("data:;base64,aGk=", b"hi"),
        ("data:text/plain;charset=utf-8;base64,aGk=", b"hi"),
        ('data:text/plain;a="b,\\"c";base64,aGk=', b"hi"),
        # What is behind the last whole byte is ignored, as Go does.
        ("data:;base64,aGl=", b"hi"),
    ):
        assert parse_data_url(text).content == content


def test_what_ignition_refuses_is_refused_and_the_payload_is_never_in_the_message() -> None:
    for text in (
        *("", "data:", "DATA:,a", "http://example.com", "data:text/plain", "data:text,a", "data:font/woff,a"),
        *("data:text/plain;base64;charset=utf-8,aGk=", "data:text/plain;charset,a", "data:text/plain;charset=%zz,a"),
        *(
            "data:;BASE64,aGk=",
            "data:;base64,aGk",
            "data:;base64,aGk=\n",
            "data:;base64,aGkh=",
            "data:;base64,aGkh====",
        ),
        *("data:;base64,a Gk=", "data:;base64,aGk%3D", "data:;base64,aGk=aGk=", "data:;base64,_-=="),
        *("data:;base64,\ud800", "data:;base64,SECRETSECRET!"),
        *("data:,a b", "data:,a#b", "data:,é", "data:,%", "data:,%0g", "data:,\n", "data:,\ud800"),
    ):
        with pytest.raises(IgnitionError, match="UMB142") as caught:
            parse_data_url(text)
        assert "SECRET" not in str(caught.value)


@given(URLS)
def test_what_is_formatted_is_parsed_back(url: DataUrl) -> None:
    assert parse_data_url(url.format()) == url


@given(st.binary(max_size=100))
def test_the_installer_s_form_is_the_default(content: bytes) -> None:
    assert parse_data_url(format_data_url(content)) == DataUrl("text/plain;charset=utf-8", True, content)


@given(URLS)
def test_urllib_decodes_the_same_content(url: DataUrl) -> None:
    with urllib.request.urlopen(url.format()) as response:
        assert response.read() == url.content


@given(st.text())
@example("data:;base64,====")
def test_any_text_is_decoded_or_refused(text: str) -> None:
    for candidate in (text, f"data:{text}", f"data:,{text}", f"data:;base64,{text}"):
        with suppress(IgnitionError):
            assert parse_data_url(parse_data_url(candidate).format()) == parse_data_url(candidate)


@given(URLS, st.data())
def test_a_mutation_is_decoded_or_refused(url: DataUrl, data: st.DataObject) -> None:
    text = url.format()
    place = data.draw(st.integers(0, len(text)))
    mutated = text[:place] + data.draw(st.text(max_size=2)) + text[place + data.draw(st.integers(0, 2)) :]
    with suppress(IgnitionError):
        assert parse_data_url(parse_data_url(mutated).format()) == parse_data_url(mutated)


PIECES = st.sampled_from(
    [
        *';=,%"\\/: #<[é\n\taZ9+-_',
        *("data:", "DATA:", ";base64,", "text", "plain", "x-", "a=b", "%20", "%2", "aGk=", "===="),
    ]
)


@pytest.mark.real("ignition-validate")
@given(URLS, st.data())
def test_the_validator_draws_the_same_line(url: DataUrl, data: st.DataObject) -> None:
    text = url.format()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(st.just("") | PIECES) + text[place + data.draw(st.integers(0, 2)) :]
    # Another scheme is no data URL, and an empty source is none at all.
    assume(text.lower().startswith("data:"))
    contents = {"source": text}
    config = {"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/a", "contents": contents}]}}
    refusal = refusal_of(json.dumps(config).encode())
    if refusal is None:
        parse_data_url(text)
    else:
        with pytest.raises(IgnitionError):
            parse_data_url(text)


def test_a_remote_source_is_no_data_url() -> None:
    assert is_data_url("data:,")
    assert not is_data_url("https://example.com/data:,")


@given(st.binary(max_size=500))
def test_gzip_is_read_by_the_standard_library_and_the_other_way_round(content: bytes) -> None:
    assert standard_gzip.decompress(data_url.gzip(content)) == content
    assert data_url.gunzip(standard_gzip.compress(content)) == content


def test_gzip_has_no_time_and_no_name_in_it_and_several_members_are_one_content() -> None:
    assert data_url.gzip(b"x")[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    assert data_url.gunzip(data_url.gzip(b"one ") + data_url.gzip(b"two")) == b"one two"


def test_a_broken_payload_is_refused() -> None:
    for broken in (
        b"",
        b"plain",
        data_url.gzip(b"content")[:-1],
        data_url.gzip(b"content")[:-8] + bytes(8),
        data_url.gzip(b"content") + b"trailing",
        zlib.compress(b"zlib is not gzip"),
    ):
        with pytest.raises(IgnitionError, match="UMB142"):
            data_url.gunzip(broken)


def test_a_payload_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_url, "MAX_FILE_BYTES", 1000)
    assert data_url.gunzip(data_url.gzip(bytes(1000))) == bytes(1000)
    for bomb in (data_url.gzip(bytes(1001)), data_url.gzip(bytes(600)) * 2):
        with pytest.raises(IgnitionError, match="expands to more than 1000 bytes"):
            data_url.gunzip(bomb)


@given(st.binary(max_size=60))
def test_any_bytes_are_decompressed_or_refused(content: bytes) -> None:
    for candidate in (content, b"\x1f\x8b\x08" + content):
        with suppress(IgnitionError):
            assert data_url.gunzip(candidate) == standard_gzip.decompress(candidate)


def test_a_hash_is_of_the_kind_that_was_there_if_that_is_known() -> None:
    assert (
        data_url.hash_like("sha256-00", b"")
        == f"sha256-{'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}"
    )
    assert len(data_url.hash_like("sha512-", b"")) == len("sha512-") + 128
    for pattern in ("", "md5-00", "SHA256-00", "sha1"):
        with pytest.raises(IgnitionError, match="is unknown"):
            data_url.hash_like(pattern, b"")


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
    with pytest.raises(IgnitionError, match="'a' is twice"):
        members('{"a": 1, "b": {"c": 1, "c": 2}, "\\u0061": 2}', 0)
    assert members('{"b": {"c": 1, "c": 2}}', 0)["b"].value == {"c": 2}


def test_what_is_no_plain_json_object_is_refused() -> None:
    for content, why in (
        (b"", "not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[]", "not an object"),
        (b'"text"', "not an object"),
        (b"{} {}", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
        (b'{"a":' * 200_000, "nested deeper"),
        (b"[" * 200_000, "nested deeper"),
    ):
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
