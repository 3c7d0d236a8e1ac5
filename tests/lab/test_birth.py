"""How a lab begins, and what is left when it cannot: nothing."""

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.labs import machine_picture, processes_naming, request, running, wait_until

from umbilical.lab import birth, isolation, removal
from umbilical.lab.errors import LabError
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import up
from umbilical.lab.paths import LabDirectory
from umbilical.lab.topology import Role

pytestmark = pytest.mark.real("unshare", "nsenter", "nft", "ip")


def refusal(path: Path) -> LabError:
    with pytest.raises(LabError) as refused:
        up(request(path))
    assert processes_naming(path) == []
    return refused.value


def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert (refusal(tmp_path).code, refusal(tmp_path).why) == ("UMB813", "it is not empty, and holds no lab")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert refusal(tmp_path / "file").why == "it is no directory"
    assert refusal(tmp_path / "file" / "below").code == "UMB813"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_that_cannot_be_written_to_is_refused() -> None:
    assert refusal(Path("/proc/lab")).code == "UMB813"


def test_an_empty_directory_is_taken_and_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir(0o755)
    with running(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.root
def test_a_file_system_without_programs_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    program = """
import sys; from pathlib import Path
from tests.support.labs import request
from umbilical.lab.errors import LabError
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
    assert said == "UMB813 its file system is mounted noexec, and a node's own programs lie there []\n"


def test_when_the_machine_forbids_it_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid() -> Isolation:
        raise LabError("UMB820", "what", "why", "remedy")

    monkeypatch.setattr(isolation, "choose", forbid)
    assert refusal(tmp_path / "lab").code == "UMB820"
    assert list(tmp_path.iterdir()) == []


def test_a_keeper_that_cannot_be_started_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "KEEPER_MODULE", "umbilical.lab.no_such_module")
    fault = refusal(tmp_path / "lab")
    assert fault.code == "UMB814"
    assert "No module named umbilical.lab.no_such_module" in fault.why
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_not_there_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(birth, "find_program", lambda name: "/no/such/program")
    assert refusal(tmp_path / "lab").code == "UMB814"
    assert list(tmp_path.iterdir()) == []


def test_a_keeper_that_never_reports_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(birth, "READY_SECONDS", 0.0)
    fault = refusal(tmp_path / "lab")
    assert (fault.code, fault.what) == ("UMB814", "the lab's keeper did not come up")
    assert list(tmp_path.iterdir()) == []


def test_what_a_keeper_stumbles_over_is_told_and_nothing_stays(tmp_path: Path) -> None:
    before = machine_picture()
    topology = request(tmp_path).topology
    bootstrap = topology.bootstrap
    twins = replace(topology, nodes=(bootstrap, replace(bootstrap, role=Role.MASTER)))
    with pytest.raises(LabError) as refused:
        up(replace(request(tmp_path / "lab"), topology=twins))
    assert "bootstrap" in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    assert machine_picture() == before


def test_a_directory_that_is_taken_away_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await_keeper = birth._await_keeper

    def lose_directory(directory: LabDirectory, *arguments: object) -> object:
        removal.remove_content(directory)
        return await_keeper(directory, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(birth, "_await_keeper", lose_directory)
    assert refusal(tmp_path / "lab").code == "UMB814"
    assert list(tmp_path.iterdir()) == []


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
