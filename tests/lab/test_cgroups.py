"""Control groups: in a tree of plain files for both versions, and in the kernel's own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab import cgroups
from umbilical.lab.errors import LabError


def _version_1(root: Path) -> Path:
    """A machine in between: controllers with a tree each, links between two of them, and an empty tree of version 2."""
    for name in ("cpu,cpuacct", "cpuset", "memory"):
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").touch()
    (root / "cpu").symlink_to("cpu,cpuacct")
    (root / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    (root / "no-hierarchy").mkdir()
    return root


def _version_2(root: Path) -> Path:
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
    (root / "cgroup.subtree_control").write_text("cpu io\n")
    return root


def test_a_group_is_made_in_every_hierarchy_once(tmp_path: Path) -> None:
    root = _version_1(tmp_path / "cgroup")
    (root / "cpuset" / "umbilical-a").mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):
        # The kernel makes these, empty, with the directory.
        (root / "cpuset" / "umbilical-a" / name).touch()
    cgroups.make("umbilical-a", root)
    cgroups.make("umbilical-a", root)
    assert [path.parent.name for path in cgroups.find("umbilical-a", root)] == ["cpu,cpuacct", "cpuset", "memory"]
    assert (root / "cpuset" / "umbilical-a" / "cpuset.cpus").read_text() == "0-1\n"
    assert (root / "cpuset" / "umbilical-a" / "cpuset.mems").read_text() == "0\n"


def test_under_version_2_parents_hand_the_controllers_on_that_are_missing(tmp_path: Path) -> None:
    root = _version_2(tmp_path / "cgroup")
    cgroups.make("umbilical-a", root)
    assert (root / "cgroup.subtree_control").read_text() == "+cpuset +memory +pids"
    assert cgroups.find("umbilical-a", root) == [root / "umbilical-a"]


def test_a_machine_without_control_groups_is_told_from_one_with(tmp_path: Path) -> None:
    with pytest.raises(LabError) as refused:
        cgroups.make("umbilical-a", tmp_path)
    assert refused.value.code == "UMB846"
    assert "nothing is mounted" in refused.value.why


def test_what_the_kernel_refuses_is_named(tmp_path: Path) -> None:
    root = _version_2(tmp_path / "cgroup")
    (root / "umbilical-a").touch()
    with pytest.raises(LabError) as refused:
        cgroups.make("umbilical-a/node", root)
    assert refused.value.code == "UMB846"
    assert str(root / "umbilical-a") in refused.value.why


@pytest.mark.parametrize(
    "name", ["", "/", "..", "system.slice", "umbilical-", "umbilical-a/..", "umbilical-a/../b", "/x"]
)
def test_only_a_labs_own_name_is_ever_removed(name: str, tmp_path: Path) -> None:
    for call in (cgroups.make, cgroups.remove, cgroups.find):
        with pytest.raises(LabError) as refused:
            call(name, tmp_path)
        assert refused.value.code == "UMB846"


@given(name=st.text(max_size=60), place=st.text(st.characters(blacklist_characters="\0", codec="utf-8"), max_size=60))
def test_every_lab_has_a_name_that_is_allowed(name: str, place: str) -> None:
    group = cgroups.lab_group(name, Path("/labs") / place)
    assert cgroups.find(f"{group}/master-0", Path("/nowhere")) == []
    assert "/" not in group


def test_two_labs_of_one_name_have_two_groups() -> None:
    assert cgroups.lab_group("lab", Path("/a")) != cgroups.lab_group("lab", Path("/b"))


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    root = _version_1(tmp_path / "cgroup")
    cgroups.remove("umbilical-a", root)
    cgroups.make("umbilical-a/node", _version_2(tmp_path / "other"))
    cgroups.remove("umbilical-a", tmp_path / "nowhere")


def test_what_is_still_in_use_is_told_of(tmp_path: Path) -> None:
    root = _version_2(tmp_path / "cgroup")
    cgroups.make("umbilical-a", root)
    # Like a process in it, a file keeps a directory from going.
    (root / "umbilical-a" / "inhabited").touch()
    with pytest.raises(LabError) as refused:
        cgroups.remove("umbilical-a", root, timeout_seconds=0.1)
    assert refused.value.code == "UMB847"
    assert "cgroup.procs" in refused.value.remedy


@pytest.fixture
def real_name(tmp_path: Path) -> Iterator[str]:
    name = cgroups.lab_group("test", tmp_path)
    yield name
    cgroups.remove(name)


@pytest.mark.root
def test_the_kernels_own_groups_take_a_process_and_go_when_it_has(real_name: str) -> None:
    cgroups.make(f"{real_name}/node")
    trees = cgroups.find(real_name)
    assert trees
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        for tree in trees:
            (tree / "node" / "cgroup.procs").write_text(str(sleeper.pid))
        with pytest.raises(LabError) as refused:
            cgroups.remove(real_name, timeout_seconds=0.2)
        assert refused.value.code == "UMB847"
        sleeper.kill()
    cgroups.remove(real_name)
    assert cgroups.find(real_name) == []
