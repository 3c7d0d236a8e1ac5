"""Reads `requirements.lock`: every package that an installation of Umbilical gets, with version, hashes and origin.

`make lock` writes it with uv. Its form is pip's: a line `NAME==VERSION ; MARKER \\`, its hashes, and comments `# via`
that name the packages that asked for it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / "requirements.lock"
OURSELVES: Final = "umbilical"
_PACKAGE: Final = re.compile(r"([A-Za-z0-9._-]+)==([^ ;]+)(?: ; (.*?))?(?: \\)?$")
_HASH: Final = re.compile(r" +--hash=(sha256:[0-9a-f]{64})(?: \\)?$")
_ORIGIN: Final = re.compile(r" +#(?: via)? +([A-Za-z0-9._-]+)(?: \(pyproject\.toml\))?$")


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    marker: str
    hashes: list[str] = field(default_factory=list)
    wanted_by: list[str] = field(default_factory=list)


def read(text: str) -> list[Package]:
    """Return the packages of a lock. Raises ValueError with the line that is none of its forms."""
    packages: list[Package] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#") or line.strip() == "# via":
            continue
        if package := _PACKAGE.match(line):
            packages.append(Package(package[1], package[2], package[3] or ""))
        elif packages and (found := _HASH.match(line)):
            packages[-1].hashes.append(found[1])
        elif packages and (found := _ORIGIN.match(line)):
            packages[-1].wanted_by.append(found[1])
        else:
            raise ValueError(f"{LOCK.name}: not a line of a lock: {line!r}")
    return packages
