"""The first line of an analysis."""

from datetime import UTC, datetime

from tests.support.log_bundles import BEFORE, STAGES, Record, good_record

from umbilical.bootstrap.analyze.cause_checks import verdict
from umbilical.bootstrap.analyze.facts import BundleFacts
from umbilical.bootstrap.analyze.service_record import ServiceState, parse_record


def facts_of(**records: Record) -> BundleFacts:
    facts = BundleFacts("bundle", gathered_at=datetime(2026, 11, 15, 15, 30, tzinfo=UTC))
    facts.records = {name.replace("_", "-"): parse_record(record.content()) for name, record in records.items()}
    return facts


def sentence(**records: Record) -> str:
    return verdict(facts_of(**records)).sentence


def test_a_good_end_is_told_with_its_time() -> None:
    assert sentence(bootkube=good_record()) == "bootkube succeeded at 2026-11-15 14:00:21Z"


def test_a_single_failure_is_told_with_stage_and_time_and_programs_get_the_parts() -> None:
    told = verdict(facts_of(bootkube=Record().start().fails("konnectivity-certs")))
    assert told.sentence == "bootkube failed in step konnectivity-certs at 2026-11-15 14:00:03Z"
    assert (told.state, told.stage, told.times) == (ServiceState.FAILING, "konnectivity-certs", 1)
    parts = {"stage": "konnectivity-certs", "state": "failing", "since": "2026-11-15T14:00:03Z", "times": 1}
    assert parts.items() <= told.as_value().items()


def test_repeated_failures_are_told_with_since_when_and_how_often() -> None:
    script = Record().start().done(*BEFORE)
    for _ in range(5):
        script.fails("konnectivity-certs").start()
    assert sentence(bootkube=script) == (
        "bootkube fails in step konnectivity-certs: 5 times since 2026-11-15 14:00:09Z, last at 2026-11-15 14:00:25Z"
    )


def test_a_stage_that_does_not_end_is_told_with_how_long_and_a_run_between_stages_with_the_last_one() -> None:
    script = Record().start().done(*STAGES[:7]).enters("cb-bootstrap")
    assert sentence(bootkube=script) == (
        "bootkube is in step cb-bootstrap since 2026-11-15 14:00:15Z (1 h 29 min when the bundle was gathered) "
        "and has not finished it"
    )
    told = sentence(bootkube=Record().start().done("cvo-bootstrap"))
    assert told.startswith("bootkube is between two steps, after cvo-bootstrap, since 2026-11-15 14:00:02Z")


def test_a_bundle_without_records_says_so_and_a_service_before_bootkube_is_blamed() -> None:
    told = verdict(facts_of(release_image=Record().start().fails("pull-release-image")))
    assert told.service == "release-image"
    assert told.sentence.endswith("; bootkube never ran")
    assert "no record of it" in sentence()
    assert "record is empty" in sentence(bootkube=Record())


def test_a_hostile_stage_is_escaped_and_cut() -> None:
    for stage in ("\x1b[2Jevil", "x" * 10_000):
        told = sentence(bootkube=Record().start().fails(stage))
        assert told.isprintable()
        assert len(told) < 250
