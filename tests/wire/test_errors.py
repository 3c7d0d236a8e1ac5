"""The two kinds of fault."""

from umbilical.wire.errors import MisuseError, ProtocolViolation


def test_a_violation_carries_what_the_answer_needs() -> None:
    violation = ProtocolViolation(3, "stream 5: window overrun", 5)
    assert (violation.code, violation.message, violation.stream_id) == (3, "stream 5: window overrun", 5)
    assert str(violation) == "stream 5: window overrun"


def test_a_violation_concerns_the_whole_connection_unless_it_names_a_stream() -> None:
    assert ProtocolViolation(1, "no preface").stream_id == 0


def test_our_own_fault_is_not_the_peers() -> None:
    assert not issubclass(MisuseError, ProtocolViolation)
    assert not issubclass(ProtocolViolation, MisuseError)
