"""`umbilical firewall list`: the rule of each platform, who creates and removes it, and how to find leftovers."""

import json
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from umbilical.cli.findings import output_option
from umbilical.firewall.forms.render import API_VERSION, describe
from umbilical.firewall.forms.texts import command_line
from umbilical.firewall.platforms.catalogue import PLATFORMS, platform_of
from umbilical.firewall.platforms.platform import Platform, Remover, RuleCommands
from umbilical.firewall.platforms.request import DEFAULT_PORT, RuleRequest, parse_release

_COLUMNS: Final = ("PLATFORM", "FROM", "CREATED BY", "REMOVED BY")
_LABEL_WIDTH: Final = 12


@click.command(name="list")
@click.option("--platform", metavar="NAME", help="Show one platform in full.")
@click.option("--leftovers", is_flag=True, help="Print commands that find and remove rules left behind.")
@click.option("--infra-id", metavar="ID", default="", help="Infra id of the cluster, from metadata.json.")
@click.option("--port", type=int, default=DEFAULT_PORT, show_default=True, help="TCP port of the server for agents.")
@click.option("--release", metavar="4.NN", help="Release of the installer.")
@output_option("table", "json")
def list_platforms(
    platform: str | None, leftovers: bool, infra_id: str, port: int, release: str | None, output: str
) -> int:
    """List each platform's firewall rule and who removes it.

    Shows the sources that the rule allows, who creates it, and where it is left behind.
    """
    if leftovers and platform is None:
        raise click.UsageError("--leftovers needs --platform: the commands differ by platform")
    if leftovers:
        request = RuleRequest(infra_id, port, release=None if release is None else parse_release(release))
        commands = platform_of(platform or "").leftovers(request)
        click.echo(_leftovers_json(commands) if output == "json" else _leftovers_text(commands), nl=False)
        return 0
    chosen = tuple(PLATFORMS.values()) if platform is None else (platform_of(platform),)
    if output == "json":
        click.echo(json.dumps(_as_value(chosen), indent=2))
    else:
        click.echo(_table(chosen) if platform is None else _details(chosen[0]), nl=False)
    return 0


def _as_value(chosen: Iterable[Platform]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "FirewallPlatforms", "platforms": [describe(each) for each in chosen]}


def _table(chosen: Sequence[Platform]) -> str:
    rows = [_COLUMNS, *((each.name, each.source, _maker(each), _remover(each)) for each in chosen)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    hint = "One platform in full: umbilical firewall list --platform NAME"
    return "\n".join([*lines, "", hint]) + "\n"


def _maker(platform: Platform) -> str:
    return platform.made_by.partition(":")[0].partition(",")[0].replace("the installer's code", "the installer")


def _remover(platform: Platform) -> str:
    newest = platform.removals[0]
    words = {Remover.INSTALLER: "the installer", Remover.USER: "you", Remover.NOBODY: "nobody: it stays"}
    since = "" if newest.releases == "all" else f" ({newest.releases.replace(' and later', '+')})"
    return words[newest.by] + since


def _details(platform: Platform) -> str:
    facts = describe(platform)
    rows = [(name, str(facts[name])) for name in ("platform", "rule", "source", "target")]
    rows.append(("created by", platform.made_by))
    for removal in platform.removals:
        remark = f" ({removal.remark})" if removal.remark else ""
        rows.append(("removed by", f"{removal.releases}: {removal.by.value}{remark}"))
    rows += [("note", remark) for remark in platform.remarks]
    rows.append(("forms", ", ".join(facts["forms"])))
    return "".join(_wrapped(label, text) for label, text in rows)


def _wrapped(label: str, text: str) -> str:
    width = max(shutil.get_terminal_size((100, 24)).columns, 60)
    inset = " " * _LABEL_WIDTH
    return textwrap.fill(text, width, initial_indent=label.ljust(_LABEL_WIDTH), subsequent_indent=inset) + "\n"


def _leftovers_text(commands: RuleCommands) -> str:
    # Users paste these lines: an `exit` would close their shell, so the needs are comments.
    needs = [f"# set {need.variable}= first: {need.meaning}" for need in commands.needs]
    ready = [*needs, *map(command_line, commands.prepare)]
    parts = (ready, ["# list the open rules", *map(command_line, commands.show)])
    removal = ["# remove them", *map(command_line, commands.close)]
    return "\n\n".join("\n".join(part) for part in (*parts, removal) if part) + "\n"


def _leftovers_json(commands: RuleCommands) -> str:
    value = {
        "apiVersion": API_VERSION,
        "kind": "FirewallLeftovers",
        "needs": {need.variable: need.meaning for need in commands.needs},
        "prepare": [command_line(each) for each in commands.prepare],
        "show": [command_line(each) for each in commands.show],
        "remove": [command_line(each) for each in commands.close],
    }
    return json.dumps(value, indent=2) + "\n"


# LazyGroup looks a command up by its name.
list = list_platforms
