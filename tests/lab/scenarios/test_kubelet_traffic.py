"""Logs, exec, attach and port-forward, told with the real kubelet; and what the story is made of."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.lab.errors import LabError
from umbilical.lab.lab import Completed
from umbilical.lab.runner import RunnerKind
from umbilical.lab.scenarios import kubelet_traffic
from umbilical.lab.scenarios.kubelet_traffic import NAME, SCENARIOS, STREAMING, pod


def test_it_is_told_with_the_kubelet_alone() -> None:
    (scenario,) = SCENARIOS
    assert scenario.name == NAME
    assert scenario.runners == (RunnerKind.KUBELET,)
    assert not scenario.has_stand_in


def test_the_pod_has_no_privilege_and_nothing_is_pulled_for_it() -> None:
    spec = pod()["spec"]
    assert "nodeName" not in spec, "the scheduler chooses"
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in spec["containers"]:
        assert container["imagePullPolicy"] == "Never"
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def done(exit_code: int, stdout: bytes = b"", stderr: bytes = b"") -> Completed:
    return Completed("bootstrap", ("kubectl", "logs"), exit_code, stdout, stderr)


def test_an_answer_that_is_not_the_pods_fails_the_story() -> None:
    assert kubelet_traffic._answer(done(0, b"one\nrun as 1 in talker\n"), "in talker") == "run as 1 in talker"
    with pytest.raises(LabError) as refused:
        kubelet_traffic._answer(done(0, b"run as 1 elsewhere\n"), "in talker")
    assert refused.value.code == "UMB848"
    assert "run as 1 elsewhere" in refused.value.why


def test_logs_that_come_without_the_tunnel_fail_the_story() -> None:
    assert kubelet_traffic._refusal(done(1, stderr=b"connection refused\n")) == "connection refused"
    with pytest.raises(LabError) as refused:
        kubelet_traffic._refusal(done(0, b"talker talks\n"))
    assert refused.value.code == "UMB848"


@pytest.mark.root
@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft", "kubelet", "containerd", "runc")
def test_the_story_with_the_real_kubelet(tmp_path: Path) -> None:
    story = tell(NAME, tmp_path, runner=RunnerKind.KUBELET)
    text = evidence(story)
    assert "connection refused" in text
    for seen in ("talker talks", "run as 65532 in talker", "heard: are you there?", "a page from talker"):
        assert seen in text
    assert int(story.figures["tunnels to kubelets"]) >= STREAMING
