"""Every help text of `umbilical`: short complete sentences that a list at 80 columns does not cut off."""

import re
from collections.abc import Iterator
from typing import Any

import click
import pytest

from umbilical.cli.main import PROGRAM, umbilical

COLUMNS = 80
MOST_CHARACTERS = 60
WRITTEN_DEFAULT = re.compile(r" +\[default: [^]]*\]$")
"""Written by hand where click cannot know the default."""


def contexts(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield a context for the command and for all below it."""
    settings: dict[str, Any] = {**command.context_settings, "terminal_width": COLUMNS, "max_content_width": COLUMNS}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None, f"{name} lists {below} and does not have it"
            yield from contexts(found, below, context)


EVERY = list(contexts(umbilical, PROGRAM))
GROUPS = [context for context in EVERY if isinstance(context.command, click.Group)]


def path(context: click.Context) -> str:
    return context.command_path


@pytest.mark.parametrize("context", EVERY, ids=path)
def test_the_first_paragraph_is_a_short_sentence(context: click.Context) -> None:
    sentence = " ".join((context.command.help or "").split("\n\n")[0].split())
    assert sentence[:1].isupper(), sentence
    assert sentence.endswith("."), sentence
    assert len(sentence) <= MOST_CHARACTERS, f"{len(sentence)} characters: {sentence}"


@pytest.mark.parametrize("context", GROUPS, ids=path)
def test_a_list_of_commands_cuts_no_sentence_off(context: click.Context) -> None:
    formatter = context.make_formatter()
    context.command.format_options(context, formatter)  # a group's list of commands follows its options
    text = formatter.getvalue()
    assert "Commands:" in text
    assert "..." not in text


@pytest.mark.parametrize("context", EVERY, ids=path)
def test_every_option_has_a_help_text_of_whole_sentences(context: click.Context) -> None:
    options = [option for option in context.command.params if isinstance(option, click.Option) and not option.hidden]
    texts = {option.opts[-1]: WRITTEN_DEFAULT.sub("", option.help or "") for option in options}
    assert {name: text for name, text in texts.items() if not is_sentence(text)} == {}


def is_sentence(text: str) -> bool:
    return (text[:1].isupper() or text.startswith("kube-apiserver")) and text.endswith(".")
