"""`umbilical hosted check` against real kube-apiservers, servers and agents: all well, then one thing wrong."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.interop.hosted_scene import NAMESPACE, NODE, HostedScene, hosted_scene, policy
from tests.support.control_plane import PROGRAMS
from tests.support.tunnel_pair import wait_until

PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 240.0
IMPLEMENTATIONS: Final = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"))]
pytestmark = pytest.mark.real(*PROGRAMS)


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedScene]:
    with hosted_scene(request.param, tmp_path_factory.mktemp("scene")) as scene:
        yield scene


def check(scene: HostedScene, *arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Run it; return status, and outcome and evidence by check."""
    command = [PROGRAM, "hosted", "check", *scene.options, "-o", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    return done.returncode, {one["id"]: (one["outcome"], one["evidence"]) for one in findings}


def failing(found: dict[str, tuple[str, str]]) -> set[str]:
    return {identifier for identifier, (outcome, _) in found.items() if outcome == "failed"}


def test_a_control_plane_that_works_passes_every_check(scene: HostedScene) -> None:
    health = f"127.0.0.1:{scene.pairs[0].ports.server_health}"
    status, found = check(scene, "--proxy-health", health)
    wrong = {name: told for name, told in found.items() if told[0] not in ("passed", "warned")}
    assert (status, wrong) == (0, {})
    # Certificates of a test live for a day.
    assert {name for name, told in found.items() if told[0] == "warned"} == {"C1"}


def test_nothing_fetched_is_left_behind(scene: HostedScene, tmp_path: Path) -> None:
    command = ["env", f"TMPDIR={tmp_path}", PROGRAM, "hosted", "check", *scene.options]
    subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert list(tmp_path.iterdir()) == []


def test_curl_takes_kubelets_credentials_from_the_namespace(scene: HostedScene) -> None:
    url = f"https://{NODE}:{scene.kubelet_port}/healthz"
    command = [PROGRAM, "proxy", "curl", "-n", NAMESPACE, "--kubeconfig", str(scene.management.kubeconfig)]
    command += ["--server", f"127.0.0.1:{scene.pairs[0].ports.frontend}", url]
    done = subprocess.run([*command, "--kubelet"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok", "")
    without = subprocess.run([*command, "-k"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert without.returncode == 4, "the kubelet wants a certificate"


def test_a_closed_port_and_a_service_that_waits_are_found(scene: HostedScene) -> None:
    plane = scene.management
    plane.kubectl("-n", NAMESPACE, "delete", "networkpolicy", "konnectivity-agents")
    plane.apply(policy("kas", 6443))
    patch = '{"spec": {"publishNotReadyAddresses": false}}'
    plane.kubectl("-n", NAMESPACE, "patch", "service", "konnectivity-server", "-p", patch)
    try:
        status, found = check(scene)
    finally:
        plane.kubectl("-n", NAMESPACE, "delete", "networkpolicy", "kas")
        plane.apply(policy("konnectivity-agents", 8091))
        plane.kubectl("-n", NAMESPACE, "patch", "service", "konnectivity-server", "-p", patch.replace("false", "true"))
    assert (status, failing(found)) == (1, {"M2", "M3"})


def test_one_server_without_agents_is_not_hidden_by_the_other(scene: HostedScene) -> None:
    pair = scene.pairs[1]
    pair.agent.kill()
    wait_until(lambda: pair.server_health("/readyz")[0] != 200, "the server misses its agent")
    try:
        status, found = check(scene)
    finally:
        pair.start_agent()
    assert status == 1
    # Logs come by the other server; nobody would notice.
    assert failing(found) >= {"T1", "T2"}
    assert found["T3"][0] == "passed"
    assert f"127.0.0.1:{pair.ports.frontend}" in found["T1"][1]
    assert "1 of 2 dials failed" in found["T1"][1]
    assert "UMB505" in found["T1"][1]


def test_a_server_that_is_gone_is_named(scene: HostedScene) -> None:
    pair = scene.pairs[1]
    pair.server.kill()
    try:
        status, found = check(scene)
    finally:
        pair.revive()
    assert status == 1
    assert failing(found) >= {"S1", "T1", "T2"}
    assert "kube-apiserver-1" in found["S1"][1]
    assert "kube-apiserver-0" not in found["S1"][1]
    assert "UMB507" in found["T1"][1]
