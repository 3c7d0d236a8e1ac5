"""`umbilical config view` and `schema`: all values of cluster.yaml with their origin, and its JSON Schema."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umbilical.cli.findings import output_option
from umbilical.cli.stage.cluster import directory_option

if TYPE_CHECKING:
    from umbilical.hardway.config.cluster import ResolvedValue


@click.command()
@directory_option
@click.option(
    "--origin",
    "has_origin",
    is_flag=True,
    help="Show for each value whether it is given, a default or computed, and from what.",
)
@output_option("table", "json", "yaml")
def view(folder: Path, has_origin: bool, output: str) -> None:
    """Show all values of cluster.yaml with defaults."""
    from umbilical.hardway.config.cluster import nested
    from umbilical.hardway.workspace import read_config

    values = read_config(folder).values
    if output == "table":
        for line in _table(values, has_origin=has_origin):
            click.echo(line)
        return
    told: Any = [_entry(one) for one in values] if has_origin else nested(values)
    click.echo(json.dumps(told, indent=2) if output == "json" else _yaml(told), nl=output == "json")


def _table(values: "Sequence[ResolvedValue]", *, has_origin: bool) -> Iterator[str]:
    rows = [(one.path, _shown(one.plain), one.origin.value, one.source) for one in values]
    heads = ("key", "value", "origin", "from")
    count = 4 if has_origin else 2
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(count)]
    for row in (heads, *rows):
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _entry(value: "ResolvedValue") -> dict[str, Any]:
    told = {"path": value.path, "value": value.plain, "origin": value.origin.value}
    return {**told, "from": value.source} if value.source else told


def _yaml(told: Any) -> str:
    from umbilical.manifests.tree import yaml_bytes

    return yaml_bytes(told).decode()


@click.command()
def schema() -> None:
    """Print the JSON Schema of cluster.yaml.

    Editors with a YAML language server use it with this first line of cluster.yaml:
    # yaml-language-server: $schema=cluster.schema.json
    """
    from umbilical.hardway.config.reading import schema as made

    click.echo(json.dumps(made(), indent=2))
