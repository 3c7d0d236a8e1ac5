"""The judge of bytes can be trusted: it takes any cut of the right ones, and names what is wrong with others."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.pattern import BLOCK_BYTES, Check, Direction, Violation, stretch

SIZE = 5 * BLOCK_BYTES
SENT = stretch(7, Direction.UP, 0, SIZE)


def _refusal(octets: bytes) -> str:
    with pytest.raises(Violation) as caught:
        Check(7, Direction.UP, SIZE).take(octets)
    return str(caught.value)


@given(st.lists(st.integers(0, SIZE), max_size=20))
def test_a_stream_is_right_in_whatever_pieces_it_comes(cuts: list[int]) -> None:
    check = Check(7, Direction.UP, SIZE)
    places = sorted({0, *cuts, SIZE})
    for start, end in itertools.pairwise(places):
        assert not check.is_whole
        check.take(SENT[start:end])
    assert check.is_whole


@given(st.integers(0, SIZE - 1), st.integers(1, SIZE))
def test_a_stretch_is_a_piece_of_the_whole(offset: int, size: int) -> None:
    size = min(size, SIZE - offset)
    assert stretch(7, Direction.UP, offset, size) == SENT[offset : offset + size]


def test_lost_bytes_are_counted() -> None:
    assert _refusal(SENT[:1000] + SENT[1500:3000]) == "tunnel 7 at byte 1000: 500 bytes are lost"


def test_doubled_bytes_are_found() -> None:
    assert _refusal(SENT[:1000] + SENT[600:3000]) == "tunnel 7 at byte 1000: bytes of place 600 again"


def test_bytes_in_the_wrong_order_are_found() -> None:
    assert "are lost" in _refusal(SENT[:1000] + SENT[2000:3000] + SENT[1000:2000])


@pytest.mark.parametrize(("tunnel", "direction"), [(8, Direction.UP), (7, Direction.DOWN)])
def test_bytes_of_another_stream_are_told(tunnel: int, direction: Direction) -> None:
    other = stretch(tunnel, direction, 1000, 500)
    assert "not of this stream" in _refusal(SENT[:1000] + other)


def test_more_bytes_than_were_sent_are_told() -> None:
    assert "3 bytes more" in _refusal(SENT + b"abc")


@given(st.integers(0, SIZE - 1))
def test_one_wrong_bit_is_found_wherever_it_is(place: int) -> None:
    wrong = bytearray(SENT)
    wrong[place] ^= 1
    assert f"at byte {place}:" in _refusal(bytes(wrong))
