"""Known lines in logs of any size: whole blocks are searched first, and only a block that holds something is split.

Memory stays bounded whatever the file is: a line longer than any log line is searched in pieces.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.bootstrap.tar_stream import Readable
from umbilical.checks.report import printable

BLOCK_BYTES: Final = 1 << 18
MAX_LINE_BYTES: Final = 1 << 16
# How much of a line is shown on either side of what was found in it.
MARGIN: Final = 140
# How far from a needle a pattern is tried. Refusals by SCCs are the longest lines of all.
BEFORE: Final = 1024
AFTER: Final = 2048
_SECRET: Final = re.compile(r"(?i)(bearer\s+|(?:token|password|secret)=)[^\s\"',;\\]+")


@dataclass(frozen=True)
class Evidence:
    """Where something was seen, and what: safe to print."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f'{printable(self.path)}:{self.line} "{self.text}"'


@dataclass(frozen=True)
class Signature:
    """A line that means something: one of the needles is in it, and the pattern fits."""

    name: str
    where: re.Pattern[str]
    """Which files can hold it."""
    needles: tuple[bytes, ...]
    pattern: re.Pattern[bytes]

    def find(self, line: bytes) -> tuple[int, int] | None:
        """Return where the pattern fits. Only what is around a needle is looked at: lines can be made to be slow."""
        for needle in self.needles:
            at = line.find(needle)
            match = self.pattern.search(line, max(0, at - BEFORE), at + AFTER) if at >= 0 else None
            if match is not None:
                return match.span()
        return None


class Sighting:
    """All places where a signature was seen: how many, and the first and the last of them."""

    def __init__(self, first: Evidence) -> None:
        self.count = 1
        self.first = self.last = first

    def add(self, evidence: Evidence) -> None:
        self.count += 1
        self.last = evidence

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        return f"{self.first}\n{self.count} lines like it, the last at {printable(self.last.path)}:{self.last.line}"


def search(path: str, stream: Readable, signatures: Sequence[Signature]) -> Iterator[tuple[str, Evidence]]:
    """Yield the name of each signature found, with its place."""
    needles = sorted({needle for signature in signatures for needle in signature.needles})
    for number, line in _lines(stream, needles):
        for signature in signatures:
            span = signature.find(line)
            if span is not None:
                yield signature.name, Evidence(path, number, excerpt(line, span))


def excerpt(line: bytes, span: tuple[int, int] = (0, 0)) -> str:
    """Show a line around the span."""
    start, end = max(0, span[0] - MARGIN), min(span[1], span[0] + 2 * MARGIN) + MARGIN
    text = line[start:end].decode("utf-8", "replace")
    text = f"{'...' if start else ''}{text}{'...' if end < len(line) else ''}"
    return quotable(text)


def quotable(text: str) -> str:
    """Make a line of somebody's log fit to be shown: escaped, and without what looks like a password."""
    return printable(_SECRET.sub(r"\1***", text).strip())


def _lines(stream: Readable, needles: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that hold a needle, with their numbers."""
    wanted = tuple(needles)
    number, rest = 0, b""
    while chunk := stream.read(BLOCK_BYTES):
        cut = chunk.rfind(b"\n") + 1
        block, rest = rest + chunk[:cut], (b"" if cut else rest) + chunk[cut:]
        if cut:
            yield from _lines_of(block, number, wanted)
            number += block.count(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            yield from _lines_of(rest, number, wanted)
            rest = b""
    yield from _lines_of(rest, number, wanted)


def _lines_of(block: bytes, number: int, needles: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
    if not any(needle in block for needle in needles):
        return
    for offset, line in enumerate(block.split(b"\n"), start=number + 1):
        if any(needle in line for needle in needles):
            yield offset, line
