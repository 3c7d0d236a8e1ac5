"""The lab's own programs as files that a node can run: small scripts around this Python, links to everything else."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from umbilical.host.files import write_file

OWN_PROGRAMS: Final = {
    "umbilical": "umbilical.cli.main",
    "proxy-server": "umbilical.cli.drop_ins.proxy_server",
    "proxy-agent": "umbilical.cli.drop_ins.proxy_agent",
    "lab-service": "umbilical.lab.service_program",
    "lab-admission-caller": "umbilical.cli.lab.admission_caller",
}
"""Name -> the module whose `main` it runs."""
PROGRAM_MODE: Final = 0o755


def fill(folder: Path, binaries: Mapping[str, Path]) -> None:
    """Put every program into a folder that exists. Where upstream's has the name of ours, the name stays ours:

    images name the other one by its path.
    """
    for name, module in OWN_PROGRAMS.items():
        write_file(folder / name, launcher(module).encode(), PROGRAM_MODE)
    for name, path in binaries.items():
        if name not in OWN_PROGRAMS:
            (folder / name).symlink_to(path)


def launcher(module: str, python: str = sys.executable) -> str:
    """Write the script. The shell comes first because a `#!` line can hold neither a long path nor a blank.

    For the shell the second line is a command; for Python the second and third are one text that nobody reads.
    """
    return (
        "#!/bin/sh\n"
        f"'''exec' {shlex.quote(python)} -P \"$0\" \"$@\"\n"
        "' '''\n"
        "import sys\n"
        f"from {module} import main\n"
        "sys.exit(main())\n"
    )
