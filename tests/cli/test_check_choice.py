"""Which checks a user wants: by id, group or pattern, wanted or not."""

from dataclasses import dataclass

import click
import pytest

from umbilical.cli.check_choice import chosen, refuse_emptiness, selection, which_options


@dataclass(frozen=True)
class Item:
    id: str


ITEMS = [Item(name) for name in ("CFG-01", "CFG-02", "PKI-01", "PKI-12")]


def _ids(only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> list[str]:
    return [item.id for item in chosen(ITEMS, [selection(one) for one in only], [selection(one) for one in skip])]


def test_without_a_word_all_are_taken() -> None:
    assert len(_ids()) == len(ITEMS)


@pytest.mark.parametrize(
    ("only", "skip", "taken"),
    [
        (("cfg-01",), (), ["CFG-01"]),
        (("PKI",), (), ["PKI-01", "PKI-12"]),
        (("CFG-01,PKI-1.",), (), ["CFG-01", "PKI-12"]),
        ((), ("CFG", "PKI-12"), ["PKI-01"]),
        (("!CFG",), (), ["PKI-01", "PKI-12"]),
        (("CFG", "!CFG-02"), (), ["CFG-01"]),
    ],
)
def test_ids_groups_and_patterns(only: tuple[str, ...], skip: tuple[str, ...], taken: list[str]) -> None:
    assert _ids(only, skip) == taken


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="neither ids"):
        selection("(")


def test_nothing_left_is_a_mistake_and_no_success() -> None:
    with pytest.raises(click.UsageError):
        refuse_emptiness([])


def test_both_options_are_offered() -> None:
    @click.command()
    def command() -> None: ...

    for option in which_options("A1"):
        command = option(command)
    assert {parameter.name for parameter in command.params} == {"only", "skip"}
