"""Faults of Ignition configs are faults like all others."""

from umbilical.fault import Fault
from umbilical.ignition.errors import IgnitionError


def test_it_is_printed_as_every_fault() -> None:
    fault = IgnitionError("UMB140", "what", "why", "remedy")
    assert isinstance(fault, Fault)
    assert str(fault).splitlines() == ["UMB140 what", "  why: why", "  next: remedy"]
