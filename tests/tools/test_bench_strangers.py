import hpack
from tests.wire.http2.ends import split

import bench_strangers
from umbilical.wire.http2 import frames


def test_each_call_of_the_header_bomb_has_the_long_path_and_all_but_the_first_are_short() -> None:
    decoder = hpack.Decoder()
    calls = split(bench_strangers.header_bomb())[:3]
    assert [len(call.payload) < 10 for call in calls] == [False, True, True]
    for call in calls:
        assert dict(decoder.decode(call.payload, raw=True))[b":path"] == b"x" * 3_000


def test_every_call_of_the_rapid_reset_is_valid_and_reset() -> None:
    call, reset = split(bench_strangers.rapid_reset())[:2]
    assert dict(hpack.Decoder().decode(call.payload, raw=True)) == {
        b":method": b"POST",
        b":scheme": b"https",
        b":authority": b"x",
        b":path": b"/",
    }
    assert (reset.kind, reset.stream_id) == (frames.RST_STREAM, call.stream_id)


def test_a_row_is_the_median_of_the_rounds_and_of_their_ratios() -> None:
    told = bench_strangers.line("rapid reset", "ours", [(100.0, 150.0, 5), (200.0, 200.0, 7), (100.0, 300.0, 6)])
    assert told.split() == ["rapid", "reset", "ours", "100", "us", "200", "us", "1.50", "6"]
