"""Data URLs (RFC 2397) with the rules of Ignition's parser, hashes, and gzip with a size limit. Refuses what Ignition
refuses at boot."""

import binascii
import hashlib
import re
import zlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from umbilical.fault import IgnitionError

TEXT_MEDIA_TYPE: Final = "text/plain;charset=utf-8"
"""What the installer writes for text."""

_SCHEME: Final = "data:"
_BASE64_MARK: Final = ";base64"
# RFC 2045 token: printable ASCII without the delimiters.
_TOKEN_CHARACTER: Final = r"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]"
# Ignition's parser checks only the beginning of a type: `textual/x` passes, `font/woff` does not.
_TYPE: Final = rf"(?:[xX]-|text|image|audio|video|application|message|multipart){_TOKEN_CHARACTER}*"
_VALUE: Final = r"(?:[!#$&'*+\-.0-9A-Z^_`a-z{|}~]|%[0-9A-Fa-f]{2})+"
_QUOTED: Final = r'"(?:[^"\\\x00-\x1f\x7f-\U0010ffff]|\\[abfnrtv\\"])*"'
_PARAMETER: Final = rf";{_TOKEN_CHARACTER}+=(?:{_VALUE}|{_QUOTED})"
_HEADER: Final = re.compile(
    rf"data:(?P<media>(?:{_TYPE}/{_TOKEN_CHARACTER}*)?(?:{_PARAMETER})*)(?P<mark>{_BASE64_MARK})?,"
)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_PERCENT_ENCODED: Final = re.compile(r"(?:[!$&-;=?-Z_a-z~]++|%[0-9A-Fa-f]{2})*+")
# Unreserved characters of RFC 2396, which Butane does not escape: its URLs are kept unchanged.
_UNESCAPED: Final = "-_.!~*'()"


@dataclass(frozen=True)
class DataUrl:
    media_type: str
    """With parameters, as written; empty means text/plain;charset=US-ASCII."""
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
    """Encode as base64, like the installer."""
    return f"{_SCHEME}{media_type}{_BASE64_MARK},{binascii.b2a_base64(content, newline=False).decode('ascii')}"


def _decode_base64(payload: str) -> bytes:
    # binascii's strict mode accepts padding after a complete group; Ignition does not.
    if len(payload) % 4 or _BASE64.fullmatch(payload) is None:
        raise _undecodable("its base64 is invalid: a wrong character, or missing or misplaced padding")
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
    # The message never holds the payload: it may be a key.
    return IgnitionError("UMB142", "could not decode a data URL", why, "create the config again with the installer")


# gzip can expand a thousandfold.
MAX_FILE_BYTES: Final = 64 << 20
HASH_KINDS: Final = ("sha512", "sha256")
_GZIP_WINDOW: Final = 31


def hash_like(pattern: str, content: bytes) -> str:
    """Hash with the algorithm of `pattern` ("sha512-...")."""
    kind = pattern.partition("-")[0]
    if kind not in HASH_KINDS:
        why = f"its algorithm {kind[:20]!r} is unknown"
        raise IgnitionError("UMB142", "could not check the hash of a file", why, "use sha512 or sha256")
    return f"{kind}-{hashlib.new(kind, content).hexdigest()}"


def gunzip(payload: bytes) -> bytes:
    """Decompress all members; trailing data is an error."""
    parts: list[bytes] = []
    room = MAX_FILE_BYTES
    while payload or not parts:
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            parts.append(member.decompress(payload, room + 1))
        except zlib.error as fault:
            raise _broken_gzip(str(fault)) from None
        room -= len(parts[-1])
        if room < 0:
            raise _broken_gzip(f"it expands to more than {MAX_FILE_BYTES} bytes")
        if not member.eof:
            raise _broken_gzip("it is truncated")
        payload = member.unused_data
    return b"".join(parts)


def gzip(content: bytes) -> bytes:
    """Compress without a time stamp, so that equal content gives equal bytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(content) + deflate.flush()
    trailer = zlib.crc32(content).to_bytes(4, "little") + (len(content) & 0xFFFFFFFF).to_bytes(4, "little")
    # RFC 1952: no flags, no time, best compression, unknown system.
    return b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\xff" + body + trailer


def _broken_gzip(why: str) -> IgnitionError:
    remedy = "create the config again with the installer"
    return IgnitionError("UMB142", "could not decompress a file", f"its gzip is broken: {why}", remedy)
