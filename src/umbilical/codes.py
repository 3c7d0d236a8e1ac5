"""The table of error codes: errors.md next to this file, of which docs/errors.md is a copy.

Read only when a command fails or a code is explained.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

FINDINGS: Final = 1
USAGE: Final = 2
CONFIGURATION: Final = 3
INFRASTRUCTURE: Final = 4
UNSAFE: Final = 7
INTERRUPTED: Final = 8
TIMED_OUT: Final = 9
INTERNAL: Final = 10
_ROW: Final = re.compile(r"^\| (UMB\d{3}) \| (\d+) \| (.+?) \| (.+?) \|$")
_HEADING: Final = re.compile(r"^#{2,3} \d[\dx, ]* (.+)$")


class Code(NamedTuple):
    code: str
    exit_status: int
    meaning: str
    remedy: str
    heading: str


def table() -> str:
    return files("umbilical").joinpath("errors.md").read_text(encoding="utf-8")


@cache
def codes() -> dict[str, Code]:
    found, heading = {}, ""
    for line in table().splitlines():
        if title := _HEADING.match(line):
            heading = title.group(1)
        elif row := _ROW.match(line):
            code, status, meaning, remedy = row.groups()
            found[code] = Code(code, int(status), meaning, remedy, heading)
    return found


def exit_status(code: str) -> int:
    found = codes().get(code)
    return INFRASTRUCTURE if found is None else found.exit_status
