"""A recipe page, cut into sections: files, by the name in their first line, and commands, for a test that runs it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HEADING: Final = re.compile(r"^##+ (.+)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME: Final = re.compile(r"# (\S+)\n")


@dataclass
class Section:
    """Blocks under one heading, up to the next of any level."""

    commands: list[str] = field(default_factory=list)
    """Blocks without a language, whole."""
    files: dict[str, str] = field(default_factory=dict)


def sections(page: Path) -> dict[str, Section]:
    """Read all sections. Blocks before the first heading are pictures."""
    _, *parts = _HEADING.split(page.read_text())
    return {title: _section(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def _section(text: str) -> Section:
    section = Section()
    for language, content in _BLOCK.findall(text):
        if language:
            name = _NAME.match(content)
            assert name is not None, f"a file without a name in its first line: {content[:40]!r}"
            section.files[name[1]] = content
        else:
            section.commands.append(content)
    return section
