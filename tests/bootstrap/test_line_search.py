"""Known lines in logs: found with their numbers wherever a block ends, and shown without doing harm."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.bootstrap.line_search import BLOCK_BYTES, MARGIN, MAX_LINE_BYTES, Evidence, Sighting, Signature, search

NEEDLE = Signature("needle", re.compile(""), (b"needle",), re.compile(rb"needle\d?"))
EXACT = Signature("seven", re.compile(""), (b"needle",), re.compile(rb"needle7"))


class Pieces:
    """A stream that gives a given number of bytes at a time."""

    def __init__(self, content: bytes, size: int) -> None:
        self._stream = io.BytesIO(content)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, self._size))


def found(content: bytes, size: int = BLOCK_BYTES, signatures: tuple[Signature, ...] = (NEEDLE,)) -> list[int]:
    return [evidence.line for _, evidence in search("a.log", Pieces(content, size), signatures)]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_line_is_found_with_its_number_however_the_stream_splits(size: int) -> None:
    assert found(b"one\nneedle\n\nfour needle\nend needle", size) == [2, 4, 5]


@given(st.lists(st.sampled_from([b"", b"hay", b"needle", b"x" * 50]), max_size=20), st.integers(1, 60))
def test_numbers_are_those_of_a_plain_search(lines: list[bytes], size: int) -> None:
    expected = [number for number, line in enumerate(lines, start=1) if b"needle" in line]
    assert found(b"\n".join(lines), size) == expected


def test_a_line_must_fit_the_pattern_too() -> None:
    names = [name for name, _ in search("a", io.BytesIO(b"needle\nneedle7\n"), (NEEDLE, EXACT))]
    assert names == ["needle", "needle", "seven"]


def test_a_line_without_an_end_is_searched_in_pieces() -> None:
    content = b"x" * (3 * MAX_LINE_BYTES) + b" needle " + b"x" * (3 * MAX_LINE_BYTES) + b"\nneedle\n"
    assert found(content, 1 << 15) == [1, 2]


def test_a_long_line_is_cut_around_what_was_found() -> None:
    content = b"a" * 5000 + b"needle" + b"b" * 5000
    ((_, evidence),) = search("a.log", io.BytesIO(content), (NEEDLE,))
    assert "needle" in evidence.text
    assert len(evidence.text) < 3 * MARGIN
    assert evidence.text.startswith("...")
    assert evidence.text.endswith("...")


def test_what_could_steer_a_terminal_is_escaped() -> None:
    ((_, evidence),) = search("a\x1b[2J.log", io.BytesIO(b"\x1b[31mneedle\r\x07\xff\n"), (NEEDLE,))
    assert "\\x1b[31mneedle" in evidence.text
    assert str(evidence).isprintable()


@pytest.mark.parametrize("line", ["Authorization: Bearer abc.def.ghi needle", "needle --token=abc.def.ghi x"])
def test_what_looks_like_a_password_is_not_shown(line: str) -> None:
    ((_, evidence),) = search("a.log", io.BytesIO(line.encode()), (NEEDLE,))
    assert "abc" not in evidence.text
    assert "***" in evidence.text


def test_many_sightings_are_told_by_the_first_and_the_last() -> None:
    sighting = Sighting(Evidence("a.log", 3, "first"))
    assert str(sighting) == 'a.log:3 "first"'
    for line in range(4, 10):
        sighting.add(Evidence("b.log", line, "next"))
    assert str(sighting) == 'a.log:3 "first"\n7 lines like it, the last at b.log:9'


def test_a_line_that_was_made_to_be_slow_is_not() -> None:
    """Quadratic patterns would take hours on this: only what is around the needle is tried."""
    slow = Signature("slow", re.compile(""), (b"needle",), re.compile(rb"a.*b.*needle.*c.*d"))
    content = b"a" * 30_000 + b"b" * 30_000 + b"needle" + b"c" * 60_000 + b"\n"
    assert list(search("a.log", io.BytesIO(content), (slow,))) == []


def test_the_second_needle_is_tried_when_the_first_does_not_fit() -> None:
    either = Signature("either", re.compile(""), (b"one", b"two"), re.compile(rb"two!"))
    assert [name for name, _ in search("a", io.BytesIO(b"one" + b" " * 5000 + b"two!"), (either,))] == ["either"]
