"""The words in which a platform is told."""

from umbilical.assets.platforms.catalogue import PLATFORMS
from umbilical.assets.platforms.platform import ANYWHERE, Place, PlaceKind


def test_a_place_reads_as_kind_and_name() -> None:
    assert str(Place(PlaceKind.GROUP, "ci-node")) == "security group ci-node"
    assert str(ANYWHERE) == "anywhere"


def test_exactly_two_platforms_leak() -> None:
    assert [name for name, platform in PLATFORMS.items() if platform.leaks] == ["azure", "powervs"]
