"""Checks are asked one by one, and keep their own words in what they found."""

from umbilical.checks.check import Check, Outcome, Verdict, failed, has_failed, passed, run_checks, skipped, warned


def _check(identifier: str, verdict: Verdict) -> Check[int]:
    return Check(identifier, "it holds", "else it breaks", "mend it", lambda facts: verdict)


def test_a_failed_check_does_not_stop_the_others() -> None:
    verdicts = (failed("no"), passed(), warned("hm"), skipped("-"))
    outcomes = [finding.outcome for finding in run_checks([_check("A1", verdict) for verdict in verdicts], 0)]
    assert outcomes == [Outcome.FAILED, Outcome.PASSED, Outcome.WARNED, Outcome.SKIPPED]


def test_a_finding_has_the_words_of_its_check_and_only_a_failure_counts_as_failed() -> None:
    (finding,) = run_checks([_check("A1", failed("saw 7"))], 0)
    assert (finding.id, finding.title, finding.why, finding.fix) == ("A1", "it holds", "else it breaks", "mend it")
    assert finding.evidence == "saw 7"
    assert has_failed(run_checks([_check("A1", failed("no")), _check("A2", passed())], 0))
    assert not has_failed(run_checks([_check("A1", warned("hm")), _check("A2", skipped("-"))], 0))
