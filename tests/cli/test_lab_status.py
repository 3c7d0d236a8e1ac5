"""`umbilical lab status`: for people and for programs, while a lab is up and after a crash."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.labs import request, running, wait_until

from umbilical.cli import main
from umbilical.lab.hosted_topology import plan_hosted
from umbilical.lab.lab import Lab, up
from umbilical.lab.process_runner import ProcessRunner
from umbilical.lab.runner import ContainerStatus, PodStatus
from umbilical.lab.state import write_state

pytestmark = pytest.mark.real("unshare", "nsenter", "nft")
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("status") / "lab") as lab:
        yield lab


def table(lab: Lab, capfd: Captured) -> str:
    assert main.run(["lab", "status", "--dir", str(lab.directory.path)]) == 0
    return capfd.readouterr().out


def value(lab: Lab, capfd: Captured) -> dict[str, Any]:
    assert main.run(["lab", "status", "--dir", str(lab.directory.path), "-o", "json"]) == 0
    content: dict[str, Any] = json.loads(capfd.readouterr().out)
    return content


def test_nodes_are_shown_with_their_addresses(lab: Lab, capfd: Captured) -> None:
    lines = table(lab, capfd).splitlines()
    assert lines[0].startswith(f"lab: up, {'as root' if not os.geteuid() else 'without root'}, keeper ")
    assert lines[1] == str(lab.directory.path)
    assert lines[2] == "machine 10.91.0.0/24; pod 10.92.0.0/16; service 10.93.0.0/16"
    assert [line.split() for line in lines[4:7]] == [
        ["NODE", "ADDRESS", "PODS", "LINK", "DEFAULT", "ROUTE", "RULES"],
        ["bootstrap", "10.91.0.10", "-", "up", "yes", "-"],
        ["master-0", "10.91.0.11", "10.92.0.0/24", "up", "yes", "-"],
    ]
    assert lines[-1] == "faults: none"


def test_a_second_network_is_shown_and_can_be_cut_off_like_the_first(tmp_path: Path, capfd: Captured) -> None:
    topology = plan_hosted(management=1, workers=1, openings={6443: ("bootstrap",)})
    with running(tmp_path / "lab", topology=topology) as lab:
        lab.set_default_route("management-0", False)
        text = table(lab, capfd)
        assert "management 192.168.91.0/24; machine 10.91.0.0/24; pod 10.92.0.0/16; service 10.93.0.0/16" in text
        assert ["management-0", "192.168.91.11", "-", "up", "GONE", "-"] in [line.split() for line in text.splitlines()]
        lab.set_default_route("management-0", True)
        assert "GONE" not in table(lab, capfd)


def test_what_is_broken_stands_out(lab: Lab, capfd: Captured) -> None:
    lab.set_link("master-0", False)
    lab.set_default_route("master-0", False)
    lab.add_rules("master-0", "loss", "chain in { type filter hook input priority 0; }")
    lab.set_faults({"link-cut": {}, "no-default-route": {}})
    text = table(lab, capfd)
    assert "CUT   GONE           loss" in text
    assert text.endswith("faults: link-cut, no-default-route\n")
    lab.set_link("master-0", True)
    lab.set_default_route("master-0", True)
    lab.remove_rules("master-0", "loss")
    lab.set_faults({})


def test_programs_in_the_background_are_shown_with_their_logs(lab: Lab, capfd: Captured) -> None:
    lab.start("master-0", "sleeper", ["sleep", "1000"])
    lab.start("master-0", "failure", ["false"])
    wait_until(lambda: any(each.exit_code == 1 for each in lab.processes()))
    text = table(lab, capfd)
    assert f"ended with 1  {lab.directory.log_file('master-0', 'failure')}" in " ".join(text.split(" "))
    assert "runs, pid " in text
    processes = value(lab, capfd)["processes"]
    assert {(each["name"], each["exitCode"]) for each in processes} == {("sleeper", None), ("failure", 1)}
    lab.stop("master-0", "sleeper")


def test_pods_are_shown_as_their_runner_tells(lab: Lab, capfd: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = (ContainerStatus("a", "image", 12, 1, True), ContainerStatus("b", "image", None, 2, False))
    pod = PodStatus("kube-system", "server-bootstrap", "bootstrap", "10.91.0.10", containers)

    def pods(self: ProcessRunner, lab: Lab, node: str) -> list[PodStatus]:
        if node != "bootstrap":
            raise OSError("it is just starting")
        return [pod]

    monkeypatch.setattr(ProcessRunner, "pods", pods)
    assert "bootstrap  kube-system/server-bootstrap  1/2    3         10.91.0.10" in table(lab, capfd)
    (seen,) = value(lab, capfd)["pods"]
    assert (seen["isReady"], [each["pid"] for each in seen["containers"]]) == (False, [12, None])


def test_json_is_for_programs(lab: Lab, capfd: Captured) -> None:
    content = value(lab, capfd)
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


def test_after_a_crash_it_is_shown_what_was(tmp_path: Path, capfd: Captured) -> None:
    lab = up(request(tmp_path / "lab"))
    assert lab.state.keeper_pid is not None
    os.kill(lab.state.keeper_pid, signal.SIGKILL)
    wait_until(lambda: not lab.state.is_alive())
    assert main.run(["lab", "status", "--dir", str(tmp_path / "lab")]) == 1
    said = capfd.readouterr()
    assert said.out.startswith("lab: NOT UP\n")
    assert "master-0   10.91.0.11  10.92.0.0/24  -     -" in said.out
    assert f"umbilical lab down --dir {lab.directory.path}" in said.err
    lab.down()


def test_a_lab_that_is_just_being_made_is_not_called_dead(lab: Lab, capfd: Captured) -> None:
    place = lab.directory
    write_state(place, replace(lab.state, keeper_pid=None, keeper_start=None))
    try:
        assert main.run(["lab", "status", "--dir", str(place.path)]) == 1
        assert capfd.readouterr().err == "\nit is just being made\n"
    finally:
        write_state(place, lab.state)


def test_where_there_is_no_lab_the_others_are_named(
    tmp_path: Path, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main.run(["lab", "status"]) == 4
    assert capfd.readouterr().err.endswith("next: bring one up: umbilical lab up\n")
    (tmp_path / "umbilical/labs/demo").mkdir(parents=True)
    assert main.run(["lab", "status"]) == 4
    assert capfd.readouterr().err.endswith("next: labs that there are: demo (--name)\n")
