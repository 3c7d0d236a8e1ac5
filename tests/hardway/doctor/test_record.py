"""What the record has to say."""

from dataclasses import replace

from umbilical.hardway.doctor.record import examine_record
from umbilical.hardway.stages import catalogue
from umbilical.hardway.state import StageRecord, State, Status
from umbilical.hardway.waiting import Signature

FAILURE = {
    "code": "UMB725",
    "what": "waited in vain for the API",
    "why": "connection refused",
    "next": "umbilical stage retry 10",
}
KNOWN = [Signature("refused", "nothing listens yet")]


def examined(record: StageRecord, *, is_locked: bool = False) -> list[str]:
    state = State(stages={10: record})
    return [str(one) for one in examine_record(catalogue.stages(), state, KNOWN, is_locked=is_locked)]


def test_the_stage_that_failed_is_told_in_its_own_words_with_what_is_known() -> None:
    (told,) = examined(StageRecord(Status.FAILED, failure=FAILURE))
    assert told == (
        "UMB725 stage 10 bootstrap: waited in vain for the API\n"
        "  why: connection refused\n"
        "  next: nothing listens yet; then umbilical stage retry 10"
    )


def test_a_stage_that_was_killed_is_told_unless_somebody_works_on_it() -> None:
    record = StageRecord(Status.RUNNING)
    assert len(examined(record)) == 1
    assert examined(record, is_locked=True) == []
    assert len(examined(replace(record, status=Status.INTERRUPTED))) == 1


def test_a_stage_that_is_done_is_no_complaint() -> None:
    assert examined(StageRecord(Status.DONE)) == []
    assert examined(StageRecord()) == []
