"""Shell lines for a platform's own program. Every word is quoted; what only the user knows must be set beforehand."""

import shlex
from typing import Final

from umbilical.firewall.platforms.platform import Command, Commands, Need, Variable, Word

HEAD: Final = "#!/usr/bin/env bash\nset -euo pipefail\n"


def script(commands: Commands, comments: tuple[str, ...], *, closing: bool = False) -> str:
    """Write what opens the port, or what closes it again."""
    steps = commands.close if closing else commands.open
    lines = [*(_need_line(need) for need in commands.needs), *map(command_line, (*commands.prepare, *steps))]
    return HEAD + "".join(f"# {comment}\n" for comment in comments) + "\n".join(lines) + "\n"


def command_line(command: Command) -> str:
    stages = (command.words, *command.pipe)
    text = " | ".join(" ".join(_word(word) for word in stage) for stage in stages)
    return f"{command.into}=$({text})" if command.into else text


def _need_line(need: Need) -> str:
    told = shlex.quote(f"{need.variable} is not set: {need.meaning}")
    return f'[ -n "${{{need.variable}:-}}" ] || {{ echo {told} >&2; exit 2; }}'


def _word(word: Word) -> str:
    if isinstance(word, Variable):
        return f'{shlex.quote(word.prefix) if word.prefix else ""}"${word.name}"'
    return shlex.quote(word)
