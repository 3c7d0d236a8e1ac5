"""Data URLs (RFC 2397), as Ignition's own parser takes them: what that one refuses at boot is refused here.

Percent-encoded or base64; the text between `data:` and `,` is kept as it is, so that an edit can put it back.
"""

import binascii
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from umbilical.fault import IgnitionError

TEXT_MEDIA_TYPE: Final = "text/plain;charset=utf-8"
"""What the installer writes for everything that looks like text."""

_SCHEME: Final = "data:"
_BASE64_MARK: Final = ";base64"
# RFC 2045's token: printable ASCII without the delimiters.
_TOKEN_CHARACTER: Final = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]"
# Ignition's parser looks at the beginning of a type only, so `textual/x` passes and `font/woff` does not.
_TYPE: Final = rf"(?:[xX]-|text|image|audio|video|application|message|multipart){_TOKEN_CHARACTER}*"
_VALUE: Final = r"(?:[!#$&'*+\-.0-9A-Z^_`a-z{|}~]|%[0-9A-Fa-f]{2})+"
_QUOTED: Final = r'"(?:[^"\\\x00-\x1f\x7f-\U0010ffff]|\\[abfnrtv\\"])*"'
_PARAMETER: Final = rf";{_TOKEN_CHARACTER}+=(?:{_VALUE}|{_QUOTED})"
_HEADER: Final = re.compile(
    rf"data:(?P<media>(?:{_TYPE}/{_TOKEN_CHARACTER}*)?(?:{_PARAMETER})*)(?P<mark>{_BASE64_MARK})?,"
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_PERCENT_ENCODED: Final = re.compile(r"(?:[!$&-;=?-Z_a-z~]++|%[0-9A-Fa-f]{2})*+")
# RFC 2396's unreserved characters: what Butane leaves as they are, so that its URLs come back the same.
_UNESCAPED: Final = "-_.!~*'()"


@dataclass(frozen=True)
class DataUrl:
    media_type: str
    """With its parameters, as written; empty means text/plain;charset=US-ASCII."""
    is_base64: bool
    content: bytes

    def format(self) -> str:
        if self.is_base64:
            return format_data_url(self.content, self.media_type)
        return f"{_SCHEME}{self.media_type},{quote_from_bytes(self.content, _UNESCAPED)}"


def is_data_url(source: str) -> bool:
    return source.startswith(_SCHEME)


def parse_data_url(text: str) -> DataUrl:
    header = _HEADER.match(text)
    if header is None:
        raise _undecodable(_fault_of_header(text))
    is_base64 = header["mark"] is not None
    decode = _decode_base64 if is_base64 else _decode_percents
    return DataUrl(header["media"], is_base64, decode(text[header.end() :]))


def format_data_url(content: bytes, media_type: str = TEXT_MEDIA_TYPE) -> str:
    """Encode by base64, as the installer does."""
    return f"{_SCHEME}{media_type}{_BASE64_MARK},{binascii.b2a_base64(content, newline=False).decode('ascii')}"


def _decode_base64(payload: str) -> bytes:
    # binascii's own strict mode lets padding behind a whole group pass, and Ignition stops the boot for it.
    if len(payload) % 4 or _BASE64.fullmatch(payload) is None:
        raise _undecodable("its base64 is broken: a foreign character, or padding that is missing or misplaced")
    return binascii.a2b_base64(payload)


def _decode_percents(payload: str) -> bytes:
    if _PERCENT_ENCODED.fullmatch(payload) is None:
        raise _undecodable("its payload has a character that must be percent-encoded, or a % without two hex digits")
    return unquote_to_bytes(payload)


def _fault_of_header(text: str) -> str:
    if not is_data_url(text):
        return "it does not begin with data:"
    if "," not in text:
        return "it has no comma before the payload"
    return "the media type before the comma is malformed"


def _undecodable(why: str) -> IgnitionError:
    # The payload itself is never shown: it may be a key.
    return IgnitionError("UMB142", "a data URL cannot be decoded", why, "make the installer write the config again")
