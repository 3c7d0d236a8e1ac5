"""The monkey is fair: by one seed always the same deck, and in it every kind for everybody."""

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chaos.monkey import Card, Kind, rounds

EVERY: Final = {Card(kind, role) for kind in Kind for role in ("server", "agent")}


@given(st.integers(0, 2**32))
def test_a_deck_has_every_kind_for_both_roles_and_two_long_ones_together(seed: int) -> None:
    dealt = list(rounds(random.Random(seed)))
    cards = [card for pair in dealt for card in pair]
    assert {card for card in cards if not card.is_long} == EVERY
    long = [pair for pair in dealt if pair[0].is_long]
    assert len(long) == 1
    assert {card.role for card in long[0]} == {"server", "agent"}


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_deals_the_same_deck_again(seed: int) -> None:
    assert list(rounds(random.Random(seed))) == list(rounds(random.Random(seed)))
