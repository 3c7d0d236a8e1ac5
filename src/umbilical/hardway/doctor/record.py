"""What the record tells: the stage that failed last, in its own words, or one that was killed."""

from collections.abc import Iterator, Mapping, Sequence

from umbilical.hardway.doctor.diagnosis import Diagnosis, hinted, lesson_live
from umbilical.hardway.stage import Stage
from umbilical.hardway.state import State, Status
from umbilical.hardway.waiting import Signature


def examine_record(
    stages: Sequence[Stage], state: State, signatures: Sequence[Signature], *, is_locked: bool
) -> Iterator[Diagnosis]:
    """Tell of stages that ended badly. `is_locked`: somebody works on it, so that nothing was killed."""
    for stage in stages:
        record = state.stage(stage.number)
        if record.status is Status.FAILED and record.failure is not None:
            yield _failed(stage, record.failure, signatures)
        elif record.status is Status.INTERRUPTED or (record.status is Status.RUNNING and not is_locked):
            what, why = "it was ended before its end", "the record says that it began, and not what it came to"
            yield Diagnosis(record.status.value, _hop(stage), what, why, "umbilical stage run goes on from there")


def _failed(stage: Stage, failure: Mapping[str, str], signatures: Sequence[Signature]) -> Diagnosis:
    why = failure.get("why", "")
    remedy = hinted(why, failure.get("next", f"umbilical stage retry {stage.number}"), signatures)
    return Diagnosis(
        failure.get("code", ""), _hop(stage), failure.get("what", "it failed"), why, remedy, lesson_live(why)
    )


def _hop(stage: Stage) -> str:
    return f"stage {stage.number:02} {stage.name}"
