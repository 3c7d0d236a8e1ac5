"""`umbilical lab up`: whole or not at all."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.labs import processes_naming, wait_until

from umbilical.cli import main
from umbilical.lab.errors import LabError
from umbilical.lab.lab import Lab, down
from umbilical.lab.process_runner import ProcessRunner

pytestmark = pytest.mark.real("unshare", "nsenter", "nft")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "lab"
    down(tmp_path / "lab")


def run(place: Path, *options: str) -> int:
    return main.run(["lab", "up", "--dir", str(place), "--masters", "1", "--workers", "0", *options])


def test_a_lab_comes_up_with_a_runner_on_every_node(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(place) == 0
    said = capfd.readouterr()
    assert said.out.startswith("lab is up: 2 nodes on 10.91.0.0/24, ")
    assert f"umbilical lab shell bootstrap --dir {place}" in said.out
    assert "making networks and nodes" in said.err
    lab = Lab.open(place)
    assert {(each.node, each.exit_code) for each in lab.processes()} == {("bootstrap", None), ("master-0", None)}


def test_a_bare_lab_runs_nothing(place: Path) -> None:
    assert run(place, "--bare", "--family", "dual", "--pod-network", "10.50.0.0/16") == 0
    lab = Lab.open(place)
    assert lab.processes() == []
    assert [str(network) for network in lab.topology.pod_networks] == ["10.50.0.0/16", "fd92::/48"]


def test_by_name_it_lies_in_the_default_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main.run(["lab", "up", "--bare", "--name", "other", "--masters", "1", "--workers", "0"]) == 0
    assert "umbilical lab down --name other\n" in capfd.readouterr().out
    assert down(tmp_path / "umbilical/labs/other")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--machine-network", "10.92.0.0/24"], "UMB811"),
        (["--machine-network", "127.0.0.0/8"], "UMB811"),
        (["--pod-network", "fd00::/48"], "UMB811"),
        (["--workers", "-1"], "UMB001"),
        (["--runner", "docker"], "UMB001"),
        (["--runner", "kubelet", "--bin-dir", "/usr/share"], "UMB824"),
        (["--runner", "kubelet", "--bin-dir", "/proc/empty"], "UMB001"),
    ],
)
def test_bad_input_changes_nothing(
    place: Path,
    options: list[str],
    code: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent / "no-cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert run(place, *options) != 0
    assert capfd.readouterr().err.startswith(code)
    assert list(place.parent.iterdir()) == []


def test_an_occupied_directory_is_refused(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place.mkdir()
    (place / "file").touch()
    assert run(place) == 4
    assert f"UMB813 {place} cannot be taken for a lab" in capfd.readouterr().err
    assert [path.name for path in place.iterdir()] == ["file"]
    (place / "file").unlink()


def test_a_runner_that_fails_takes_the_lab_down_with_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: ProcessRunner, lab: Lab, node: str, kubeconfig: str | None) -> None:
        raise LabError("UMB830", f"no runner on {node}", "why", "remedy")

    monkeypatch.setattr(ProcessRunner, "start", refuse)
    assert run(place) == 4
    assert "UMB830 no runner on bootstrap" in capfd.readouterr().err
    assert not place.exists()
    assert processes_naming(place) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_at_any_moment_it_leaves_nothing(place: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "umbilical", "lab", "up", "--masters", "1", "--workers", "0", "--dir", str(place)]
    for seconds in (0.1, 0.25, 0.5, 0.8):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        time.sleep(seconds)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
        if "is up" in said or number is not signal.SIGINT:
            # It was up before the signal came, or could not clear up its first traces itself.
            down(place)
        wait_until(lambda: not place.exists() and processes_naming(place) == [])
