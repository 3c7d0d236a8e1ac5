import pytest
from tests.support.bootkube_script import RELEASES, Release, bootkube_script

from umbilical.assets.bootkube.release_line import release_line


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_of_a_script_lies_in_the_range_that_is_told(release: str) -> None:
    native = "off" if Release.parse(release) >= Release(4, 23) else "none"
    told = release_line(bootkube_script(release, native="off" if native == "off" else "none"))
    first, _, last = told.replace(" or newer", " to 9.9").partition(" to ")
    assert Release.parse(first) <= Release.parse(release) <= Release.parse(last or first)


def test_neighbours_that_differ_are_told_apart() -> None:
    assert release_line(bootkube_script("4.12")) == "4.12"
    assert release_line(bootkube_script("4.14")) == "4.13 to 4.14"
    assert release_line(bootkube_script("4.18")) == "4.18"
    assert release_line(bootkube_script("5.1", native="on")) == "4.23 or newer"


def test_a_script_without_any_sign_is_told_as_old() -> None:
    assert release_line("#!/bin/bash\n") == "4.11 or older"
