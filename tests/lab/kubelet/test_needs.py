"""What is missing is told before anything is changed."""

from pathlib import Path

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.kubelet import needs
from umbilical.lab.kubelet.needs import CNI_PLUGINS, check_needs, find_cni


def programs(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(needs, "find_cni", lambda: tmp_path)
    return programs(tmp_path, ("containerd", "ctr", "runc"))


def test_who_has_all_is_let_through(complete: Path) -> None:
    check_needs(["kubelet"], is_root=True, path=str(complete))


def test_root_is_asked_for_first(tmp_path: Path) -> None:
    with pytest.raises(LabError) as refused:
        check_needs([], is_root=False, path=str(tmp_path))
    assert refused.value.code == "UMB840"
    assert "--runner process" in refused.value.remedy


def test_missing_programs_are_named_with_the_packages_that_bring_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "find_cni", lambda: None)
    with pytest.raises(LabError) as refused:
        check_needs(["kubelet"], is_root=True, path=str(programs(tmp_path, ("runc",))))
    assert refused.value.code == "UMB841"
    assert "the CNI plugins" in refused.value.what
    assert refused.value.remedy == ("apt-get install --no-install-recommends containerd containernetworking-plugins")


def test_a_kubelet_is_needed_too(complete: Path) -> None:
    with pytest.raises(LabError) as refused:
        check_needs(["etcd"], is_root=True, path=str(complete))
    assert refused.value.code == "UMB841"
    assert refused.value.remedy == "make peers GROUP=kubernetes"


def test_a_directory_with_some_of_the_plugins_is_passed_over(tmp_path: Path) -> None:
    some, every = tmp_path / "some", tmp_path / "every"
    some.mkdir()
    every.mkdir()
    programs(some, CNI_PLUGINS[:-1])
    assert find_cni([some]) is None
    assert find_cni([some, programs(every, CNI_PLUGINS)]) == every
