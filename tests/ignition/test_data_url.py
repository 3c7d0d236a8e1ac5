"""Data URLs: what Ignition takes is taken, what it refuses is refused, and both directions fit."""

import json
import urllib.request
from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.support.ignition_validate import refusal_of

from umbilical.ignition.data_url import DataUrl, format_data_url, is_data_url, parse_data_url
from umbilical.ignition.errors import IgnitionError

MEDIA_TYPES = st.sampled_from(
    [
        "",
        "text/plain",
        "text/plain;charset=utf-8",
        "application/octet-stream",
        "x-a/b;c=d",
        ';charset="utf-8"',
        ";a=%20",
    ]
)
URLS = st.builds(DataUrl, MEDIA_TYPES, st.booleans(), st.binary(max_size=200))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("data:,", b""),
        ("data:,a%20b%C3%A9", "a bé".encode()),
        ("data:,a+b?c=d&e/~'(*)!", b"a+b?c=d&e/~'(*)!"),
        ("data:;base64,", b""),
        ("data:;base64,aGk=", b"hi"),
        ("data:text/plain;charset=utf-8;base64,aGk=", b"hi"),
        ('data:text/plain;a="b,\\"c";base64,aGk=', b"hi"),
        # What is behind the last whole byte is ignored, as Go does.
        ("data:;base64,aGl=", b"hi"),
    ],
)
def test_a_data_url_is_decoded(text: str, content: bytes) -> None:
    assert parse_data_url(text).content == content


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data:",
        "DATA:,a",
        "http://example.com",
        "data:text/plain",
        "data:text,a",
        "data:font/woff,a",
        "data:text/plain;base64;charset=utf-8,aGk=",
        "data:text/plain;charset,a",
        "data:text/plain;charset=%zz,a",
        "data:;BASE64,aGk=",
        "data:;base64,aGk",
        "data:;base64,aGk=\n",
        "data:;base64,aGkh=",
        "data:;base64,aGkh====",
        "data:;base64,a Gk=",
        "data:;base64,aGk%3D",
        "data:;base64,aGk=aGk=",
        "data:;base64,_-==",
        "data:;base64,\ud800",
        "data:,a b",
        "data:,a#b",
        "data:,é",
        "data:,%",
        "data:,%0g",
        "data:,\n",
        "data:,\ud800",
    ],
)
def test_what_ignition_refuses_is_refused(text: str) -> None:
    with pytest.raises(IgnitionError) as caught:
        parse_data_url(text)
    assert caught.value.code == "UMB142"


def test_the_payload_is_never_in_the_message() -> None:
    with pytest.raises(IgnitionError) as caught:
        parse_data_url("data:;base64,SECRETSECRET!")
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
        "data:",
        "DATA:",
        ";base64,",
        "text",
        "plain",
        "x-",
        "a=b",
        "%20",
        "%2",
        "aGk=",
        "====",
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
