"""Where a lab keeps its things."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.errors import LabError
from umbilical.lab.paths import CONTENT, LAB_NAME, LabDirectory, default_directory, labs_root, list_labs, tidy_name


def test_everything_that_a_lab_keeps_lies_in_its_directory_and_goes_with_it(tmp_path: Path) -> None:
    directory = LabDirectory(tmp_path)
    places = [
        directory.state_file,
        directory.state_lock,
        directory.lock_file,
        directory.control_socket,
        directory.node_root("master-0"),
        directory.log_file("master-0", "podrunner"),
        directory.keeper_log,
        directory.bin,
        directory.network_namespaces,
        directory.scene_file,
        directory.images,
    ]
    assert {place.relative_to(directory.path).parts[0] for place in places} == set(CONTENT)


def test_the_state_file_goes_last(tmp_path: Path) -> None:
    assert CONTENT[-1] == LabDirectory(tmp_path).state_file.name


def test_a_directory_is_known_by_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "link").symlink_to("lab")
    monkeypatch.chdir(tmp_path)
    names = ["lab", "link", "./lab/../lab", str(tmp_path / "link")]
    assert {LabDirectory(Path(name)).path for name in names} == {(tmp_path / "lab").resolve()}


def test_labs_lie_in_the_users_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local/state/umbilical/labs/lab"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_directory("other") == tmp_path / "state/umbilical/labs/other"


@pytest.mark.parametrize("name", ["", "..", "a/b", "Lab", "-lab", "lab-", "a b", "x" * 41, "läb", "lab\n"])
def test_a_name_that_cannot_name_a_directory_and_cgroups_is_refused(name: str) -> None:
    with pytest.raises(LabError) as refused:
        default_directory(name)
    assert refused.value.code == "UMB810"


def test_labs_are_listed_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert list_labs() == []
    for name in ("two", "one"):
        default_directory(name).mkdir(parents=True)
    (labs_root() / "file").touch()
    assert [path.name for path in list_labs()] == ["one", "two"]


@given(st.text())
def test_any_directory_gives_a_lab_a_name_that_it_can_have(text: str) -> None:
    assert LAB_NAME.fullmatch(tidy_name(text))


def test_a_name_that_is_fine_is_kept() -> None:
    assert [tidy_name(text) for text in ("lab", "a" * 40, "umbilical-lab-x_y", "Läb 2")] == [
        "lab",
        "a" * 40,
        "umbilical-lab-x-y",
        "l-b-2",
    ]
