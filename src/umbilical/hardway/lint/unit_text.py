"""Unit files as far as rules read them: the commands they run, and the paths in those."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from umbilical.ignition.config import Unit

# systemd's marks before a program: ignore failure, other argv[0], no expansion, full or no privileges.
_MARKS: Final = "@-:+!"


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    """The program first, without systemd's marks."""

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def flags(self) -> dict[str, str]:
        """By name without dashes; `--flag value` counts as `--flag` without a value."""
        pairs = (word.lstrip("-").partition("=") for word in self.words[1:] if word.startswith("-"))
        return {name: value for name, _, value in pairs}


def commands(unit: Unit) -> list[Command]:
    """List the Exec lines of a unit and of its drop-ins."""
    found = [_words(value) for key, value in _settings(unit) if key.startswith("Exec") and value]
    return [Command(tuple(words)) for words in found if words]


def environment_files(unit: Unit) -> Iterator[str]:
    """List the files that must be there; those with a minus may be missing."""
    for key, value in _settings(unit):
        if key == "EnvironmentFile" and value.startswith("/"):
            yield value


def _settings(unit: Unit) -> Iterator[tuple[str, str]]:
    for text in (unit.contents or "", *unit.dropins.values()):
        for line in text.replace("\\\n", " ").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and not key.startswith(("#", ";", "[")):
                yield key.strip(), value.strip()


def _words(value: str) -> list[str]:
    try:
        words = shlex.split(value)
    except ValueError:
        # systemd's quoting is not quite a shell's.
        words = value.split()
    return [words[0].lstrip(_MARKS), *words[1:]] if words else []
