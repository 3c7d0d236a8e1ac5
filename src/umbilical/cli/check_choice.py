"""Which checks a user wants: ids, groups or patterns, wanted or not."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from umbilical.checks.check import Finding

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def which_options(example: str) -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "--only", type=selection, multiple=True, metavar="IDS", help=f"Only these: {example}, a group, a pattern."
        ),
        click.option("--skip", type=selection, multiple=True, metavar="IDS", help="All but these."),
    )


def report_options() -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json", "junit"]),
            default="table",
            show_default=True,
            help="Form of the report.",
        ),
        click.option(
            "--fail-on",
            type=click.Choice(["warn", "error"]),
            default="error",
            show_default=True,
            help="From what on the exit status is 1.",
        ),
    )


def apply_options(command: AnyCommand, options: Sequence[Callable[[AnyCommand], AnyCommand]]) -> AnyCommand:
    """Put options onto a command, in the order in which its help shows them."""
    for option in reversed(options):
        command = option(command)
    return command


def selection(text: str) -> re.Pattern[str]:
    """Read ids, groups or regular expressions, with commas between them; `!` in front takes them out."""
    negation, words = ("!", text[1:]) if text.startswith("!") else ("", text)
    try:
        return re.compile(negation + "|".join(f"(?:{word.strip()})" for word in words.split(",")), re.IGNORECASE)
    except re.error as fault:
        raise click.BadParameter(f"{text!r} is neither ids like S1,C3, nor a group, nor a pattern: {fault}") from None


def chosen(items: Iterable[Any], only: Sequence[re.Pattern[str]], skip: Sequence[re.Pattern[str]]) -> list[Any]:
    """Take the checks, or findings, whose id or group was asked for."""
    wanted = [pattern for pattern in only if not pattern.pattern.startswith("!")]
    unwanted = [*skip, *(_positive(pattern) for pattern in only if pattern.pattern.startswith("!"))]
    return [item for item in items if (not wanted or _is_among(item.id, wanted)) and not _is_among(item.id, unwanted)]


def _positive(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(pattern.pattern[1:], re.IGNORECASE)


def _is_among(identifier: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    from umbilical.checks.report import group_of

    names = (identifier, group_of(identifier))
    return any(pattern.fullmatch(name) for pattern in patterns for name in names)


def refuse_emptiness(findings: "Sequence[Finding]") -> None:
    # A filter with a typing mistake must not look like a file without faults.
    if not findings:
        raise click.UsageError("no check is left by --only and --skip; --list shows their ids")
