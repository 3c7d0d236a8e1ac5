"""Which users and groups exist here: in a user namespace made without root, root alone."""

from pathlib import Path
from typing import Final

MAPS: Final = Path("/proc/self")


def is_mapped(kind: str, number: int, maps: Path = MAPS) -> bool:
    """Tell whether a user (`uid`) or group (`gid`) has a counterpart outside, without which nobody can become it."""
    for line in (maps / f"{kind}_map").read_text().splitlines():
        first, _, count = (int(text) for text in line.split())
        if first <= number < first + count:
            return True
    return False


def may_set_groups(maps: Path = MAPS) -> bool:
    """Without root nobody may drop groups: a file could be closed to one of them."""
    return (maps / "setgroups").read_text().strip() == "allow"
