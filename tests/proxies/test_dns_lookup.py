"""What a lookup can come to."""

from umbilical.dialer.failure import Reason
from umbilical.proxies.dns_lookup import LookupFailed, Result, Way


def test_a_failed_lookup_is_a_failed_dial_for_its_name() -> None:
    failure = LookupFailed(Result.TIMEOUT, "DNS server 10.0.0.10:53", "no answer within 5 s")
    assert failure.reason is Reason.NAME
    assert str(failure) == "DNS server 10.0.0.10:53: no answer within 5 s"


def test_only_absence_is_an_answer() -> None:
    answers = [result for result in Result if LookupFailed(result, "h", "t").is_answer]
    assert answers == [Result.ABSENT]


def test_the_values_are_those_of_the_metrics() -> None:
    assert {way.value for way in Way} == {"guest", "service", "management"}
    assert {result.value for result in Result} == {"ok", "nxdomain", "timeout", "failed", "cached"}
