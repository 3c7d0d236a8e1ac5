"""Which stages are meant: `5..8`, `5..`, `..8`, or `8` for all up to the eighth."""

import re
from collections.abc import Sequence
from typing import Any, Final

import click

from umbilical.hardway.stage import Stage

_RANGE: Final = re.compile(r"(?P<first>\d{0,2})(?P<dots>\.\.)?(?P<last>\d{0,2})")


class StageRange(click.ParamType[tuple[int | None, int | None]]):
    name = "range"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "[FROM..TO|N]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        if isinstance(value, tuple):
            return value
        match = _RANGE.fullmatch(value)
        if match is None or not value or value == "..":
            self.fail(f"{value!r} is no range of stages: write 5..8, 5.., ..8, or 8 for all up to the eighth")
        first, last = (int(text) if text else None for text in (match["first"], match["last"]))
        return (first, last) if match["dots"] else (None, first)


def bounds(chosen: tuple[int | None, int | None] | None, stages: Sequence[Stage]) -> tuple[int, int]:
    """Fill in what a range leaves open.

    Raises:
        UsageError: a stage that there is not, or a range that runs backwards.
    """
    numbers = [stage.number for stage in stages]
    first, last = chosen or (None, None)
    for number in (first, last):
        if number is not None and number not in numbers:
            raise click.UsageError(f"there is no stage {number:02}: they go from {numbers[0]:02} to {numbers[-1]:02}")
    found = (first or numbers[0], last or numbers[-1])
    if found[0] > found[1]:
        raise click.UsageError(f"{found[0]:02} comes after {found[1]:02}: write {found[1]}..{found[0]}")
    return found


def find_stage(text: str, stages: Sequence[Stage]) -> Stage:
    """Find a stage by its number or its name."""
    for stage in stages:
        if text == stage.name or (text.isdecimal() and int(text) == stage.number):
            return stage
    names = ", ".join(f"{stage.number:02} {stage.name}" for stage in stages)
    raise click.UsageError(f"there is no stage {text}; there are {names}")
