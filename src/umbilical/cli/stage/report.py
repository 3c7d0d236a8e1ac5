"""Results of stages as a table, JSON or JUnit."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.checks.check import Finding, Outcome, has_failed
from umbilical.checks.report import API_VERSION, as_junit, printable
from umbilical.cli.terminal import has_colour

if TYPE_CHECKING:
    from umbilical.hardway.pipeline import StageResult
    from umbilical.hardway.stage import Stage
    from umbilical.hardway.state import RunState, StageRecord

INTERRUPTED: Final = "interrupted"
_COLOURS: Final = {"done": "green", "failed": "red", "stale": "yellow", "interrupted": "yellow", "running": "blue"}


def explanation(stage: "Stage") -> str:
    """Explain a stage: purpose, readers of its output, what breaks without it, how to check by hand."""
    from umbilical.hardway.explain.entry import as_text, from_topic
    from umbilical.hardway.stages import catalogue

    topic = next(one for one in catalogue.topics() if one.name == f"{stage.number:02}")
    told = as_text([from_topic(topic, (stage.name,))]).splitlines()[1:]
    return "\n".join((f"{stage.number:02} {stage.title}", *told)) + "\n"


def shown_status(record: "StageRecord", *, is_locked: bool) -> str:
    """Return the status to show: a running stage without a lock holder was killed."""
    word = record.status.value
    return INTERRUPTED if word == "running" and not is_locked else word


def stage_value(stage: "Stage", record: "StageRecord", *, is_locked: bool) -> dict[str, Any]:
    return {
        "number": stage.number,
        "name": stage.name,
        "title": stage.title,
        "needs": list(stage.needs),
        "status": shown_status(record, is_locked=is_locked),
        "because": record.because,
        "began": record.began,
        "ended": record.ended,
        "seconds": record.seconds,
        "failure": record.failure,
        "checks": [dict(check) for check in record.checks],
        "undo": [one.undo.name for one in record.undos],
    }


def list_json(stages: "Sequence[Stage]", state: "RunState", *, is_locked: bool) -> str:
    values = [stage_value(stage, state.stage(stage.number), is_locked=is_locked) for stage in stages]
    return json.dumps({"apiVersion": API_VERSION, "kind": "StageList", "stages": values}, indent=2) + "\n"


def list_table(stages: "Sequence[Stage]", state: "RunState", *, is_locked: bool) -> str:
    from umbilical.cli.stage.view import duration

    lines = []
    for stage in stages:
        record = state.stage(stage.number)
        word = shown_status(record, is_locked=is_locked)
        took = duration(record.seconds) if record.seconds is not None else "-"
        colour = click.style(f"{word:<12}", fg=_COLOURS.get(word)) if has_colour() else f"{word:<12}"
        lines.append(f"{stage.number:02}  {stage.name:<16} {colour} {took:>12}  {stage.title}")
        lines += [f"    {printable(line)}" for line in _remarks(record, word)]
    return "\n".join(lines) + "\n"


def _remarks(record: "StageRecord", word: str) -> list[str]:
    if word == "failed" and record.failure is not None:
        return [f"{record.failure['code']} {record.failure['what']}: {record.failure['why']}"]
    return [record.because] if word == "stale" and record.because else []


def run_table(results: "Sequence[StageResult]") -> str:
    """List failed checks and warnings, then one line with the counts."""
    endings = [result.ending.value for result in results]
    counts = ", ".join(f"{endings.count(word)} {word}" for word in dict.fromkeys(endings))
    told = "".join(f"{printable(line)}\n" for result in results for line in _troubles(result))
    return f"{told}{len(endings)} {'stage' if len(endings) == 1 else 'stages'}: {counts}\n"


def _troubles(result: "StageResult") -> list[str]:
    wrong = [one for one in result.findings if one.outcome in (Outcome.FAILED, Outcome.WARNED)]
    return [f"{result.stage.number:02} {one.outcome.value} {one.id} {one.title}: {one.evidence}" for one in wrong]


def run_json(results: "Sequence[StageResult]") -> str:
    values = [_result_value(result) for result in results]
    return json.dumps({"apiVersion": API_VERSION, "kind": "StageRun", "stages": values}, indent=2) + "\n"


def run_junit(results: "Sequence[StageResult]") -> str:
    return as_junit([finding for result in results for finding in result_findings(result)], "stage.run")


def result_findings(result: "StageResult") -> list[Finding]:
    """Return the checks of a stage, and a finding for the stage itself if it failed without a failed check."""
    found = list(result.findings)
    if result.failure is not None and not has_failed(found):
        fault = result.failure
        title, evidence = f"stage {result.stage.name} succeeds", f"{fault.what}: {fault.why}"
        found.append(Finding(fault.code, title, result.stage.title, fault.remedy, Outcome.FAILED, evidence))
    return found


def write_junit(path: Path, text: str) -> None:
    from umbilical.host.files import write_public

    write_public(path, text.encode(), overwrite=True)


def _result_value(result: "StageResult") -> dict[str, Any]:
    from umbilical.hardway.pipeline import check_values, failure_value

    return {
        "number": result.stage.number,
        "name": result.stage.name,
        "ending": result.ending.value,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
        "checks": check_values(result.findings),
        "failure": None if result.failure is None else failure_value(result.failure),
    }
