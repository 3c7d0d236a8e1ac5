"""Which lab a command means."""

from pathlib import Path

import pytest

from umbilical.cli.lab_options import chosen_directory, chosen_name
from umbilical.lab.errors import LabError


def test_a_name_means_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert chosen_directory("other", None) == tmp_path / "umbilical/labs/other"
    assert chosen_name("other", None) == "other"


def test_a_directory_wins_and_gives_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen_directory("lab", Path("here")) == tmp_path / "here"
    assert chosen_name("lab", Path("here")) == "here"


def test_a_name_that_leads_elsewhere_is_refused() -> None:
    with pytest.raises(LabError) as refused:
        chosen_directory("../elsewhere", None)
    assert refused.value.code == "UMB810"
