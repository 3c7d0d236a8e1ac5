"""Server, agents and proxies from the image that `make image` built, under the real kubelet."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.image_archives import built, built_archive
from tests.support.lab_scenarios import KUBERNETES, SECONDS, evidence
from tests.support.labs import control_groups_of, machine_picture

from umbilical.lab.scenario_run import ScenarioRun, run_scenario
from umbilical.lab.scenarios import scenario
from umbilical.lab.scenarios.webhook_through_tunnel import prepare, set_up_tunnel
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import Testbed
from umbilical.lab.transcript import CallResult, StepOutcome, Transcript
from umbilical.manifests.objects import DEFAULT_IMAGE

pytestmark = [pytest.mark.usefixtures("own_machine"), pytest.mark.timeout(SECONDS), pytest.mark.image]


def _one_call(testbed: Testbed) -> None:
    prepare(testbed)
    set_up_tunnel(testbed)
    with testbed.transcript.step("a call"):
        testbed.wait_for(CallResult.ALLOWED, "allow")
        for node in testbed.members:
            pod = testbed.agent_pod(node.name)
            assert pod is not None
            testbed.transcript.saw(f"the agent of {node.name} runs {pod.containers[0].image}")


@built
@pytest.mark.root
@pytest.mark.real(*KUBERNETES, "nft", "kubelet", "containerd", "runc")
def test_a_webhook_is_called_through_server_and_agents_of_the_image(tmp_path: Path) -> None:
    before = machine_picture()
    usual = scenario.find("webhook-through-tunnel")
    # Without the removal of the tunnel, which has tests of its own.
    short = replace(usual, run=_one_call, end=None, masters=1, workers=1)
    transcript = Transcript(short.name)
    wanted = ScenarioRun(short, RunnerKind.KUBELET, directory=tmp_path / "lab", image=built_archive())
    run_scenario(wanted, transcript)
    assert [step.title for step in transcript.steps if step.outcome is not StepOutcome.DONE] == []
    assert f"konnectivity-server-bootstrap runs {DEFAULT_IMAGE}" in evidence(transcript)
    for node in ("master-0", "worker-0"):
        assert f"the agent of {node} runs {DEFAULT_IMAGE}" in evidence(transcript)
    assert machine_picture() == before
    assert control_groups_of(tmp_path / "lab") == []


@built
@pytest.mark.soak
@pytest.mark.root
@pytest.mark.real(*KUBERNETES, "nft", "curl", "kubelet", "containerd", "runc")
def test_the_rendered_pods_of_a_hosted_control_plane_run_from_the_image(tmp_path: Path) -> None:
    before = machine_picture()
    transcript = Transcript("hosted-pods")
    found = scenario.find("hosted-pods")
    run_scenario(ScenarioRun(found, RunnerKind.KUBELET, directory=tmp_path / "lab", image=built_archive()), transcript)
    assert [step.title for step in transcript.steps if step.outcome is not StepOutcome.DONE] == []
    told = evidence(transcript)
    for container in ("konnectivity-server", "konnectivity-proxy-https", "konnectivity-proxy-socks5"):
        assert re.search(rf"{container} in \S+ on \S+ runs {re.escape(DEFAULT_IMAGE)}", told)
    assert told.count(f"runs {DEFAULT_IMAGE}") == 6
    assert [told.count(f"{way}: 200 from 127.0.0.1") for way in ("SOCKS5", "HTTP", "CONNECT")] == [1, 1, 1]
    assert told.count("MiB (PSS)") == 5
    assert "its server still runs" in told
    assert machine_picture() == before
    assert control_groups_of(tmp_path / "lab") == []
