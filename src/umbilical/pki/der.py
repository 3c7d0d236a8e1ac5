"""DER, read only: what X.509 needs of it. Lengths are checked against the bytes that are there; nothing recurses."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
SET: Final = 0x31

_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
_TIME_FORMATS: Final = {UTC_TIME: "%y%m%d%H%M%SZ", GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_HIGH_TAG: Final = 0x1F
_MAX_LENGTH_OCTETS: Final = 4


class DerError(ValueError):
    """The bytes are not what X.509 has in this place."""


@dataclass(frozen=True)
class Element:
    tag: int
    content: bytes
    encoded: bytes
    """With its tag and length: what a comparison or a hash of the whole needs."""


def elements(data: bytes) -> list[Element]:
    """Part a run of elements; what follows the last must be nothing."""
    found = []
    start = 0
    while start < len(data):
        end, element = _element(data, start)
        found.append(element)
        start = end
    return found


def only(data: bytes, tag: int) -> Element:
    """Read exactly one element of this tag."""
    found = elements(data)
    if len(found) != 1:
        raise DerError(f"{len(found)} elements where one belongs")
    return expect(found[0], tag)


def expect(element: Element, tag: int) -> Element:
    if element.tag != tag:
        raise DerError(f"tag {element.tag:#04x} where {tag:#04x} belongs")
    return element


def integer(element: Element) -> int:
    content = expect(element, INTEGER).content
    if not content:
        raise DerError("an integer without content")
    return int.from_bytes(content, "big", signed=True)


def boolean(element: Element) -> bool:
    return expect(element, BOOLEAN).content not in (b"", b"\x00")


def bits(element: Element) -> bytes:
    """Return a bit string's octets; unused bits at the end are left as they are."""
    content = expect(element, BIT_STRING).content
    if not content or content[0] > 7:
        raise DerError("a bit string without its count of unused bits")
    return content[1:]


def oid(element: Element) -> str:
    content = expect(element, OBJECT_IDENTIFIER).content
    if not content or content[-1] & 0x80:
        raise DerError("an object identifier that does not end")
    arcs = [0]
    for octet in content:
        arcs[-1] = arcs[-1] << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(0)
    # The first two arcs share a number: X.690 §8.19.4.
    first = min(arcs[0] // 40, 2)
    return ".".join(str(arc) for arc in (first, arcs[0] - 40 * first, *arcs[1:-1]))


def text(element: Element) -> str:
    encoding = _ENCODINGS.get(element.tag)
    if encoding is None:
        raise DerError(f"tag {element.tag:#04x} is no kind of text")
    try:
        return element.content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DerError(f"text that is not {encoding}") from error


def moment(element: Element) -> datetime:
    form = _TIME_FORMATS.get(element.tag)
    if form is None:
        raise DerError(f"tag {element.tag:#04x} is no kind of time")
    try:
        found = datetime.strptime(element.content.decode("ascii"), form).replace(tzinfo=UTC)
    except ValueError as error:
        raise DerError("a time that cannot be read") from error
    # strptime turns at 68, X.509 at 49: RFC 5280 §4.1.2.5.1.
    is_past_century = element.tag == UTC_TIME and found.year >= 2050
    return found.replace(year=found.year - 100) if is_past_century else found


def _element(data: bytes, start: int) -> tuple[int, Element]:
    if data[start] & _HIGH_TAG == _HIGH_TAG:
        raise DerError("a tag of many octets, which X.509 has not")
    body, length = _length(data, start + 1)
    end = body + length
    if end > len(data):
        raise DerError(f"{length} octets announced, {len(data) - body} there")
    return end, Element(data[start], data[body:end], data[start:end])


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content begins, and its length."""
    if at >= len(data):
        raise DerError("an element without a length")
    first = data[at]
    if first < 0x80:
        return at + 1, first
    count = first & 0x7F
    octets = data[at + 1 : at + 1 + count]
    if not 1 <= count <= _MAX_LENGTH_OCTETS or len(octets) != count:
        raise DerError("a length that cannot be read")
    return at + 1 + count, int.from_bytes(octets, "big")
