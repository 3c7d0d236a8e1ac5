"""Commands that print findings: output format, selection of checks, exit status."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from umbilical.checks.check import Check, Finding, Outcome
from umbilical.cli.terminal import has_colour, has_unicode
from umbilical.codes import FINDINGS

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def output_option(*forms: str) -> Callable[[Any], Any]:
    """Add -o/--output; the first form is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help="Output format."
    )


def which_options(example: str) -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "--only",
            type=selection,
            multiple=True,
            metavar="IDS",
            help=f"Run only these checks: ids ({example}), groups or patterns.",
        ),
        click.option(
            "--skip",
            type=selection,
            multiple=True,
            metavar="IDS",
            help="Skip these checks: ids, groups or patterns.",
        ),
    )


def report_options() -> tuple[Callable[[Any], Any], ...]:
    return (
        output_option("table", "json", "junit"),
        click.option(
            "--fail-on",
            type=click.Choice(["warn", "error"]),
            default="error",
            show_default=True,
            help="Lowest severity that makes the exit status 1.",
        ),
    )


def apply_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[AnyCommand], AnyCommand]:
    """Add options to a command, in the order of its help."""

    def apply(command: AnyCommand) -> AnyCommand:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def selection(text: str) -> re.Pattern[str]:
    """Parse ids, groups or regular expressions, separated by commas; a leading `!` excludes them."""
    negation, words = ("!", text[1:]) if text.startswith("!") else ("", text)
    try:
        return re.compile(negation + "|".join(f"(?:{word.strip()})" for word in words.split(",")), re.IGNORECASE)
    except re.error as fault:
        raise click.BadParameter(f"{text!r} is not a list of ids, groups or patterns: {fault}") from None


def chosen(items: Iterable[Any], only: Sequence[re.Pattern[str]], skip: Sequence[re.Pattern[str]]) -> list[Any]:
    """Return the checks, or findings, selected by id or group."""
    wanted = [pattern for pattern in only if not pattern.pattern.startswith("!")]
    unwanted = [*skip, *(_positive(pattern) for pattern in only if pattern.pattern.startswith("!"))]
    return [item for item in items if (not wanted or _is_among(item.id, wanted)) and not _is_among(item.id, unwanted)]


def _positive(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(pattern.pattern[1:], re.IGNORECASE)


def _is_among(identifier: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    from umbilical.checks.report import group_of

    names = (identifier, group_of(identifier))
    return any(pattern.fullmatch(name) for pattern in patterns for name in names)


def refuse_emptiness(findings: Sequence[Finding]) -> None:
    # A typing error in a filter must not look like a file without faults.
    if not findings:
        raise click.UsageError("--only and --skip leave no check; --list shows the ids")


def report(
    findings: Sequence[Finding],
    output: str,
    *,
    kind: str,
    suite: str,
    details: Mapping[str, Any] | None = None,
    groups: Mapping[str, str] | None = None,
) -> str:
    """Format findings: `kind` and `details` are for JSON, `suite` is for JUnit."""
    from umbilical.checks.report import as_json, as_junit, as_table

    if output == "json":
        return as_json(findings, kind, details)
    if output == "junit":
        return as_junit(findings, suite)
    return as_table(findings, has_colour(), has_unicode(), groups)


def status(findings: Iterable[Finding], fail_on: str = "error") -> int:
    bad = (Outcome.FAILED, Outcome.WARNED) if fail_on == "warn" else (Outcome.FAILED,)
    return FINDINGS if any(finding.outcome in bad for finding in findings) else 0


def listed(checks: Iterable[Check[Any]], headings: Mapping[str, str], width: int = 0) -> str:
    """List checks by id and title, each group under its heading."""
    from umbilical.checks.report import group_of

    lines: list[str] = []
    for check in checks:
        heading = headings.get(group_of(check.id))
        lines += ["", heading] if heading and heading not in lines else []
        lines.append(f"{check.id:{width}} {check.title}")
    return "\n".join(lines).lstrip("\n") + "\n"
