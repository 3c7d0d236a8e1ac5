"""Checks of a log bundle: known log lines, records, routes, certificates and manifests; and the first line of an
analysis: the bootkube step that runs or fails, since when, and how often."""

import dataclasses
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from umbilical.bootstrap.analyze.facts import BOOTKUBE, BundleFacts
from umbilical.bootstrap.analyze.service_record import RecordEntry, ServiceFailure, ServiceRecord, ServiceState
from umbilical.bootstrap.analyze.signatures import FileKind, quotable, shortened
from umbilical.bootstrap.names import STAGES
from umbilical.checks.check import Outcome, Verdict, failed, passed, skipped, warned
from umbilical.checks.report import printable
from umbilical.pki.certificate import Certificate

MAX_STAGE: Final = 60
_UNNAMED: Final = "between its steps"


@dataclass(frozen=True)
class BundleVerdict:
    """The failed service, its state and step, and a sentence about it."""

    service: str
    state: ServiceState
    stage: str
    sentence: str
    since: str = ""
    times: int = 0

    @property
    def is_well(self) -> bool:
        return self.state is ServiceState.ENDED_WELL

    def as_value(self) -> dict[str, Any]:
        return {
            "service": self.service,
            "state": self.state.value,
            "stage": self.stage,
            "since": self.since,
            "times": self.times,
            "text": self.sentence,
        }


def verdict(facts: BundleFacts) -> BundleVerdict:
    """Report on bootkube, or on the service that kept it from running."""
    record = facts.bootkube
    if record is None or record.state is ServiceState.NOT_STARTED:
        return _never_ran(facts, record)
    if record.state is ServiceState.ENDED_WELL:
        when = shown_time(record.entries[-1])
        return BundleVerdict(BOOTKUBE, ServiceState.ENDED_WELL, "", f"bootkube succeeded at {when}{_runs(record)}")
    failure = record.last_failure
    if record.state is ServiceState.FAILING and failure is not None:
        return _failing(BOOTKUBE, failure)
    return _unfinished(facts, record)


def shown_time(entry: RecordEntry) -> str:
    time = entry.time
    return time.strftime("%Y-%m-%d %H:%M:%SZ") if time is not None else "an unknown time"


def shown_stage(stage: str) -> str:
    return f"in step {printable(stage)[:MAX_STAGE]}" if stage else _UNNAMED


def _never_ran(facts: BundleFacts, record: ServiceRecord | None) -> BundleVerdict:
    for service, other in facts.records.items():
        failure = other.last_failure
        if service != BOOTKUBE and other.state is ServiceState.FAILING and failure is not None:
            found = _failing(printable(service)[:MAX_STAGE], failure)
            return dataclasses.replace(found, sentence=f"{found.sentence}; bootkube never ran")
    why = "its record is empty" if record is not None else "the bundle has no record of it"
    return BundleVerdict(BOOTKUBE, ServiceState.NOT_STARTED, "", f"bootkube's step is not known: {why}")


def _failing(service: str, failure: ServiceFailure) -> BundleVerdict:
    where = shown_stage(failure.stage)
    if failure.times == 1:
        sentence = f"{service} failed {where} at {shown_time(failure.last)}"
    else:
        span = f"{failure.times} times since {shown_time(failure.first)}, last at {shown_time(failure.last)}"
        sentence = f"{service} fails {where}: {span}"
    return BundleVerdict(service, ServiceState.FAILING, failure.stage, sentence, failure.first.timestamp, failure.times)


def _unfinished(facts: BundleFacts, record: ServiceRecord) -> BundleVerdict:
    stage, done = record.open_stage, record.last_done
    if stage is not None:
        lasted = _lasted(stage.time, facts.end)
        sentence = f"bootkube is {shown_stage(stage.stage)} since {shown_time(stage)}{lasted} and has not finished it"
        return BundleVerdict(BOOTKUBE, ServiceState.IN_STAGE, stage.stage, sentence + _runs(record), stage.timestamp)
    last = record.entries[-1]
    after = f"after {printable(done.stage)[:MAX_STAGE]}, " if done is not None else ""
    sentence = f"bootkube is between two steps, {after}since {shown_time(last)}{_lasted(last.time, facts.end)}"
    return BundleVerdict(BOOTKUBE, ServiceState.BETWEEN_STAGES, "", sentence + _runs(record), last.timestamp)


def _lasted(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None or end - start < timedelta(minutes=1):
        return ""
    minutes = int((end - start).total_seconds()) // 60
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f" ({hours}{minutes % 60} min when the bundle was gathered)"


def _runs(record: ServiceRecord) -> str:
    return f", in its run {record.starts}" if record.starts > 1 else ""


MAX_MESSAGE_LINES: Final = 6
MAX_QUOTE: Final = 300
_CERTS, _, _, _CLEANUP = STAGES
BundleCheck = Callable[[BundleFacts], Verdict]


def seen(*names: str, needs: tuple[FileKind, ...]) -> BundleCheck:
    """Return a check that fails on known lines, and passes only if a file that could contain them exists."""

    def checked(facts: BundleFacts) -> Verdict:
        found = [str(facts.matches[name]) for name in names if name in facts.matches]
        if found:
            return failed("\n".join(found))
        if not facts.kinds.intersection(needs):
            return skipped(needs[0].value)
        return passed()

    return checked


def ended_well(facts: BundleFacts) -> Verdict:
    record = facts.bootkube
    summary = verdict(facts)
    if record is None:
        return skipped(FileKind.RECORD.value)
    if summary.is_well:
        return _passed_over(facts, record)
    return failed("\n".join(_error_lines(facts, record)) or summary.sentence)


def _passed_over(facts: BundleFacts, record: ServiceRecord) -> Verdict:
    # The cleanup has its own check.
    stages = [printable(stage) for stage in record.passed_over if stage != _CLEANUP]
    if stages:
        return warned(f"{facts.record_paths[BOOTKUBE]}: failed without stopping it: {', '.join(stages[:10])}")
    return passed()


def _error_lines(facts: BundleFacts, record: ServiceRecord) -> list[str]:
    """Return the last failure from the record: the line of the script, and the end of its journal."""
    failure = record.last_failure
    if failure is None:
        return []
    path = facts.record_paths[BOOTKUBE]
    last = failure.last
    lines = [f"{path}: {shown_time(last)} {shown_stage(failure.stage)}, {_error_place(last.error_line)}"]
    message = last.error_message.splitlines()[-MAX_MESSAGE_LINES:]
    return [*lines, *(f'{path}: "{shortened(quotable(line), MAX_QUOTE)}"' for line in message)]


def _error_place(error_line: str) -> str:
    """Format where a script failed. bash writes "LINE FUNCTION FILE"; in a trap the line is always 1."""
    line, _, rest = printable(error_line).partition(" ")
    function, _, file = rest.partition(" ")
    if not (line.isdecimal() and file):
        return f"line {printable(error_line) or 'unknown'}"
    place = file if function == "main" else f"{function} of {file}"
    return f"in {place}" if int(line) <= 1 else f"line {line} of {file} ({function})"


def others_ended_well(facts: BundleFacts) -> Verdict:
    others = {name: record for name, record in facts.records.items() if name != BOOTKUBE}
    bad = [
        f"{printable(facts.record_paths[name])}: failed {shown_stage(failure.stage)} at {shown_time(failure.last)}"
        for name, record in others.items()
        if record.state is ServiceState.FAILING and (failure := record.last_failure) is not None
    ]
    if bad:
        return failed("\n".join(bad[:5]))
    return passed() if others else skipped("no record of another service")


def address_found(facts: BundleFacts) -> Verdict:
    lines_seen = seen("no address", "no route", "address gone", needs=(FileKind.JOURNAL, FileKind.RECORD))(facts)
    fails_there = verdict(facts).stage == _CERTS
    if lines_seen.outcome is Outcome.FAILED or not fails_there or FileKind.ROUTES not in facts.kinds:
        return lines_seen
    if not any(line.startswith("default") for line in facts.routes.splitlines()):
        return failed("bootstrap/network/ip-route.txt: there is no default route")
    return lines_seen


def address_is_one(facts: BundleFacts) -> Verdict:
    lines_seen = seen("null address", "no host", needs=(FileKind.JOURNAL, FileKind.RECORD, FileKind.AGENT_LOG))(facts)
    agents = facts.agents
    if agents is not None and not _is_address(agents.host):
        return failed("\n".join(filter(None, [str(agents.evidence), lines_seen.evidence])))
    return lines_seen


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def names_fit(facts: BundleFacts) -> Verdict:
    lines_seen = seen("wrong name", needs=(FileKind.AGENT_LOG,))(facts)
    agents, servers = facts.agents, _server_certificates(facts)
    if agents is None or not servers or not _is_address(agents.host):
        return lines_seen
    dialled = ipaddress.ip_address(agents.host)
    misfits = [
        f"{path}: valid for {', '.join(certificate.names) or 'no name'}; agents dial {dialled}"
        for path, certificate in servers
        if dialled not in certificate.ip_addresses
    ]
    if misfits:
        return failed("\n".join([*misfits, str(agents.evidence), *filter(None, [lines_seen.evidence])]))
    return passed() if lines_seen.outcome is Outcome.SKIPPED else lines_seen


def _server_certificates(facts: BundleFacts) -> list[tuple[str, Certificate]]:
    pairs = [(path, one) for path, several in facts.certificates.items() for one in several]
    return [(path, one) for path, one in pairs if not one.is_authority and "serverAuth" in one.usages]


def not_expired(facts: BundleFacts) -> Verdict:
    lines_seen = seen("expired", needs=(FileKind.AGENT_LOG, FileKind.SERVER_LOG))(facts)
    end = facts.end
    if end is None or not facts.certificates:
        return lines_seen
    old = [
        f"{path}: valid until {one.not_after:%Y-%m-%d %H:%M:%SZ}, the bundle ends at {end:%Y-%m-%d %H:%M:%SZ}"
        for path, several in facts.certificates.items()
        for one in several
        if one.not_after < end
    ]
    if old:
        return failed("\n".join([*old[:4], *filter(None, [lines_seen.evidence])]))
    return passed() if lines_seen.outcome is Outcome.SKIPPED else lines_seen


def cleaned_up(facts: BundleFacts) -> Verdict:
    summary = verdict(facts)
    lines = [summary.sentence] if summary.stage == _CLEANUP else []
    record = facts.bootkube
    if record is not None and _CLEANUP in record.passed_over:
        lines.append(f"{facts.record_paths[BOOTKUBE]}: the step failed, and bootkube continued without it")
    lines += [str(facts.matches[name]) for name in ("cleanup waits", "cleanup gave up") if name in facts.matches]
    for namespace in facts.terminating:
        held = f"resources/namespaces.json: {namespace.name} has been Terminating since {namespace.since}"
        lines += [held, *namespace.reasons]
    if lines:
        return failed("\n".join(lines))
    return passed() if facts.kinds & {FileKind.RECORD, FileKind.NAMESPACES} else skipped(FileKind.RECORD.value)


def not_reached(facts: BundleFacts, stages: tuple[str, ...]) -> bool:
    """Whether bootkube has not reached any of these steps, so that its logs cannot mention them."""
    record = facts.bootkube
    return record is not None and bool(stages) and not any(entry.stage in stages for entry in record.entries)
