"""`umbilical bootstrap diff`: compares two Ignition configs. Exit codes are those of `kubectl diff`."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from umbilical.cli.findings import output_option
from umbilical.codes import FINDINGS
from umbilical.fault import Fault, IgnitionError

if TYPE_CHECKING:
    from umbilical.ignition.config import Config
    from umbilical.ignition.diff import ContentChange, Difference, FieldChange

_MARKS: Final = {"added": "+", "removed": "-", "changed": "~"}
_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}
_HIDDEN: Final = "hidden, it looks secret (--show-secrets shows it)"
_SHOWN_DIGITS: Final = 12
_MAX_VALUE_CHARACTERS: Final = 160
_CONFIG = click.Path(path_type=Path, allow_dash=True)


@click.command()
@click.argument("old", type=_CONFIG)
@click.argument("new", type=_CONFIG)
@output_option("table", "json")
@click.option(
    "--show-content/--stat", default=True, show_default=True, help="Show changed lines, or with --stat only count."
)
@click.option("--show-secrets", is_flag=True, help="Also print keys, kubeconfigs, pull secrets and Secrets.")
def diff(old: Path, new: Path, output: str, show_content: bool, show_secrets: bool) -> int:
    """Compare two Ignition configs.

    Shows differences in decoded files, modes, owners and units. Exit status: 0 no difference, 1 differences, more
    than 1 an error. A single dash reads a config from standard input.
    """
    from umbilical.ignition.diff import compare

    old_content, new_content = _read(old), _read(new)
    differences = compare(_parse(old, old_content), _parse(new, new_content))
    if output == "json":
        click.echo(json.dumps(_as_json(differences, show_content, show_secrets), indent=2))
    else:
        _print_table(differences, show_content, show_secrets)
        _print_summary(differences, is_same_file=old_content == new_content)
    return FINDINGS if differences else 0


def _read(path: Path) -> bytes:
    from umbilical.ignition.json_text import MAX_CONFIG_BYTES

    try:
        with click.open_file(str(path), "rb") as stream:
            # One byte over the limit is enough for the parser to report the size.
            return bytes(stream.read(MAX_CONFIG_BYTES + 1))
    except OSError as fault:
        why = fault.strerror or str(fault)
        raise Fault("UMB002", f"could not read {path}", why, f"check the file: ls -l {path}") from None


def _parse(path: Path, content: bytes) -> "Config":
    from umbilical.ignition.config import read_config

    try:
        return read_config(content)
    except IgnitionError as fault:
        raise IgnitionError(fault.code, f"{path}: {fault.what}", fault.why, fault.remedy) from None


def _print_table(differences: "list[Difference]", show_content: bool, show_secrets: bool) -> None:
    colour = False if "NO_COLOR" in os.environ else None
    for difference in differences:
        for line in _block(difference, show_content, show_secrets):
            click.echo(_coloured(line), color=colour)


def _print_summary(differences: "list[Difference]", *, is_same_file: bool) -> None:
    if differences:
        counts = [f"{sum(each.change == change for each in differences)} {change}" for change in _MARKS]
        click.echo(", ".join(counts), err=True)
    elif is_same_file:
        click.echo("no difference, byte for byte", err=True)
    else:
        click.echo("no difference in content; only formatting, order or encoding differ", err=True)


def _block(difference: "Difference", show_content: bool, show_secrets: bool) -> list[str]:
    """Format one difference: its path, then details, indented."""
    if difference.kind == "field":
        (field,) = difference.fields
        return [f"{_MARKS[difference.change]} {_printable(difference.place)}: {_values(field, show_secrets)}"]
    title = f"{_MARKS[difference.change]} {difference.kind} {_printable(difference.place)}"
    fields = [f"    {_printable(field.name)}: {_values(field, show_secrets)}" for field in difference.fields]
    contents = [line for content in difference.contents for line in _content_block(content, show_content, show_secrets)]
    return [title, *fields, *contents]


def _content_block(content: "ContentChange", show_content: bool, show_secrets: bool) -> list[str]:
    is_hidden = content.is_secret and not show_secrets
    lines = content.lines() if not is_hidden else None
    head = f"    {_printable(content.name)}: {_sizes(content)}"
    if is_hidden:
        return [f"{head}; {_HIDDEN}"]
    if lines is None:
        return [f"{head}; not text, or too long to compare line by line"]
    added, removed = _count(lines, "+"), _count(lines, "-")
    head = f"{head}, lines +{added} -{removed}"
    # The first two lines of a unified diff repeat the file names.
    return [head, *(f"    {line}" for line in lines[2:])] if show_content else [head]


def _count(lines: list[str], sign: str) -> int:
    return sum(line.startswith(sign) for line in lines[2:])


def _sizes(content: "ContentChange") -> str:
    old, new = (_size(side) for side in (content.old, content.new))
    if content.old is None or content.new is None:
        return new if content.old is None else old
    return f"{old} -> {new}"


def _size(content: bytes | None) -> str:
    from umbilical.ignition.diff import digest

    return f"{len(content)} bytes sha256:{digest(content)[:_SHOWN_DIGITS]}" if content is not None else "none"


def _values(field: "FieldChange", show_secrets: bool) -> str:
    if field.is_secret and not show_secrets:
        return f"differs; {_HIDDEN}"
    old, new = (_value(field.name, value) for value in (field.old, field.new))
    if field.old is None or field.new is None:
        return new if field.old is None else old
    return f"{old} -> {new}"


def _value(name: str, value: Any) -> str:
    # Ignition writes modes in decimal, users read them in octal.
    if name == "mode" and isinstance(value, int):
        return f"0{value:o}"
    text = json.dumps(value, ensure_ascii=False)
    return _printable(text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}...")


def _printable(text: str) -> str:
    """Escape control characters: a config must not control the terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line.lstrip(" ")[:1])
    is_sign = not line.startswith(" ") or line[4:5] in _COLOURS
    return click.style(line, fg=colour) if colour and is_sign else line


def _as_json(differences: "list[Difference]", show_content: bool, show_secrets: bool) -> dict[str, Any]:
    return {
        "apiVersion": "umbilical.dev/v1alpha1",
        "kind": "BootstrapDiff",
        "differences": [
            {
                "kind": each.kind,
                "place": each.place,
                "change": each.change,
                "fields": [_field_json(field, show_secrets) for field in each.fields],
                "contents": [_content_json(content, show_content, show_secrets) for content in each.contents],
            }
            for each in differences
        ],
    }


def _field_json(field: "FieldChange", show_secrets: bool) -> dict[str, Any]:
    described = {"name": field.name, "secret": field.is_secret}
    return described if field.is_secret and not show_secrets else described | {"old": field.old, "new": field.new}


def _content_json(content: "ContentChange", show_content: bool, show_secrets: bool) -> dict[str, Any]:
    is_shown = show_content and (show_secrets or not content.is_secret)
    return {
        "name": content.name,
        "secret": content.is_secret,
        "old": _side_json(content.old),
        "new": _side_json(content.new),
        "lines": content.lines() if is_shown else None,
    }


def _side_json(content: bytes | None) -> dict[str, Any] | None:
    from umbilical.ignition.diff import digest

    return None if content is None else {"bytes": len(content), "sha256": digest(content)}
