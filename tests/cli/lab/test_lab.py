"""`umbilical lab up`, `down` and `status`: whole or not at all, also after a crash."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.labs import processes_naming, request, running, wait_until

from umbilical.fault import LabError
from umbilical.lab.hosted.topology import plan_hosted
from umbilical.lab.lab import Lab, down, up
from umbilical.lab.runner import ContainerStatus, PodStatus
from umbilical.lab.runners import ProcessRunner
from umbilical.lab.state import default_directory, write_state

pytestmark = pytest.mark.real("unshare", "nsenter", "nft")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "lab"
    down(tmp_path / "lab")


@pytest.fixture
def lab_up(umbilical: Run) -> Run:
    return partial(umbilical, "lab", "up", "--masters", "1", "--workers", "0", "--dir")


def test_a_lab_comes_up_with_a_runner_on_every_node(place: Path, lab_up: Run) -> None:
    said = lab_up(place)
    assert said.out.startswith("lab is up: 2 nodes on 10.91.0.0/24, ")
    assert f"umbilical lab shell bootstrap --dir {place}" in said.out
    assert "creating networks and nodes" in said.err
    lab = Lab.open(place)
    assert {(each.node, each.exit_code) for each in lab.processes()} == {("bootstrap", None), ("master-0", None)}


def test_a_bare_lab_runs_nothing(place: Path, lab_up: Run) -> None:
    lab_up(place, "--bare", "--family", "dual", "--pod-network", "10.50.0.0/16")
    lab = Lab.open(place)
    assert lab.processes() == []
    assert [str(network) for network in lab.topology.pod_networks] == ["10.50.0.0/16", "fd92::/48"]


def test_by_name_it_lies_in_the_default_place(tmp_path: Path, umbilical: Run) -> None:
    output = umbilical("lab", "up", "--bare", "--name", "other", "--masters", "1", "--workers", "0")
    assert "umbilical lab down --name other\n" in output.out
    assert down(tmp_path / "umbilical/labs/other")


def test_bad_input_changes_nothing(place: Path, monkeypatch: Patch, lab_up: Run) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent / "no-cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for options, status, code in (
        (["--machine-network", "10.92.0.0/24"], 3, "UMB811"),
        (["--machine-network", "127.0.0.0/8"], 3, "UMB811"),
        (["--pod-network", "fd00::/48"], 3, "UMB811"),
        (["--workers", "-1"], 2, "UMB001"),
        (["--runner", "docker"], 2, "UMB001"),
        (["--runner", "kubelet", "--bin-dir", "/usr/share"], 4, "UMB824"),
        (["--runner", "kubelet", "--bin-dir", "/proc/empty"], 2, "UMB001"),
        (["--image", __file__], 2, "UMB001"),
        (["--runner", "kubelet", "--image", __file__], 4, "UMB849"),
        (["--kubernetes-version", "1.36"], 4, "UMB824 a needed program of Kubernetes v1.36 is missing"),
        (["--kubernetes-version", "latest"], 2, "UMB001"),
    ):
        assert lab_up(place, *options, status=status).err.startswith(code)
        assert list(place.parent.iterdir()) == []


def test_an_occupied_directory_is_refused(place: Path, lab_up: Run) -> None:
    place.mkdir()
    (place / "file").touch()
    assert f"UMB813 no lab was created in {place}" in lab_up(place, status=4).err
    assert [path.name for path in place.iterdir()] == ["file"]
    (place / "file").unlink()


def test_a_runner_that_fails_takes_the_lab_down_with_it(place: Path, monkeypatch: Patch, lab_up: Run) -> None:
    def refuse(self: ProcessRunner, lab: Lab, node: str, kubeconfig: str | None) -> None:
        raise LabError("UMB830", f"no runner on {node}", "why", "remedy")

    monkeypatch.setattr(ProcessRunner, "start", refuse)
    assert "UMB830 no runner on bootstrap" in lab_up(place, status=4).err
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


@pytest.fixture(autouse=True)
def default_place(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_lab_goes_and_doing_it_twice_is_fine(umbilical: Run) -> None:
    place = up(request(default_directory())).directory.path
    assert umbilical("lab", "down").out == f"{place} removed\n"
    assert umbilical("lab", "down").out == f"no lab in {place}\n"
    assert processes_naming(place) == []


def test_all_labs_go_also_dead_ones(umbilical: Run) -> None:
    labs = [up(request(default_directory(name))) for name in ("one", "two")]
    assert labs[0].state.keeper_pid is not None
    os.kill(labs[0].state.keeper_pid, signal.SIGKILL)
    wait_until(lambda: not labs[0].state.is_alive())
    one, two = (lab.directory.path for lab in labs)
    assert umbilical("lab", "down", "--all").out == f"{one} removed\n{two} removed\n"
    assert umbilical("lab", "down", "--all").out == "no lab found\n"
    assert not one.exists()
    assert not two.exists()
    for lab in labs:
        lab.down()


def test_a_directory_that_is_not_a_labs_does_not_save_the_others(umbilical: Run) -> None:
    default_directory("a").mkdir(parents=True)
    (default_directory("a") / "precious").touch()
    lab = up(request(default_directory("b")))
    said = umbilical("lab", "down", "--all", status=4)
    assert said.out == f"{lab.directory.path} removed\n"
    assert said.err.startswith("UMB813 ")
    assert (default_directory("a") / "precious").exists()


def test_all_and_one_contradict_each_other(umbilical: Run) -> None:
    assert "not both" in umbilical("lab", "down", "--all", "--dir", "x", status=2).err


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("status") / "lab") as lab:
        yield lab


@pytest.fixture
def status_of(umbilical: Run) -> Run:
    return partial(umbilical, "lab", "status", "--dir")


@pytest.fixture
def status(status_of: Run, lab: Lab) -> Run:
    return partial(status_of, lab.directory.path)


def test_nodes_are_shown_with_their_addresses(lab: Lab, status: Run) -> None:
    lines = status().lines
    assert lines[0].startswith(f"lab: up, {'as root' if not os.geteuid() else 'without root'}, keeper ")
    assert lines[1] == str(lab.directory.path)
    assert lines[2] == "machine 10.91.0.0/24; pod 10.92.0.0/16; service 10.93.0.0/16"
    assert [line.split() for line in lines[4:7]] == [
        ["NODE", "ADDRESS", "PODS", "LINK", "DEFAULT", "ROUTE", "RULES"],
        ["bootstrap", "10.91.0.10", "-", "up", "yes", "-"],
        ["master-0", "10.91.0.11", "10.92.0.0/24", "up", "yes", "-"],
    ]
    assert lines[-1] == "breakages: none"


def test_a_second_network_is_shown_and_can_be_cut_off_like_the_first(tmp_path: Path, status_of: Run) -> None:
    topology = plan_hosted(management=1, workers=1, openings={6443: ("bootstrap",)})
    with running(tmp_path / "lab", topology=topology) as lab:
        lab.set_default_route("management-0", False)
        output = status_of(lab.directory.path)
        assert "management 192.168.91.0/24; machine 10.91.0.0/24; pod 10.92.0.0/16; service 10.93.0.0/16" in output.out
        assert ["management-0", "192.168.91.11", "-", "up", "GONE", "-"] in [line.split() for line in output.lines]
        lab.set_default_route("management-0", True)
        assert "GONE" not in status_of(lab.directory.path).out


def test_what_is_broken_stands_out(lab: Lab, status: Run) -> None:
    lab.set_link("master-0", False)
    lab.set_default_route("master-0", False)
    lab.add_rules("master-0", "loss", "chain in { type filter hook input priority 0; }")
    lab.set_breakages({"link-cut": {}, "no-default-route": {}})
    text = status().out
    assert "CUT   GONE           loss" in text
    assert text.endswith("breakages: link-cut, no-default-route\n")
    lab.set_link("master-0", True)
    lab.set_default_route("master-0", True)
    lab.remove_rules("master-0", "loss")
    lab.set_breakages({})


def test_programs_in_the_background_are_shown_with_their_logs(lab: Lab, status: Run) -> None:
    lab.start("master-0", "sleeper", ["sleep", "1000"])
    lab.start("master-0", "failure", ["false"])
    wait_until(lambda: any(each.exit_code == 1 for each in lab.processes()))
    text = status().out
    assert f"ended with 1  {lab.directory.log_file('master-0', 'failure')}" in " ".join(text.split(" "))
    assert "runs, pid " in text
    processes = status("-o", "json").json()["processes"]
    assert {(each["name"], each["exitCode"]) for each in processes} == {("sleeper", None), ("failure", 1)}
    lab.stop("master-0", "sleeper")


def test_pods_are_shown_as_their_runner_tells(monkeypatch: Patch, status: Run) -> None:
    containers = (ContainerStatus("a", "image", 12, 1, True), ContainerStatus("b", "image", None, 2, False))
    pod = PodStatus("kube-system", "server-bootstrap", "bootstrap", "10.91.0.10", containers)

    def pods(self: ProcessRunner, lab: Lab, node: str) -> list[PodStatus]:
        if node != "bootstrap":
            raise OSError("it is just starting")
        return [pod]

    monkeypatch.setattr(ProcessRunner, "pods", pods)
    assert "bootstrap  kube-system/server-bootstrap  1/2    3         10.91.0.10" in status().out
    (seen,) = status("-o", "json").json()["pods"]
    assert (seen["isReady"], [each["pid"] for each in seen["containers"]]) == (False, [12, None])


def test_json_is_for_programs(status: Run) -> None:
    content = status("-o", "json").json()
    assert (content["apiVersion"], content["kind"], content["isUp"]) == ("umbilical.dev/v1alpha1", "LabStatus", True)
    assert content["nodes"] == [
        {
            "name": name,
            "role": role,
            "addresses": [address],
            "podNetworks": pods,
            "isLinked": True,
            "hasDefaultRoute": True,
            "rules": [],
        }
        for name, role, address, pods in (
            ("bootstrap", "bootstrap", "10.91.0.10", []),
            ("master-0", "master", "10.91.0.11", ["10.92.0.0/24"]),
        )
    ]


def test_after_a_crash_it_is_shown_what_was(tmp_path: Path, status_of: Run) -> None:
    lab = up(request(tmp_path / "lab"))
    assert lab.state.keeper_pid is not None
    os.kill(lab.state.keeper_pid, signal.SIGKILL)
    wait_until(lambda: not lab.state.is_alive())
    said = status_of(tmp_path / "lab", status=1)
    assert said.out.startswith("lab: NOT UP\n")
    assert "master-0   10.91.0.11  10.92.0.0/24  -     -" in said.out
    assert f"umbilical lab down --dir {lab.directory.path}" in said.err
    lab.down()


def test_a_lab_that_is_just_being_made_is_not_called_dead(lab: Lab, status: Run) -> None:
    place = lab.directory
    write_state(place, replace(lab.state, keeper_pid=None, keeper_start=None))
    try:
        assert status(status=1).err == "\nthe lab is being created\n"
    finally:
        write_state(place, lab.state)


def test_where_there_is_no_lab_the_others_are_named(tmp_path: Path, umbilical: Run) -> None:
    assert umbilical("lab", "status", status=4).err.endswith("next: umbilical lab up\n")
    (tmp_path / "umbilical/labs/demo").mkdir(parents=True)
    assert umbilical("lab", "status", status=4).err.endswith("next: existing labs (--name): demo\n")
