"""Every scenario told with the real programs, and the webhook's with the stand-in too."""

from pathlib import Path

import pytest
from tests.support.lab_scenarios import KUBERNETES, SECONDS, evidence, run
from tests.support.older_version import older_programs, upstream_programs

from peers import KUBERNETES_PROGRAMS, SECOND_KUBERNETES
from umbilical.bootstrap.names import STAGES
from umbilical.lab.hosted.parts import CLIENT_NODE, topology
from umbilical.lab.hosted.parts import SERVER_NODES as HOSTED_SERVER_NODES
from umbilical.lab.scenarios.ha import SERVER_NODES
from umbilical.lab.scenarios.hosted_losses import HELD_EACH
from umbilical.lab.scenarios.kubelet_traffic import NAME, STREAMING
from umbilical.lab.scenarios.patched_ignition import NEEDED
from umbilical.lab.scenarios.webhook_through_tunnel import CALLS
from umbilical.lab.state import RunnerKind
from umbilical.lab.transcript import CallResult, Transcript

pytestmark = [pytest.mark.usefixtures("own_machine"), pytest.mark.timeout(SECONDS)]
REAL = pytest.mark.real(*KUBERNETES, "nft")
SECOND = tuple(f"{name}-{SECOND_KUBERNETES}" for name in KUBERNETES_PROGRAMS)
DENIAL = "the webhook in the cluster says no"


def _assert_told(transcript: Transcript) -> None:
    """Check the decisive moments in the output of kube-apiserver and of the webhook."""
    text = evidence(transcript)
    assert "network is unreachable" in text
    assert DENIAL in text
    calls = [picture.call for _, picture in transcript.pictures]
    decisive = [CallResult.UNREACHABLE, CallResult.ALLOWED, CallResult.DENIED]
    assert [call for index, call in enumerate(calls) if call in decisive and call not in calls[:index]] == decisive
    assert transcript.figures["calls"] == str(CALLS)
    assert not transcript.picture.server
    assert transcript.picture.agents == ()


@pytest.mark.soak  # `make demo` runs it in every gate and fails if a step fails
@REAL
def test_the_scenario_with_the_real_kube_apiserver(tmp_path: Path) -> None:
    transcript = run("webhook-through-tunnel", tmp_path)
    _assert_told(transcript)
    assert transcript.figures["agents"] == "5"
    assert transcript.picture.production_call is CallResult.ALLOWED


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.real(*KUBERNETES, "nft", "kubelet", "containerd", "runc")
def test_the_scenario_with_the_real_kubelet(tmp_path: Path) -> None:
    transcript = run("webhook-through-tunnel", tmp_path, runner=RunnerKind.KUBELET)
    _assert_told(transcript)
    assert transcript.figures["agents"] == "5"


@pytest.mark.soak
@pytest.mark.real(*SECOND, "etcd", "nft")
def test_the_scenario_with_the_second_version_of_kubernetes(tmp_path: Path) -> None:
    transcript = run("webhook-through-tunnel", tmp_path, kubernetes_version=SECOND_KUBERNETES)
    _assert_told(transcript)
    for node in ("is ready, with etcd", "on master-0"):
        assert f"kube-apiserver {SECOND_KUBERNETES} {node}" in evidence(transcript)


@pytest.mark.real("nft")
def test_the_scenario_with_the_stand_in(tmp_path: Path) -> None:
    transcript = run("webhook-through-tunnel", tmp_path, stand_in=True)
    _assert_told(transcript)
    assert "lab-admission-caller replaces kube-apiserver" in evidence(transcript)


@pytest.mark.soak
@REAL
def test_the_scenario_with_the_tunnel_as_first_planned(tmp_path: Path) -> None:
    _assert_told(run("seed-shape", tmp_path))


@pytest.mark.soak
@pytest.mark.real(*KUBERNETES, "nft", "proxy-server", "proxy-agent")
def test_the_scenario_with_upstreams_server_or_agents(tmp_path: Path) -> None:
    transcript = run("upstream-mix", tmp_path)
    _assert_told(transcript)
    assert sum("connected: " in line for step in transcript.steps for line in step.evidence) == 2


@pytest.mark.soak
@REAL
def test_the_scenario_on_ipv6_alone(tmp_path: Path) -> None:
    transcript = run("ipv6", tmp_path)
    _assert_told(transcript)
    assert "[fd92:" in evidence(transcript)


@pytest.mark.soak
@pytest.mark.real(*KUBERNETES, "nft")
def test_webhooks_of_both_ip_families_are_called_while_agents_dial_over_either(tmp_path: Path) -> None:
    text = evidence(run("dual-stack", tmp_path))
    _assert_both_families(text)
    assert text.count("log has") == 4


@pytest.mark.soak
@pytest.mark.root
@pytest.mark.real(*KUBERNETES, "nft", "kubelet", "containerd", "runc")
def test_kubelets_of_both_ip_families_are_reached_through_the_tunnel(tmp_path: Path) -> None:
    text = evidence(run("dual-stack", tmp_path, runner=RunnerKind.KUBELET))
    _assert_both_families(text)
    for kubelet in ("10.91.0.21:10250", "[fd91::22]:10250"):
        assert f"dial tcp {kubelet}: connect: connection refused" in text
        assert text.count(f"tunnels to {kubelet}") == 2
    assert text.count("run in konnectivity-agent-") == 4


def _assert_both_families(text: str) -> None:
    assert "worker-0: 10.91.0.21, fd91::21" in text
    assert "worker-1: fd91::22, 10.91.0.22" in text
    for pod in ("10.92.1.2:8443", "[fd92:0:0:1::2]:8443"):
        assert f"dial tcp {pod}: connect: network is unreachable" in text
        assert text.count(f"tunnels to {pod}") == 2
    assert text.count("configmap/judged-allow created") == text.count(DENIAL) == 4
    agents = [line for line in text.splitlines() if "agents from" in line]
    assert ["[" in line for line in agents] == [False, True]


@REAL
def test_it_is_unavailable_without_the_tunnel_and_answers_through_it(tmp_path: Path) -> None:
    transcript = run("aggregated-api", tmp_path)
    text = evidence(transcript)
    assert "Available=False, FailedDiscoveryCheck" in text
    assert "network is unreachable" in text
    assert "Available=True, Passed" in text
    assert "hello world, says worker-0" in text
    assert "system:admin" in text
    assert int(transcript.figures["calls"]) > 0
    assert transcript.figures["agents"] == "5"
    assert transcript.picture.call is CallResult.ALLOWED


@REAL
def test_a_letter_cannot_be_read_without_the_tunnel_and_can_through_it(tmp_path: Path) -> None:
    transcript = run("conversion-webhook", tmp_path)
    text = evidence(transcript)
    assert "conversion webhook for post.umbilical.dev/v1, Kind=Letter failed" in text
    assert "network is unreachable" in text
    assert "umbilical.dev/converted-by: worker-0" in text
    assert "good night, moon" in text
    assert int(transcript.figures["calls"]) > 0
    assert transcript.picture.call is CallResult.ALLOWED


@REAL
def test_no_call_fails_while_every_server_is_replaced(tmp_path: Path) -> None:
    transcript = run("ha", tmp_path)
    text = evidence(transcript)
    assert "network is unreachable" in text
    for number, node in enumerate(SERVER_NODES):
        assert f"konnectivity-proxy-server-{node}: 10.91.0.{11 + number}:8091" in text
    assert text.count("it exited with code 0; 2 leases are left") == len(SERVER_NODES)
    assert transcript.figures["agents"] == "5"
    assert int(transcript.figures["calls"]) > 0
    assert transcript.figures["calls that failed"] == "0"
    assert text.count("the new server has every agent and carries calls again") == len(SERVER_NODES)
    assert transcript.picture.call is CallResult.ALLOWED


@pytest.mark.soak
@pytest.mark.parametrize("before", ["upstream", "older"])
@pytest.mark.real(*KUBERNETES, "nft", "proxy-server", "proxy-agent", "git")
def test_no_call_fails_while_another_version_becomes_ours_and_back(
    before: str, tmp_path: Path, repository: Path
) -> None:
    programs = tmp_path / "before"
    programs.mkdir()
    folder = upstream_programs(programs) if before == "upstream" else older_programs(repository)
    transcript = run("upgrade", tmp_path, bin_dir=folder)
    text = evidence(transcript)
    for server, agent in (("proxy-server", "proxy-agent"), ("before-server", "before-agent")):
        assert text.count(f"{server} has every agent and carries calls") == len(SERVER_NODES)
        assert text.count(f"{agent} has every server") == 5
    assert int(transcript.figures["calls"]) > 0
    assert transcript.figures["calls that failed"] == "0"


# What the kernel and Python need on a machine with eight times as many programs as cores; it is 0.02 s on a quiet one.
GENEROUS_SECONDS = 20.0


@pytest.mark.real(*KUBERNETES, "nft", "curl")
def test_a_killed_server_costs_what_went_through_it_and_nothing_else_is_lost(tmp_path: Path) -> None:
    transcript = run("hosted", tmp_path)
    text = evidence(transcript)
    assert "control plane: 192.168.91.0/24; nodes: 10.91.0.0/24, 10.92.0.0/16, 10.93.0.0/16" in text
    assert f"{CLIENT_NODE} to the pod: <urlopen error [Errno 101] Network is unreachable>" in text
    assert f"connected to {len(HOSTED_SERVER_NODES)} servers each" in text
    assert "not called" in text
    assert f"calls, all from {topology().node(CLIENT_NODE).address}" in text
    assert text.count(": 200 from 127.0.0.1") == 3
    assert "UMB504 no connection to missing." in text
    assert "it exited with code 0" in text
    assert transcript.figures["calls that failed"] == "0"
    assert int(transcript.figures["calls of kube-apiserver"]) > 0
    assert int(transcript.figures["calls through proxies"]) > 0
    assert transcript.figures["streams that ended"] == f"{2 * HELD_EACH} of {3 * HELD_EACH}"
    assert 0.0 < float(transcript.figures["last of them after"].removesuffix(" s")) < GENEROUS_SECONDS
    cause = "RouteRefused: 502 Bad Gateway: UMB513 the tunnel to lab-service.lab.svc.cluster.local:8080 broke"
    assert cause in text, "a request without an answer gets one from the proxy, and it tells the cause"
    assert f"the tunnel broke: server {topology().node(HOSTED_SERVER_NODES[0]).address}:8090: " in text
    assert int(transcript.figures["calls after the kill"]) > 0
    assert f"{HELD_EACH} streams received data to the end" in text
    assert transcript.picture.call is CallResult.UNREACHABLE


@pytest.mark.real(*KUBERNETES, *NEEDED, "nft", "proxy-server", "proxy-agent")
def test_the_scenario_from_the_installer_s_file_to_the_cut(tmp_path: Path) -> None:
    transcript = run("patched-ignition", tmp_path)
    text = evidence(transcript)

    assert "bootkube.sh of 4.18 recognised" in text
    assert "stand-in for podman" in text
    assert "konnectivity-signer" in text
    assert "IP Address:10.91.0.10" in text
    assert "--egress-selector-config-file=/etc/kubernetes/config/egress-selector-config.yaml" in text
    assert "the webhook in the cluster says no" in text
    assert [f"{stage}: success" in text for stage in STAGES] == [True] * len(STAGES)
    assert transcript.figures["agents"] == "3"
    assert not transcript.picture.server
    assert transcript.picture.production_call is CallResult.DENIED


@pytest.mark.root
@pytest.mark.real(*KUBERNETES, "nft", "kubelet", "containerd", "runc")
def test_logs_exec_attach_and_port_forward_with_the_real_kubelet(tmp_path: Path) -> None:
    transcript = run(NAME, tmp_path, runner=RunnerKind.KUBELET)
    text = evidence(transcript)
    assert "connection refused" in text
    for seen in ("talker talks", "run as 65532 in talker", "heard: are you there?", "a page from talker"):
        assert seen in text
    assert int(transcript.figures["tunnels to kubelets"]) >= STREAMING
