"""Two lanes that meet only at frame boundaries, and in an order that callers can rely on."""

from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire.buffer import BlockPool
from umbilical.wire.http2.outbox import Outbox

BLOCK_BYTES = 64


def outbox() -> tuple[Outbox, BlockPool]:
    pool = BlockPool(BLOCK_BYTES, 1)
    return Outbox(pool), pool


def put(box: Outbox, prefix: bytes, payload: bytes) -> None:
    room = box.room(len(prefix), len(payload))
    room[:] = payload
    box.commit(prefix, len(payload))


def send(box: Outbox, limit: int = 1 << 30) -> bytes:
    view = box.pending()
    if view is None:
        return b""
    piece = bytes(view[:limit])
    box.sent(len(piece))
    return piece


def send_all(box: Outbox) -> bytes:
    sent = b""
    for _ in range(1_000):
        if not (piece := send(box)):
            return sent
        sent += piece
    raise AssertionError("it never ends")


def test_control_goes_ahead_of_payload_that_has_not_begun() -> None:
    box, _ = outbox()
    put(box, b"<", b"payload")
    box.add_control(b"[control]")
    assert send_all(box) == b"[control]<payload"


def test_control_waits_for_the_end_of_the_frames_that_were_begun() -> None:
    box, _ = outbox()
    put(box, b"<", b"payload")
    assert send(box, 3) == b"<pa"
    box.add_control(b"[control]")
    assert send_all(box) == b"yload[control]"


def test_a_later_payload_never_overtakes_control_that_was_queued_before_it() -> None:
    """Else the first DATA of a connection arrives ahead of the DIAL_RSP that announces it."""
    box, _ = outbox()
    put(box, b"<", b"old")
    assert send(box, 2) == b"<o"
    box.add_control(b"[dial response]")
    put(box, b"<", b"new")
    assert box.add_ordered(b"(close)")
    assert send_all(box) == b"ld[dial response]<new(close)"


def test_control_at_a_boundary_goes_at_once() -> None:
    box, _ = outbox()
    put(box, b"<", b"one")
    send(box, 1)
    box.add_control(b"[1]")
    put(box, b"<", b"two")
    assert send(box) == b"one"
    box.add_control(b"[2]")
    assert send(box, 4) == b"[1][", "what stands at the boundary is sent together"
    box.add_control(b"[3]")
    assert send_all(box) == b"2][3]<two"


def test_ordered_frames_go_behind_the_payload_that_is_there() -> None:
    box, _ = outbox()
    put(box, b"<", b"payload")
    assert box.add_ordered(b"(close)")
    assert send_all(box) == b"<payload(close)"


def test_ordered_frames_without_payload_go_the_quick_way() -> None:
    box, _ = outbox()
    assert box.add_ordered(b"(close)")
    put(box, b"<", b"payload")
    assert send_all(box) == b"(close)<payload"


def test_ordered_frames_that_do_not_fit_are_not_taken() -> None:
    box, _ = outbox()
    put(box, b"<", bytes(60))
    assert not box.add_ordered(b"(close)")
    assert len(send_all(box)) == 61
    assert box.add_ordered(b"(close)" * 100), "behind nothing there is no limit"


def test_a_block_is_held_only_while_payload_waits() -> None:
    box, pool = outbox()
    block = pool.take()
    pool.give(block)
    put(box, b"<", b"payload")
    assert pool.take() is not block
    send_all(box)
    assert pool.take() is block


def test_room_that_was_not_used_is_given_back_at_the_next_flush() -> None:
    box, pool = outbox()
    block = pool.take()
    pool.give(block)
    box.room(4, 10)
    assert box.pending() is None
    assert pool.take() is block


def test_counts_tell_what_waits() -> None:
    box, _ = outbox()
    assert box.is_empty()
    assert box.free_bytes() == BLOCK_BYTES
    box.add_control(b"[control]")
    put(box, b"<", b"payload")
    assert (box.control_bytes(), box.data_bytes(), box.free_bytes()) == (9, 8, BLOCK_BYTES - 8)
    send(box, 4)
    assert (box.control_bytes(), box.is_empty()) == (5, False)
    send_all(box)
    assert (box.control_bytes(), box.data_bytes(), box.is_empty()) == (0, 0, True)


def test_a_released_outbox_is_empty_and_can_be_used_again() -> None:
    box, _ = outbox()
    put(box, b"<", b"payload")
    box.add_control(b"[control]")
    send(box, 3)
    box.add_control(b"[more]")
    box.release()
    assert box.pending() is None
    assert (box.control_bytes(), box.data_bytes()) == (0, 0)
    box.add_control(b"[again]")
    assert send_all(box) == b"[again]"


@given(st.lists(st.sampled_from("cop") | st.integers(1, 30), max_size=60))
def test_no_frame_is_torn_lost_or_overtaken_by_a_later_ordered_one(steps: list[str | int]) -> None:
    """Frames are `kind + number + filling + .`; a number among the steps sends so many bytes."""
    box, _ = outbox()
    queued: list[str] = []
    sent = b""
    for number, step in enumerate(steps):
        frame = f"{step}{number}:{'x' * (number % 7)}."
        if step == "c":
            box.add_control(frame.encode())
        elif step == "o":
            if not box.add_ordered(frame.encode()):
                continue
        elif step == "p":
            if box.free_bytes() < len(frame):
                continue
            put(box, frame[:2].encode(), frame[2:].encode())
        else:
            sent += send(box, int(step))
            continue
        queued.append(frame)
    sent += send_all(box)
    arrived = [f"{frame}." for frame in sent.decode().split(".")[:-1]]
    assert sorted(arrived) == sorted(queued)
    # Control may overtake; payload and ordered frames pass nothing that was queued before them.
    for frame in arrived:
        if frame[0] in "op":
            earlier = queued[: queued.index(frame)]
            assert set(earlier) <= set(arrived[: arrived.index(frame)])
    control = [frame for frame in arrived if frame[0] == "c"]
    assert control == [frame for frame in queued if frame[0] == "c"]
