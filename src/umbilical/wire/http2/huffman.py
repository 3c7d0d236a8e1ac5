"""Decodes Huffman-coded header strings: RFC 7541 section 5.2 and appendix B.

The code is canonical: it follows from the length of each symbol's code.
"""

from typing import Final

_SYMBOLS: Final = (
    (5, b"012aceiost"), (6, b" %-./3456789=A_bdfghlmnpru"), (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"), (8, b"&*,;XZ"),
    (10, b'!"()?'), (11, b"'+|"), (12, b"#>"), (13, b"\x00$@[]~"), (14, b"^}"), (15, b"<`{"), (19, b"\\\xc3\xd0"),
    (20, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"), (21, b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (22, b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9"),
    (23, (b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf"
         b"\xc5\xe7\xef")),
    (24, b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"), (25, b"\xc7\xcf\xea\xeb"),
    (26, b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"),
    (27, b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe"),
    (28, (b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
         b"\x7f\xdc\xf9")),
    (30, b"\n\r\x16"),
)  # fmt: skip
"""Symbols by the length of their codes in bits, in the order of their codes. The code after the last one marks the end
of a string and is an error inside it."""
_SHORT_BITS: Final = 8
"""Header strings consist almost only of symbols with shorter codes, which one look into a table finds."""


def _short_codes() -> tuple[bytes, bytes]:
    """Symbol and length of the code that begins with each byte; length 0 for longer codes."""
    symbols, lengths = bytearray(), bytearray()
    for length, group in _SYMBOLS:
        if length <= _SHORT_BITS:
            copies = 1 << _SHORT_BITS - length
            for symbol in group:
                symbols += bytes((symbol,)) * copies
                lengths += bytes((length,)) * copies
    rest = bytes((1 << _SHORT_BITS) - len(symbols))
    return bytes(symbols) + rest, bytes(lengths) + rest


def _long_codes() -> list[tuple[int, int, bytes]]:
    """Length, first code and symbols of each group of longer codes."""
    groups = []
    code, last = 0, 0
    for length, group in _SYMBOLS:
        code <<= length - last
        if length > _SHORT_BITS:
            groups.append((length, code, group))
        code += len(group)
        last = length
    return groups


_SHORT_SYMBOLS, _SHORT_LENGTHS = _short_codes()
_LONG: Final = _long_codes()


def decode_huffman(source: bytes) -> bytes | None:
    """None if it is not a valid code, or its padding is not valid."""
    out = bytearray()
    bits, count = 0, 0
    for byte in source:
        bits = bits << 8 | byte
        count += 8
        while count >= _SHORT_BITS:
            first = bits >> count - _SHORT_BITS
            length = _SHORT_LENGTHS[first]
            if length:
                out.append(_SHORT_SYMBOLS[first])
            else:
                length = _append_long(out, bits, count)
                if length == 0:
                    break
            count -= length
            bits &= (1 << count) - 1
        if count > 30:
            return None  # the code for the end of a string
    return bytes(out) if _decode_rest(out, bits, count) else None


def _append_long(out: bytearray, bits: int, count: int) -> int:
    """Decode a code of more than eight bits; return its length, 0 if it is incomplete."""
    for length, first, symbols in _LONG:
        if length > count:
            break
        position = (bits >> count - length) - first
        if position < len(symbols):
            out.append(symbols[position])
            return length
    return 0


def _decode_rest(out: bytearray, bits: int, count: int) -> bool:
    """Decode the last, incomplete byte; True if the rest is valid padding: fewer than eight bits, all of them 1."""
    while 0 < count < _SHORT_BITS:
        missing = _SHORT_BITS - count
        first = bits << missing | (1 << missing) - 1
        length = _SHORT_LENGTHS[first]
        if length == 0 or length > count:
            break
        out.append(_SHORT_SYMBOLS[first])
        count -= length
        bits &= (1 << count) - 1
    return count < _SHORT_BITS and bits == (1 << count) - 1
