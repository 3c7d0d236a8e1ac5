"""How labs begin and end, in order and after every kind of crash: this machine is the same as before."""

import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fixture_types import Patch
from tests.support.labs import (
    WAYS,
    await_line,
    control_groups_of,
    end,
    isolated,
    machine_picture,
    processes_naming,
    request,
    running,
    start_up,
    wait_until,
)

from umbilical.fault import LabError
from umbilical.lab import cgroups, isolation, keeper_launch, removal
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab, down, up
from umbilical.lab.state import LabDirectory, default_directory
from umbilical.lab.topology import LabNodeRole

pytestmark = [pytest.mark.usefixtures("own_machine"), pytest.mark.real("unshare", "nsenter", "nft", "ip")]


def refusal(path: Path) -> LabError:
    with pytest.raises(LabError) as refused:
        up(request(path))
    assert processes_naming(path) == []
    return refused.value


def test_a_place_that_cannot_hold_a_lab_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert (refusal(tmp_path).code, refusal(tmp_path).why) == ("UMB813", "it is not empty and contains no lab")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("mine")
    assert refusal(tmp_path / "file").why == "it is not a directory"
    assert refusal(tmp_path / "file" / "below").code == "UMB813"
    assert (tmp_path / "file").read_text() == "mine"
    assert refusal(Path("/proc/lab")).code == "UMB813"


@pytest.mark.root
def test_a_file_system_without_programs_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    program = """
import sys; from pathlib import Path
from tests.support.labs import request
from umbilical.fault import LabError
from umbilical.lab.lab import up
try: up(request(Path(sys.argv[1]) / "lab"))
except LabError as fault: print(fault.code, fault.why, list(Path(sys.argv[1]).iterdir()))
"""
    script = 'mount -t tmpfs -o noexec tmpfs "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    said = subprocess.check_output(
        [*command, tmp_path, sys.executable, program], text=True, env=environment, timeout=60
    )
    assert said == "UMB813 its file system is mounted noexec, and nodes run programs from it []\n"


def test_when_the_machine_forbids_it_or_the_directory_goes_nothing_stays(tmp_path: Path, monkeypatch: Patch) -> None:
    def forbid() -> Isolation:
        raise LabError("UMB820", "what", "why", "remedy")

    monkeypatch.setattr(isolation, "choose", forbid)
    assert refusal(tmp_path / "lab").code == "UMB820"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    await_keeper = keeper_launch._await_keeper

    def lose_directory(directory: LabDirectory, *arguments: object) -> object:
        removal.remove_content(directory)
        return await_keeper(directory, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(keeper_launch, "_await_keeper", lose_directory)
    assert refusal(tmp_path / "lab").code == "UMB814"
    assert list(tmp_path.iterdir()) == []


def test_a_keeper_that_does_not_come_up_is_told_of(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(removal, "KEEPER_MODULE", "umbilical.lab.no_such_module")
    fault = refusal(tmp_path / "lab")
    assert fault.code == "UMB814"
    assert "No module named umbilical.lab.no_such_module" in fault.why
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(keeper_launch, "READY_SECONDS", 0.0)
    fault = refusal(tmp_path / "lab")
    assert (fault.code, fault.what) == ("UMB814", "the lab's keeper did not start")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(keeper_launch, "find_program", lambda name: "/no/such/program")
    assert refusal(tmp_path / "lab").code == "UMB814"
    assert list(tmp_path.iterdir()) == []


def test_what_a_keeper_stumbles_over_is_told_and_nothing_stays(tmp_path: Path) -> None:
    before = machine_picture()
    topology = request(tmp_path).topology
    bootstrap = topology.bootstrap
    twins = replace(topology, nodes=(bootstrap, replace(bootstrap, role=LabNodeRole.MASTER)))
    with pytest.raises(LabError) as refused:
        up(replace(request(tmp_path / "lab"), topology=twins))
    assert "bootstrap" in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    assert machine_picture() == before


def test_a_lab_may_be_told_to_stay_after_all(tmp_path: Path) -> None:
    program = """
import sys; from dataclasses import replace; from pathlib import Path
from tests.support.labs import request
from umbilical.lab.lab import up
lab = up(replace(request(Path(sys.argv[1])), with_parent=True))
lab.stay()
lab.stay()
"""
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", program, tmp_path / "lab"], env=environment, timeout=60, check=True)
    directory = LabDirectory(tmp_path / "lab")
    assert removal.is_held(directory)
    assert removal.down(directory.path)
    wait_until(lambda: processes_naming(directory.path) == [])


# Fractions of a whole `up`: in the claim, before Python runs, in the networks and nodes, when it is done.
MOMENTS = (0.0, 0.3, 0.6, 1.0)


def assert_gone(path: Path) -> None:
    assert not path.exists()
    assert processes_naming(path) == []
    assert control_groups_of(path) == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_this_machine_is_the_same_while_a_lab_is_up_and_afterwards(tmp_path: Path, way: Isolation) -> None:
    before = machine_picture()
    with isolated(way), running(tmp_path / "lab") as lab:
        lab.start("master-0", "sleeper", ["sleep", "1000"])
        assert machine_picture() == before
    assert machine_picture() == before
    assert_gone(tmp_path / "lab")
    assert list(tmp_path.iterdir()) == []


def test_programs_are_asked_to_end_before_they_are_made_to(tmp_path: Path) -> None:
    with running(tmp_path / "lab") as lab:
        program = "trap 'echo asked > /tmp/heard; exit' TERM; touch /tmp/ready; while :; do sleep 0.02; done"
        lab.start("master-0", "patient", ["sh", "-c", program])
        wait_until(lambda: lab.exists("master-0", "/tmp/ready"))
        removal.end_keeper(lab.directory, orderly=True)
        assert lab.read("master-0", "/tmp/heard") == b"asked\n"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_lab_whose_keeper_was_killed_is_cleared_up(tmp_path: Path, way: Isolation) -> None:
    before = machine_picture()
    with isolated(way):
        lab = up(request(tmp_path / "lab"))
    lab.start("master-0", "sleeper", ["setsid", "sleep", "7654"])
    assert lab.state.keeper_pid is not None
    os.kill(lab.state.keeper_pid, signal.SIGKILL)
    wait_until(lambda: not lab.state.is_alive())
    with pytest.raises(LabError, match="is not up") as refused:
        Lab.open(tmp_path / "lab")
    assert refused.value.code == "UMB815"
    assert "umbilical lab down" in refused.value.remedy
    assert down(tmp_path / "lab")
    assert_gone(tmp_path / "lab")
    assert machine_picture() == before


def test_what_a_dead_lab_left_is_no_obstacle_to_the_next(tmp_path: Path) -> None:
    lab = up(request(tmp_path / "lab"))
    lab.write("master-0", "/etc/old", b"")
    assert lab.state.keeper_pid is not None
    os.kill(lab.state.keeper_pid, signal.SIGKILL)
    wait_until(lambda: not removal.is_held(lab.directory))
    with running(tmp_path / "lab") as lab:
        assert not lab.exists("master-0", "/etc/old")


def test_killed_at_any_moment_of_coming_up_a_lab_leaves_nothing(tmp_path: Path) -> None:
    before = machine_picture()
    whole_seconds = _seconds_to_come_up(tmp_path / "whole")
    for index, fraction in enumerate(MOMENTS):
        path = tmp_path / f"lab-{index}"
        process = start_up(path)
        time.sleep(fraction * whole_seconds)
        end(process)
        down(path)
        assert_gone(path)
    assert machine_picture() == before


def test_interrupted_at_any_moment_a_lab_that_is_not_to_stay_clears_up_by_itself(tmp_path: Path) -> None:
    whole_seconds = _seconds_to_come_up(tmp_path / "whole")
    for index, fraction in enumerate(MOMENTS):
        path = tmp_path / f"lab-{index}"
        process = start_up(path, "with-parent")
        time.sleep(fraction * whole_seconds)
        process.send_signal(signal.SIGINT)
        process.wait(30)
        end(process)
        wait_until(lambda path=path: not path.exists() and processes_naming(path) == [])  # type: ignore[misc]


def test_a_lab_that_belongs_to_a_process_ends_with_it(tmp_path: Path) -> None:
    process = start_up(tmp_path / "lab", "with-parent")
    await_line(process, b"started")
    end(process)
    wait_until(lambda: not (tmp_path / "lab").exists() and processes_naming(tmp_path / "lab") == [])


def test_a_lab_that_belongs_to_nobody_outlives_whoever_made_it(tmp_path: Path) -> None:
    process = start_up(tmp_path / "lab")
    await_line(process, b"up")
    end(process)
    assert Lab.open(tmp_path / "lab").exec("master-0", ["hostname"]).text == "master-0\n"
    assert down(tmp_path / "lab")
    assert_gone(tmp_path / "lab")


def test_a_keeper_whose_directory_was_deleted_is_found(tmp_path: Path) -> None:
    lab = up(request(tmp_path / "lab"))
    removal.remove_content(lab.directory)
    assert processes_naming(lab.directory.path) != []
    assert down(tmp_path / "lab")
    assert_gone(tmp_path / "lab")


def test_a_state_that_cannot_be_read_is_no_obstacle_and_down_is_twice_fine(tmp_path: Path) -> None:
    lab = up(request(tmp_path / "lab"))
    lab.directory.state_file.write_bytes(b"not json")
    with pytest.raises(LabError, match="UMB815"):
        Lab.open(tmp_path / "lab")
    assert down(tmp_path / "lab")
    assert not down(tmp_path / "lab")
    lab.down()
    assert_gone(tmp_path / "lab")


def test_only_what_a_lab_may_have_left_is_removed(tmp_path: Path) -> None:
    for number, names in enumerate((["file"], ["lock", "file"], ["nodes", "run"])):
        folder = tmp_path / f"other-{number}"
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        with pytest.raises(LabError, match="UMB813"):
            down(folder)
        assert {path.name for path in folder.iterdir()} == set(names)
    for names in ([], ["lock"], ["lock", ".state.json.x1"], ["state.json"], ["state.json", "nodes"]):
        folder = tmp_path / "lab"
        folder.mkdir()
        for name in names:
            (folder / name).touch()
        assert down(folder)
        assert_gone(folder)


def test_a_lab_in_an_empty_directory_goes_by_any_name_of_it_and_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir(0o755)
    (tmp_path / "link").symlink_to("lab")
    up(request(tmp_path / "lab"))
    assert stat.S_IMODE((tmp_path / "lab").stat().st_mode) == 0o700
    (tmp_path / "lab" / "notes.txt").write_text("mine")
    assert down(tmp_path / "link")
    assert [path.name for path in (tmp_path / "lab").iterdir()] == ["notes.txt"]
    assert processes_naming(tmp_path / "lab") == []


@pytest.mark.root
def test_what_is_mounted_inside_is_not_deleted(tmp_path: Path) -> None:
    folder, precious = tmp_path / "lab", tmp_path / "precious"
    (folder / "nodes" / "a b").mkdir(parents=True)
    precious.mkdir()
    (precious / "file").write_text("keep me")
    (folder / "state.json").write_text("{}")
    script = f"mount --bind '{precious}' '{folder}/nodes/a b' && exec python3 -P -c '{_DOWN}' {folder}"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=_python_first())
    assert done.stdout == f"UMB813 {folder}/nodes/a b is mounted inside\n", done.stderr
    assert (precious / "file").read_text() == "keep me"


@pytest.mark.root
def test_control_groups_go_with_the_lab(tmp_path: Path) -> None:
    lab = up(request(tmp_path / "lab"))
    name = cgroups.lab_group(lab.state.name, lab.directory.path)
    lab.set_cgroup(name)
    cgroups.make(name)
    assert list(cgroups.ROOT.rglob(name)) != []
    assert lab.state.keeper_pid is not None
    os.kill(lab.state.keeper_pid, signal.SIGKILL)
    down(tmp_path / "lab")
    assert list(cgroups.ROOT.rglob(name)) == []


_DOWN = """
import sys; from pathlib import Path
from umbilical.fault import LabError
from umbilical.lab.lab import down
try: down(Path(sys.argv[1]))
except LabError as fault: print(fault.code, fault.why)
"""


def _python_first() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def _seconds_to_come_up(path: Path) -> float:
    start = time.monotonic()
    process = start_up(path)
    await_line(process, b"up")
    seconds = time.monotonic() - start
    end(process)
    down(path)
    return seconds


def test_the_last_lab_takes_the_default_place_along(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    homes = [default_directory(name) for name in ("one", "two")]
    for home in homes:
        home.mkdir(parents=True)
    removal.down(homes[0])
    assert homes[1].is_dir()
    removal.down(homes[1])
    assert list(tmp_path.iterdir()) == []
