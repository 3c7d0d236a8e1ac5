"""Upstream's programs as yardsticks of a command line: what they print and how they fail."""

import re
import subprocess
import sys
from dataclasses import dataclass

import peers

FLAG_LINE = re.compile(r"^ +(?:-\w, )?--([a-z0-9-]+)(?: (\S+))?   +\S.*?(?: \(default (.*)\))?$")
KLOG_ERROR = re.compile(r"^E\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+:\d+\] error: (.*)$", re.M)


@dataclass(frozen=True)
class Outcome:
    status: int
    error: str
    """The text after `Error: `."""
    logged: str
    """The text of the last klog line."""


def upstream(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    path = peers.binary(program)
    assert path is not None, f"the `real` marker of a test that runs {program} names it"
    return _run([str(path), *arguments])


def ours(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    module = f"umbilical.cli.drop_ins.{program.replace('-', '_')}"
    return _run([sys.executable, "-c", f"from {module} import main; main()", *arguments])


def outcome(completed: "subprocess.CompletedProcess[str]") -> Outcome:
    errors = [line for line in completed.stderr.splitlines() if line.startswith("Error: ")]
    # Our log lines double a backslash, so that an escaped line break differs from the two characters.
    logged = [text.replace("\\\\", "\\") for text in KLOG_ERROR.findall(completed.stderr)]
    return Outcome(completed.returncode, errors[-1][7:] if errors else "", logged[-1] if logged else "")


def help_flags(text: str) -> dict[str, tuple[str, str]]:
    """Return every flag of a help text with the kind of its value and its default."""
    matches = [match for line in text.splitlines() if (match := FLAG_LINE.match(line))]
    return {match[1]: (match[2] or "", match[3] or "") for match in matches}


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {"PROXY_SERVER_ID": "s1", "PROXY_AGENT_ID": "a1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
