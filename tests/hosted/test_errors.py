"""Faults of these commands are told in three lines."""

from umbilical.fault import Fault
from umbilical.hosted.errors import HostedError


def test_a_fault_has_what_why_and_next() -> None:
    fault = HostedError("UMB573", "what", "why", "next")
    assert isinstance(fault, Fault)
    assert str(fault).splitlines() == ["UMB573 what", "  why: why", "  next: next"]
