"""What lies between a data URL and a file's content: gzip with a bound, and the hashes of verification.hash."""

import hashlib
import zlib
from typing import Final

from umbilical.fault import IgnitionError

# A kilobyte of gzip can grow to a megabyte.
MAX_FILE_BYTES: Final = 64 << 20
HASH_KINDS: Final = ("sha512", "sha256")
_GZIP_WINDOW: Final = 31


def hash_like(pattern: str, content: bytes) -> str:
    """Hash by the kind that `pattern` ("sha512-...") names."""
    kind = pattern.partition("-")[0]
    if kind not in HASH_KINDS:
        raise IgnitionError(
            "UMB142", "a content hash cannot be checked", f"its kind {kind[:20]!r} is not known", "use sha512 or sha256"
        )
    return f"{kind}-{hashlib.new(kind, content).hexdigest()}"


def gunzip(payload: bytes) -> bytes:
    """Decompress all members; nothing may follow them."""
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
            raise _broken_gzip(f"it grows past {MAX_FILE_BYTES} bytes")
        if not member.eof:
            raise _broken_gzip("it ends in the middle")
        payload = member.unused_data
    return b"".join(parts)


def gzip(content: bytes) -> bytes:
    """Compress without a time stamp: the same content gives the same bytes, today and tomorrow."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(content) + deflate.flush()
    trailer = zlib.crc32(content).to_bytes(4, "little") + (len(content) & 0xFFFFFFFF).to_bytes(4, "little")
    # RFC 1952: no flags, no time, "best compression", unknown system.
    return b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\xff" + body + trailer


def _broken_gzip(why: str) -> IgnitionError:
    remedy = "make the installer write the config again"
    return IgnitionError("UMB142", "a gzip payload cannot be read", f"its gzip is broken: {why}", remedy)
