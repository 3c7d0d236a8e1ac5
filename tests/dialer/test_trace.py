"""A trace tells of the server that was tried last, and in a line each of those before it."""

from umbilical.dialer.trace import Hop, Trace


def test_hops_come_in_order_and_sum_up() -> None:
    trace = Trace()
    trace.begin("unix:/s")
    trace.passed("connect", 0.25, "unix:/s")
    trace.passed("dial", 0.5, "10.0.0.1:1")
    assert trace.hops == [Hop("connect", 0.25, "unix:/s"), Hop("dial", 0.5, "10.0.0.1:1")]
    assert trace.seconds == 0.75
    assert (trace.server, trace.passed_over) == ("unix:/s", [])


def test_the_next_server_begins_anew_and_leaves_a_line_of_the_last() -> None:
    trace = Trace()
    trace.begin("one:1")
    trace.failed("connect", 0.1, "one:1", "connection refused")
    trace.begin("two:2")
    trace.passed("connect", 0.2, "two:2")
    assert trace.passed_over == ["one:1: connection refused"]
    assert trace.hops == [Hop("connect", 0.2, "two:2")]
