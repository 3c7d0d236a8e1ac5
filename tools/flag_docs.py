"""Makes docs/flags.md from the settings tables: every flag of the daemons, ours and upstream's, with its default.

`tools/hardway_docs.py` writes the file.
"""

from pathlib import Path
from typing import Final, NamedTuple

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.drop_in import flags_of
from umbilical.cli.drop_ins.pflag import FlagSpec
from umbilical.proxies.settings import HTTPS, SOCKS5
from umbilical.tunnel.setting_rows import Setting, Table, Value
from umbilical.tunnel.settings import AGENT, SERVER

PAGE: Final = Path("docs", "flags.md")
HEAD: Final = """<!-- Made by `python tools/hardway_docs.py` from the settings tables of the code. -->
# Flags

Each daemon exists as a command with safe defaults, and as a program with upstream's name, flags and defaults. Both are
made from one table: `tunnel/settings.py` for server and agent, `proxies/settings.py` for the proxies. An option of our
own commands can also be set by an environment variable: `UMBILICAL_AGENT_RUN_SYNC_INTERVAL` sets `--sync-interval` of
`umbilical agent run`. Separate several values of a repeatable option by spaces.
"""


class Daemon(NamedTuple):
    command: str
    program: str
    table: Table


DAEMONS: Final = (
    Daemon("umbilical server run", "proxy-server", SERVER),
    Daemon("umbilical agent run", "proxy-agent", AGENT),
    Daemon("umbilical proxy socks5", "konnectivity-socks5-proxy", SOCKS5),
    Daemon("umbilical proxy https", "konnectivity-https-proxy", HTTPS),
)


def page() -> str:
    return "\n".join((HEAD, *(_section(daemon) for daemon in DAEMONS), _logging()))


def _section(daemon: Daemon) -> str:
    flags = {flag.name: flag for flag in flags_of(daemon.table)}
    lines = [
        f"## `{daemon.command}` and `{daemon.program}`",
        "",
        f"| `{daemon.command}` | default | `{daemon.program}` | default | meaning | reason of the default |",
        "|---|---|---|---|---|---|",
        *dict.fromkeys(_line(row, flags) for row in daemon.table),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Setting, flags: dict[str, FlagSpec]) -> str:
    theirs = [flags[flag.name] for flag in row.flags]
    names = [f"`--{flag.name}`" for flag in theirs] + [f"`{row.environment}`"] * bool(row.environment)
    cells = (
        f"`{row.native}`" if row.native else "",
        f"`{row.default}`" if row.native and row.default else "",
        "<br>".join(names),
        "" if row.kind is Value.ID else "<br>".join(_default(flag) for flag in theirs),
        row.help,
        row.why,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(flag: FlagSpec) -> str:
    shown = flag.kind.show(flag.default).strip('"[]')
    return f"`{shown}`" if shown else ""


def _logging() -> str:
    lines = [
        "## Logging of the programs with upstream's names",
        "",
        "| flag | default | meaning |",
        "|---|---|---|",
        *(f"| `--{flag.name}` | {_default(flag)} | {flag.help} |" for flag in klog.FLAGS),
    ]
    return "\n".join(lines) + "\n"
