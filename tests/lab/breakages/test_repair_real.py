"""Every breakage, one after the other, on one lab with the real programs: recognised by its code, and mended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lab_scenarios import KUBERNETES

from umbilical.lab import lab as labs
from umbilical.lab import testbed as testbeds
from umbilical.lab.binaries import find
from umbilical.lab.breakages import registry
from umbilical.lab.breakages.repair import active_breakages, make_breakage, mend_breakage
from umbilical.lab.lab import UpRequest
from umbilical.lab.scenario_run import make_testbed
from umbilical.lab.scenarios import webhook_through_tunnel
from umbilical.lab.state import RunnerKind
from umbilical.lab.topology import plan_topology
from umbilical.lab.transcript import CallResult, Transcript
from umbilical.lab.tunnel_parts import ScenarioOptions

# A whole lab with real programs, whose waits are long on a busy machine.
pytestmark = pytest.mark.timeout(240)


def stage(folder: Path, runner: RunnerKind) -> testbeds.Testbed:
    """A lab with a webhook that is reached through the tunnel."""
    programs = find((*KUBERNETES, "kubelet") if runner is RunnerKind.KUBELET else KUBERNETES, None)
    topology = plan_topology(masters=1, workers=1)
    lab = labs.up(UpRequest(folder, "breakages", topology, runner=runner, binaries=programs, with_parent=True))
    testbed = make_testbed(lab, ScenarioOptions(), Transcript("breakages"))
    webhook_through_tunnel.prepare(testbed)
    webhook_through_tunnel.set_up_tunnel(testbed)
    testbed.wait_for(CallResult.ALLOWED, "allow")
    return testbed


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testbeds.Testbed]:
    folder = tmp_path_factory.mktemp("breakages") / "lab"
    try:
        yield stage(folder, RunnerKind.PROCESS)
    finally:
        labs.down(folder)


def try_breakage(testbed: testbeds.Testbed, name: str) -> None:
    for left in active_breakages(testbed.lab)[::-1]:  # of a test that failed
        mend_breakage(testbed, left)
    breakage = registry.find(name)
    broken = make_breakage(testbed, breakage)
    assert breakage.code in broken.line
    assert active_breakages(testbed.lab) == [name]
    if broken.verdict is not None and not breakage.stops_calls and name != "packet-loss":
        assert broken.verdict.call is CallResult.ALLOWED
    assert mend_breakage(testbed, name).call is CallResult.ALLOWED
    assert active_breakages(testbed.lab) == []


@pytest.mark.real(*KUBERNETES, "nft", "jq")
@pytest.mark.parametrize("name", registry.names())
def test_a_breakage_is_recognised_by_its_code_and_mended(testbed: testbeds.Testbed, name: str) -> None:
    try_breakage(testbed, name)


@pytest.mark.real(*KUBERNETES, "nft")
def test_breakages_are_made_and_mended_from_other_terminals_the_last_first(testbed: testbeds.Testbed) -> None:
    where = ["--dir", str(testbed.lab.directory.path)]
    umbilical("lab", "mend", *where)
    for name, code in (("no-default-route", "UMB112"), ("agent-freeze", "UMB406")):
        told = umbilical("lab", "break", *where, name)
        assert f"reported with {code}: " in told
        assert f"umbilical lab mend --dir {testbed.lab.directory.path} {name}" in told
    assert active_breakages(testbed.lab) == ["no-default-route", "agent-freeze"]
    assert "breakages: agent-freeze, no-default-route" in umbilical("lab", "status", *where)
    told = umbilical("lab", "mend", *where)
    assert told.index("repair agent-freeze") < told.index("repair no-default-route")
    assert umbilical("lab", "mend", *where) == "nothing is broken\n"


def umbilical(*arguments: str) -> str:
    command = [sys.executable, "-m", "umbilical", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.root
@pytest.mark.real(*KUBERNETES, "kubelet", "containerd", "nft", "jq")
def test_every_breakage_is_recognised_and_mended_under_the_real_kubelet(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    try:
        testbed = stage(folder, RunnerKind.KUBELET)
        for name in registry.names():
            try_breakage(testbed, name)
    finally:
        labs.down(folder)
