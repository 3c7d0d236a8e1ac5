"""How a lab is kept apart: namespaces, control groups, and what is said where there are none."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fixture_types import Patch

from umbilical.fault import LabError
from umbilical.lab import cgroups, isolation
from umbilical.lab.isolation import Isolation

CHOOSE = """
from umbilical.lab import isolation
from umbilical.fault import LabError
try: print(isolation.choose().name)
except LabError as fault: print(fault)
"""


def choose_within(*way: str) -> list[str]:
    """Choose in a process that is put somewhere first."""
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [*way, sys.executable, "-c", CHOOSE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    return done.stdout.splitlines()


@pytest.mark.real("unshare", "nsenter", "nft")
def test_who_is_root_needs_no_user_namespace() -> None:
    assert isolation.choose() is (Isolation.USER_NAMESPACE if os.geteuid() else Isolation.ROOT)


@pytest.mark.real("unshare", "nsenter", "nft", "setpriv")
def test_an_ordinary_user_and_a_root_without_capabilities_get_a_user_namespace() -> None:
    as_user = ["unshare", "--user", "--map-user=1234", "--map-group=1234", "--"]
    assert choose_within(*as_user) == ["USER_NAMESPACE"]
    # Containers keep SETFCAP, without which nobody may call another user 0: user_namespaces(7).
    powerless = ["setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all"]
    assert choose_within("unshare", "--user", "--map-root-user", "--", *powerless) == ["USER_NAMESPACE"]


@pytest.mark.real("unshare", "nsenter", "nft", "setpriv")
@pytest.mark.parametrize(
    ("identity", "remedy"),
    [
        (["--map-user=1234", "--map-group=1234", "--keep-caps"], "sudo sysctl user.max_user_namespaces=10000"),
        (["--map-root-user"], "give this container CAP_SYS_ADMIN and CAP_NET_ADMIN"),
    ],
)
def test_who_may_make_no_namespaces_is_told_what_would_allow_it(identity: list[str], remedy: str) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    powerless = ["setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--bounding-set=-all"]
    said = choose_within("unshare", "--user", *identity, "--", "sh", "-c", forbid, "sh", *powerless)
    assert said[0] == "UMB820 no permission to create the lab's namespaces"
    assert said[1].startswith("  why: unshare: unshare failed: ")
    assert said[-1].startswith(f"  next: {remedy}")


def test_a_kernel_that_is_too_old_is_told() -> None:
    for release in ("5.11.22", "4.18.0-553.el8_10.x86_64", "2.6.32", "5.4"):
        with pytest.raises(LabError, match=r"(?s)UMB821.*needs 5\.12 or newer") as refused:
            isolation.check_kernel(release)
        assert release in refused.value.why
    for release in ("5.12.0", "5.15.0-generic", "6.1.0-13-amd64", "10.0", "", "unknown", "6"):
        isolation.check_kernel(release)


def test_another_system_and_a_missing_package_are_told() -> None:
    isolation.check_system("Linux")
    for system in ("Darwin", "FreeBSD", ""):
        with pytest.raises(LabError, match="UMB823"):
            isolation.check_system(system)
    isolation.check_libraries(["sys"])
    with pytest.raises(LabError, match="UMB826") as caught:
        isolation.check_libraries(["sys", "umbilical_nowhere"])
    assert caught.value.what.endswith("missing: umbilical_nowhere")
    assert caught.value.remedy == "pip install 'umbilical[lab]'"


def test_a_missing_program_is_told_with_its_package(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "nsenter").touch(0o755)
    monkeypatch.setattr(isolation, "search_path", lambda: str(tmp_path))
    with pytest.raises(LabError, match="UMB822") as refused:
        isolation.choose()
    assert refused.value.what.endswith("missing: unshare")
    assert "apt install util-linux " in refused.value.remedy
    (tmp_path / "unshare").touch(0o755)
    isolation.check_programs()


def test_programs_are_looked_for_where_administrators_have_them(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", "/opt/only")
    assert isolation.search_path() == "/opt/only:/usr/sbin:/sbin"
    monkeypatch.delenv("PATH")
    assert "/usr/sbin" in isolation.search_path().split(":")


@pytest.mark.real("unshare")
def test_a_trial_that_cannot_be_started_is_a_refusal(monkeypatch: Patch) -> None:
    monkeypatch.setattr(isolation, "find_program", lambda name: "/no/such/program")
    with pytest.raises(LabError, match="UMB820"):
        isolation.choose()


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


def test_a_machine_that_has_or_allows_no_control_groups_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"(?s)UMB846.*why: .*nothing is mounted"):
        cgroups.make("umbilical-a", tmp_path)
    root = _version_2(tmp_path / "cgroup")
    (root / "umbilical-a").touch()
    with pytest.raises(LabError, match="UMB846") as refused:
        cgroups.make("umbilical-a/node", root)
    assert str(root / "umbilical-a") in refused.value.why


def test_only_a_labs_own_name_is_ever_removed(tmp_path: Path) -> None:
    for name in ("", "/", "..", "system.slice", "umbilical-", "umbilical-a/..", "umbilical-a/../b", "/x"):
        for call in (cgroups.make, cgroups.remove, cgroups.find):
            with pytest.raises(LabError, match="UMB846"):
                call(name, tmp_path)


@given(name=st.text(max_size=60), place=st.text(st.characters(blacklist_characters="\0", codec="utf-8"), max_size=60))
def test_every_lab_has_a_name_that_is_allowed(name: str, place: str) -> None:
    group = cgroups.lab_group(name, Path("/labs") / place)
    assert cgroups.find(f"{group}/master-0", Path("/nowhere")) == []
    assert "/" not in group
    assert group != cgroups.lab_group(name, Path("/others") / place.strip("/"))


def test_removing_what_is_not_there_is_fine_and_what_is_in_use_is_told_of(tmp_path: Path) -> None:
    root = _version_1(tmp_path / "cgroup")
    cgroups.remove("umbilical-a", root)
    cgroups.make("umbilical-a/node", _version_2(tmp_path / "other"))
    cgroups.remove("umbilical-a", tmp_path / "nowhere")
    root = _version_2(tmp_path / "used")
    cgroups.make("umbilical-a", root)
    # Like a process in it, a file keeps a directory from going.
    (root / "umbilical-a" / "inhabited").touch()
    with pytest.raises(LabError, match="UMB847") as refused:
        cgroups.remove("umbilical-a", root, timeout_seconds=0.1)
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
        with pytest.raises(LabError, match="UMB847"):
            cgroups.remove(real_name, timeout_seconds=0.2)
        sleeper.kill()
    cgroups.remove(real_name)
    assert cgroups.find(real_name) == []
