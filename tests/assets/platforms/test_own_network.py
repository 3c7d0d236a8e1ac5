"""Networks of the user's own."""

import pytest

from umbilical.assets.errors import AssetError
from umbilical.assets.platforms.own_network import leftovers, own_network
from umbilical.assets.platforms.platform import Remover
from umbilical.assets.platforms.request import Request


def test_nobody_but_the_user_makes_or_removes_anything() -> None:
    platform = own_network("tin-can")
    assert [removal.by for removal in platform.removals] == [Remover.USER]
    assert [platform.commands, platform.blocks, platform.edit] == [None, None, None]


def test_the_platforms_name_is_in_the_question_for_sources() -> None:
    with pytest.raises(AssetError, match="tin-can: from where"):
        own_network("tin-can").rules(Request())


def test_what_is_left_over_is_our_table() -> None:
    assert leftovers(Request()).close[0].words == ("nft", "delete", "table", "inet", "umbilical_konnectivity")
