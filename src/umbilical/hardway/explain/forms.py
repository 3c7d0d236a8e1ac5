"""Explanations as text for people, JSON for programs, Markdown for pages."""

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Final

from umbilical.checks.report import API_VERSION
from umbilical.hardway.explain.entry import Entry

WIDTH: Final = 100
_INDENT: Final = " " * 11
HEADINGS: Final = {
    "what": "What it is",
    "readers": "Who reads it",
    "without": "What breaks without it",
    "fix": "What to do",
    "by hand": "By hand",
    "installer": "The real installer",
}
# Names that Markdown would take for emphasis: snake_case, wildcards, <angle brackets>.
_DELICATE: Final = re.compile(r"(?<!`)(?:[\w./:@$*{}=-]*[_*<>][\w./:@$*{}=<>-]*)(?!`)")


def as_text(entries: Sequence[Entry]) -> str:
    return "\n".join(_text(entry) for entry in entries)


def as_json(entries: Sequence[Entry]) -> str:
    value = {"apiVersion": API_VERSION, "kind": "Explanation", "entries": [_value(entry) for entry in entries]}
    return json.dumps(value, indent=2) + "\n"


def as_markdown(entries: Sequence[Entry]) -> str:
    return "\n".join(f"## `{entry.name}`\n\n*{entry.belongs}*\n\n{body(entry)}" for entry in entries)


def body(entry: Entry) -> str:
    """An explanation without its heading, as a list; commands in fences of their own."""
    told = [f"- **{HEADINGS[heading]}:** {prose(text)}" for heading, text in entry.rows if heading != "by hand"]
    fence = f"\n```console\n$ {entry.by_hand}\n```\n" if entry.by_hand else ""
    return "\n".join(told) + "\n" + fence


def prose(text: str) -> str:
    """Make words safe for Markdown: what it would read as signs becomes code. What is code already stays."""
    pieces = text.split("`")
    plain = (_DELICATE.sub(_as_code, piece) for piece in pieces[::2])
    whole = [
        piece for pair in zip(plain, [*(f"`{code}`" for code in pieces[1::2]), ""], strict=False) for piece in pair
    ]
    return "".join(whole)


def _as_code(match: re.Match[str]) -> str:
    word = match.group().rstrip(".:")
    return f"`{word}`{match.group()[len(word) :]}"


def _text(entry: Entry) -> str:
    lines = [f"{entry.name}  ({entry.belongs})"]
    for heading, text in entry.rows:
        lead = f"{heading:<{len(_INDENT)}}"
        if heading == "by hand":
            # Never wrapped: it is there to be copied.
            lines.append(f"{lead}$ {text}")
        else:
            lines.append(_wrapped(text, lead))
    return "\n".join(lines) + "\n"


def _wrapped(text: str, lead: str) -> str:
    # Flags and paths stay in one piece.
    return textwrap.fill(
        text, WIDTH, initial_indent=lead, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False
    )


def _value(entry: Entry) -> dict[str, object]:
    told = {heading.replace(" ", "_"): text for heading, text in entry.rows}
    return {"name": entry.name, "kind": entry.kind.value, "stage": entry.stage, "scope": entry.scope, **told}
