"""Flags as command lines have them."""

import pytest

from umbilical.assets.hardway.topic import Flag


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        (Flag("etcd-prefix", "kubernetes.io", "one prefix"), "--etcd-prefix=kubernetes.io"),
        # CVO-02: an empty value is a value.
        (Flag("listen", "", "it does not serve"), "--listen="),
    ],
)
def test_a_flag_is_written_with_its_value(flag: Flag, shown: str) -> None:
    assert str(flag) == shown
