"""The table of codes as users of an installed package have it: the text of docs/errors.md, carried along."""

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from umbilical.assets.hardway.explain.entry import Entry

FILE: Final = "errors.md"
_ROW: Final = re.compile(r"^\| (UMB\d{3}) \| (.+?) \| (.+?) \|$")
_HEADING: Final = re.compile(r"^#{2,3} \d[\dx, ]* (.+)$")


def table() -> str:
    return files("umbilical.cli").joinpath(FILE).read_text(encoding="utf-8")


def entries() -> "list[Entry]":
    """Explain every code: what it means, what to do, which exit status a command ends with."""
    from umbilical.assets.hardway.explain.entry import Entry, EntryKind
    from umbilical.cli.errors import exit_status

    found, heading = [], ""
    for line in table().splitlines():
        if title := _HEADING.match(line):
            heading = title.group(1)
        elif row := _ROW.match(line):
            code, meaning, remedy = row.groups()
            scope = f"{heading[0].lower()}{heading[1:]}; exit status {exit_status(code)}"
            found.append(Entry(EntryKind.CODE, code, meaning, scope=scope, fix=remedy))
    return found
