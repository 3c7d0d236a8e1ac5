"""Maps of users, as the kernel writes them."""

import os
from pathlib import Path

import pytest

from umbilical.lab.pods.users import is_mapped, may_set_groups


@pytest.mark.parametrize(
    ("text", "number", "expected"),
    [
        ("         0          0 4294967295\n", 65532, True),
        ("         0       1000          1\n", 0, True),
        ("         0       1000          1\n", 65532, False),
        ("0 1000 1\n1 100000 65536\n", 65532, True),
        ("0 1000 1\n1 100000 65536\n", 65537, False),
        ("", 0, False),
    ],
)
def test_a_user_exists_where_the_map_has_it(tmp_path: Path, text: str, number: int, expected: bool) -> None:
    (tmp_path / "uid_map").write_text(text)
    assert is_mapped("uid", number, tmp_path) is expected


@pytest.mark.parametrize(("text", "expected"), [("allow\n", True), ("deny\n", False)])
def test_groups_can_be_set_where_the_kernel_says_so(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "setgroups").write_text(text)
    assert may_set_groups(tmp_path) is expected


def test_we_ourselves_exist_here() -> None:
    assert is_mapped("uid", os.getuid())
    assert not is_mapped("gid", 2**32)
