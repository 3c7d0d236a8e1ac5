"""`make setup` names the remedy instead of failing half-way."""

import pytest

import environment


def test_an_old_python_is_refused_with_the_way_to_name_a_newer_one() -> None:
    with pytest.raises(environment.EnvironmentRefused) as caught:
        environment.require_python((3, 9), "/usr/bin/python3")
    what, why, remedy = str(caught.value).splitlines()
    assert what == "UMB912 Python 3.9 is too old"
    assert why.startswith("  why: /usr/bin/python3 runs this")
    assert remedy == "  next: name a newer one: make setup PYTHON=/path/to/python3.11"


@pytest.mark.parametrize("version", [(3, 11), (3, 13)])
def test_a_python_from_311_on_is_accepted(version: tuple[int, int]) -> None:
    environment.require_python(version, "python3")


def test_a_python_without_ensurepip_is_refused_with_the_package_to_install() -> None:
    with pytest.raises(environment.EnvironmentRefused, match=r"next: apt-get install python3\.11-venv"):
        environment.require_venv((3, 11), (True, False))


def test_a_step_that_fails_shows_its_last_line_and_its_command() -> None:
    with pytest.raises(environment.EnvironmentRefused) as caught:
        environment._step("packages", ["sh", "-c", "echo first >&2; echo last >&2; exit 3"])
    assert str(caught.value).splitlines()[:2] == ["UMB914 setup failed: packages", "  why: last"]
