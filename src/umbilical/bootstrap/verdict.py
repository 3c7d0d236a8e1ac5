"""The first line of an analysis: which stage bootkube is in or fails in, since when, and how often."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from umbilical.bootstrap.bundle_facts import BOOTKUBE, BundleFacts
from umbilical.bootstrap.service_record import Entry, Failure, ServiceRecord, State
from umbilical.checks.report import printable

MAX_STAGE: Final = 60
_UNNAMED: Final = "between its stages"


@dataclass(frozen=True)
class Diagnosed:
    """Which service is to blame, what it is in, and the sentence about it."""

    service: str
    state: State
    stage: str
    sentence: str
    since: str = ""
    times: int = 0

    @property
    def is_well(self) -> bool:
        return self.state is State.ENDED_WELL

    def as_value(self) -> dict[str, Any]:
        """For programs."""
        return {
            "service": self.service,
            "state": self.state.value,
            "stage": self.stage,
            "since": self.since,
            "times": self.times,
            "text": self.sentence,
        }


def verdict(facts: BundleFacts) -> Diagnosed:
    """Judge bootkube; where it never ran, whoever kept it from running."""
    record = facts.bootkube
    if record is None or record.state is State.NOT_STARTED:
        return _never_ran(facts, record)
    if record.state is State.ENDED_WELL:
        when = shown_time(record.entries[-1])
        return Diagnosed(BOOTKUBE, State.ENDED_WELL, "", f"bootkube ended well at {when}{_runs(record)}")
    failure = record.last_failure
    if record.state is State.FAILING and failure is not None:
        return _failing(BOOTKUBE, failure)
    return _unfinished(facts, record)


def shown_time(entry: Entry) -> str:
    time = entry.time
    return time.strftime("%Y-%m-%d %H:%M:%SZ") if time is not None else "an unknown time"


def shown_stage(stage: str) -> str:
    return f"in stage {printable(stage)[:MAX_STAGE]}" if stage else _UNNAMED


def _never_ran(facts: BundleFacts, record: ServiceRecord | None) -> Diagnosed:
    for service, other in facts.records.items():
        failure = other.last_failure
        if service != BOOTKUBE and other.state is State.FAILING and failure is not None:
            found = _failing(printable(service)[:MAX_STAGE], failure)
            return dataclasses.replace(found, sentence=f"{found.sentence}; bootkube never ran")
    why = "its record is empty" if record is not None else "the bundle has no record of it"
    return Diagnosed(BOOTKUBE, State.NOT_STARTED, "", f"bootkube's stage is not known: {why}")


def _failing(service: str, failure: Failure) -> Diagnosed:
    where = shown_stage(failure.stage)
    if failure.times == 1:
        sentence = f"{service} failed {where} at {shown_time(failure.last)}"
    else:
        span = f"{failure.times} times since {shown_time(failure.first)}, last at {shown_time(failure.last)}"
        sentence = f"{service} fails {where}: {span}"
    return Diagnosed(service, State.FAILING, failure.stage, sentence, failure.first.timestamp, failure.times)


def _unfinished(facts: BundleFacts, record: ServiceRecord) -> Diagnosed:
    stage, done = record.open_stage, record.last_done
    if stage is not None:
        lasted = _lasted(stage.time, facts.end)
        sentence = f"bootkube is {shown_stage(stage.stage)} since {shown_time(stage)}{lasted} and has not left it"
        return Diagnosed(BOOTKUBE, State.IN_STAGE, stage.stage, sentence + _runs(record), stage.timestamp)
    last = record.entries[-1]
    after = f"after {printable(done.stage)[:MAX_STAGE]}, " if done is not None else ""
    sentence = f"bootkube is between two stages, {after}since {shown_time(last)}{_lasted(last.time, facts.end)}"
    return Diagnosed(BOOTKUBE, State.BETWEEN_STAGES, "", sentence + _runs(record), last.timestamp)


def _lasted(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None or end - start < timedelta(minutes=1):
        return ""
    minutes = int((end - start).total_seconds()) // 60
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f" ({hours}{minutes % 60} min when the bundle was made)"


def _runs(record: ServiceRecord) -> str:
    return f", in its run {record.starts}" if record.starts > 1 else ""
