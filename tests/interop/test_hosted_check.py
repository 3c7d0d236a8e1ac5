"""`umbilical hosted check` against real kube-apiservers, servers and agents: all well, then one thing wrong."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.hosted_testbed import NAMESPACE, NODE, HostedTestbed, hosted_testbed, policy
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.tunnel_pair import wait_until

from umbilical.hosted.objects.spec_reading import EXAMPLE

PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 240.0
IMPLEMENTATIONS: Final = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"))]
pytestmark = pytest.mark.real(*PROGRAMS)


@pytest.fixture(name="testbed", scope="module", params=IMPLEMENTATIONS)
def running_testbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostedTestbed]:
    with hosted_testbed(request.param, tmp_path_factory.mktemp("testbed")) as testbed:
        yield testbed


def check(testbed: HostedTestbed, *arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Run it; return status, and outcome and evidence by check."""
    command = [PROGRAM, "hosted", "check", *testbed.options, "-o", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    return done.returncode, {one["id"]: (one["outcome"], one["evidence"]) for one in findings}


def failing(found: dict[str, tuple[str, str]]) -> set[str]:
    return {identifier for identifier, (outcome, _) in found.items() if outcome == "failed"}


def test_a_control_plane_that_works_passes_every_check(testbed: HostedTestbed) -> None:
    health = f"127.0.0.1:{testbed.pairs[0].ports.server_health}"
    status, found = check(testbed, "--proxy-health", health)
    wrong = {name: told for name, told in found.items() if told[0] not in ("passed", "warned")}
    assert (status, wrong) == (0, {})
    # Certificates of a test live for a day.
    assert {name for name, told in found.items() if told[0] == "warned"} == {"C1"}


def test_nothing_fetched_is_left_behind(testbed: HostedTestbed, tmp_path: Path) -> None:
    command = ["env", f"TMPDIR={tmp_path}", PROGRAM, "hosted", "check", *testbed.options]
    subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert list(tmp_path.iterdir()) == []


def test_curl_takes_kubelets_credentials_from_the_namespace(testbed: HostedTestbed) -> None:
    url = f"https://{NODE}:{testbed.kubelet_port}/healthz"
    command = [PROGRAM, "proxy", "curl", "-n", NAMESPACE, "--kubeconfig", str(testbed.management.kubeconfig)]
    command += ["--server", f"127.0.0.1:{testbed.pairs[0].ports.frontend}", url]
    done = subprocess.run([*command, "--kubelet"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok", "")
    without = subprocess.run([*command, "-k"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert without.returncode == 4, "the kubelet wants a certificate"


def test_curl_finds_the_kubelet_by_the_machines_of_the_namespace(testbed: HostedTestbed) -> None:
    plane = testbed.management
    plane.apply(machine_definition())
    plane.kubectl("wait", "--for=condition=Established", "crd/machines.cluster.x-k8s.io", "--timeout=60s")
    plane.apply(machine("a-new-one"), machine("guest-7x2", node="worker-1", address=NODE))
    command = [PROGRAM, "proxy", "curl", "-n", NAMESPACE, "--kubeconfig", str(plane.kubeconfig)]
    command += ["--server", f"127.0.0.1:{testbed.pairs[0].ports.frontend}", "/healthz", "--kubelet"]
    for wanted in ([], ["--node", "worker-1"], ["--node", "guest-7x2"]):
        done = subprocess.run([*command, *wanted], capture_output=True, text=True, timeout=SECONDS, check=False)
        told = "" if wanted else f"* kubelet of node worker-1 at {NODE}\n"
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok", told)
    command += ["--node", "worker-9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"UMB579 {NAMESPACE} has no Machine with an address for node worker-9" in done.stderr
    assert "why: Machines with an InternalIP: worker-1\n" in done.stderr


def machine_definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "machines.cluster.x-k8s.io",
            # Groups below k8s.io are protected.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": "cluster.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def machine(name: str, node: str = "", address: str = "") -> dict[str, Any]:
    addresses = [{"type": "InternalDNS", "address": f"{node}.example"}, {"type": "InternalIP", "address": address}]
    status = {"nodeRef": {"name": node}, "addresses": addresses} if node else {}
    head = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": head, "status": status}


def test_a_closed_port_and_a_service_that_waits_are_found(testbed: HostedTestbed) -> None:
    plane = testbed.management
    plane.kubectl("-n", NAMESPACE, "delete", "networkpolicy", "konnectivity-agents")
    plane.apply(policy("kas", 6443))
    patch = '{"spec": {"publishNotReadyAddresses": false}}'
    plane.kubectl("-n", NAMESPACE, "patch", "service", "konnectivity-server", "-p", patch)
    try:
        status, found = check(testbed)
    finally:
        plane.kubectl("-n", NAMESPACE, "delete", "networkpolicy", "kas")
        plane.apply(policy("konnectivity-agents", 8091))
        plane.kubectl("-n", NAMESPACE, "patch", "service", "konnectivity-server", "-p", patch.replace("false", "true"))
    assert (status, failing(found)) == (1, {"M2", "M3"})


def test_one_server_without_agents_is_not_hidden_by_the_other(testbed: HostedTestbed) -> None:
    pair = testbed.pairs[1]
    pair.agent.kill()
    wait_until(lambda: pair.server_health("/readyz")[0] != 200, "the server misses its agent")
    try:
        status, found = check(testbed)
    finally:
        pair.start_agent()
    assert status == 1
    # Logs come by the other server; nobody would notice.
    assert failing(found) >= {"T1", "T2"}
    assert found["T3"][0] == "passed"
    assert f"127.0.0.1:{pair.ports.frontend}" in found["T1"][1]
    assert "1 of 2 dials failed" in found["T1"][1]
    assert "UMB505" in found["T1"][1]


def test_a_server_that_is_gone_is_named(testbed: HostedTestbed) -> None:
    pair = testbed.pairs[1]
    pair.server.kill()
    try:
        status, found = check(testbed)
    finally:
        pair.revive()
    assert status == 1
    assert failing(found) >= {"S1", "T1", "T2"}
    assert "kube-apiserver-1" in found["S1"][1]
    assert "kube-apiserver-0" not in found["S1"][1]
    assert "UMB507" in found["T1"][1]


SECONDS_APPLY: Final = 180.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One cluster for both parts: their objects have names and namespaces of their own."""
    with control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        plane.kubectl("create", "namespace", NAMESPACE)
        yield plane


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rendered")
    spec = EXAMPLE.replace("keyType: rsa-2048", "keyType: ecdsa-p256")
    spec = spec.replace("strategy: route", "strategy: nodeport").replace("  # port: 443", "  port: 30091")
    (folder / "spec.yaml").write_text(spec)
    command = [PROGRAM, "hosted", "render", "--spec", str(folder / "spec.yaml"), "--out", str(folder / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_APPLY)
    # What needs CRDs is another test's, and so is the token that only a controller-manager makes.
    monitors = ("servicemonitor-", "podmonitor-", "prometheusrule-")
    left_out = (*monitors, "secret-konnectivity-proxy-token", "configmap-konnectivity-proxy-kubeconfig")
    for path in (folder / "out").rglob("*.yaml"):
        if path.name.startswith(left_out):
            path.unlink()
    return folder / "out"


def apply(plane: ControlPlane, folder: Path, *arguments: str) -> tuple[int, dict[str, list[str]], str]:
    """Run it; return status, objects by what became of them, and everything that was printed."""
    command = [PROGRAM, "hosted", "apply", str(folder), "-o", "json", *arguments]
    command += ["--kubeconfig", str(plane.kubeconfig), "--management-kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_APPLY, check=False)
    outcomes: dict[str, list[str]] = {}
    for row in json.loads(done.stdout)["objects"] if done.stdout else ():
        outcomes.setdefault(row["outcome"], []).append(f"{row['object']} {row['detail']}".strip())
    return done.returncode, outcomes, done.stdout + done.stderr


def secrets(folder: Path) -> list[dict[str, Any]]:
    import yaml

    return [yaml.safe_load(path.read_text()) for path in folder.rglob("secret-*.yaml")]


def test_everything_is_created_then_unchanged_then_only_what_changed_is_changed(
    plane: ControlPlane, rendered: Path
) -> None:
    status, dry, _ = apply(plane, rendered, "--dry-run=server")
    assert (status, set(dry) - {"changed"}) == (0, {"created"}), dry
    assert plane.kubectl("-n", NAMESPACE, "get", "secrets", "-o", "name") == ""

    status, first, printed = apply(plane, rendered)
    assert (status, "refused" in first) == (0, False), first
    assert any(one.startswith(f"Secret {NAMESPACE}/konnectivity-client") for one in first["created"])
    assert any(one.startswith("DaemonSet kube-system/konnectivity-agent") for one in first["created"])
    found = secrets(rendered)
    assert found
    for secret in found:
        assert not [key for key, value in secret.get("data", {}).items() if value in printed]

    status, second, _ = apply(plane, rendered)
    assert (status, set(second)) == (0, {"unchanged"}), second

    daemon_set = next(rendered.rglob("daemonset-konnectivity-agent.yaml"))
    daemon_set.write_text(daemon_set.read_text().replace("--v=3", "--v=2"))
    status, third, _ = apply(plane, rendered)
    assert (status, third["changed"]) == (0, ["DaemonSet kube-system/konnectivity-agent"])
    assert "refused" not in third


def test_rights_that_are_missing_are_told_for_every_object(plane: ControlPlane, rendered: Path) -> None:
    nobody = plane.make_kubeconfig("nobody-at-all")
    command = [PROGRAM, "hosted", "apply", str(rendered), "--kubeconfig", str(nobody)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_APPLY, check=False)
    assert done.returncode == 1
    assert done.stdout.count("HTTP 403 Forbidden") == done.stdout.count("  refused") > 5
