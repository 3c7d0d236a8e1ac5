"""The hard way for real: from an empty directory to a verified cluster, killed on the way, resumed, and destroyed."""

import json
import os
import random
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.hardway_lab import PROGRAMS, inside
from tests.support.hardway_run import Cluster, began, reached
from tests.support.image_archives import FOLDER, built_archive
from tests.support.labs import control_groups_of, machine_picture, processes_naming, wait_until

from conformance import BEFORE_PIVOT, BOOTSTRAP
from conformance_images import tools_root
from conformance_report import SpecResult, read_outcomes
from conformance_run import ConformanceCluster, SuiteRun
from umbilical.bootstrap.render.trial_webhook import NAME, REMOVAL
from umbilical.cli.stage.cluster import LAB
from umbilical.hardway.artifacts.tunnel import KUBERNETES_NAMESPACE
from umbilical.hardway.ledger import RECORD
from umbilical.host import processes
from umbilical.lab.hardway.names import HOST
from umbilical.lab.images import SHELL, UMBILICAL
from umbilical.lab.kubelet import containerd
from umbilical.lab.lab import Lab
from umbilical.manifests.objects import DEFAULT_IMAGE

INIT: Final = ("init", "--profile", "kubernetes", "--machines", "lab")
# The gate has built it by then; otherwise the tunnel runs from the image that the lab makes.
IMAGE: Final = ("--image", str(built_archive())) if FOLDER else ()
ALL: Final = (
    *PROGRAMS,
    *("etcd", "etcdctl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"),
    *("openssl", "curl", "jq", "e2e.test", "ginkgo", "agnhost", "mmdebstrap"),
)
SPECS: Final = r"AdmissionWebhook .* should (be able to deny pod and configmap creation|mutate configmap) "
"""Two of Kubernetes' own specs in which kube-apiserver calls a webhook in a pod."""
LIVE_CHECK: Final = """
import os
live = ["bootstrap", "verify", "--live", "--kubeconfig", sys.argv[2], "--only", "L15", "-o", "json"]
os.execv(sys.executable, [sys.executable, "-m", "umbilical", *live])
"""
WEB: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "nodeName": "worker-0.lab.example.com",
        "containers": [
            {
                "name": "web",
                "image": UMBILICAL,
                "command": ["lab-service", "--listen=:8080", "--plain", "--node-name=web"],
                "ports": [{"containerPort": 8080, "hostPort": 8081}],
            },
            {"name": "shell", "image": SHELL, "command": ["sleep", "infinity"]},
        ],
    },
}
# The machine of `own_machine` has no way to Debian's archive.
pytestmark = [pytest.mark.usefixtures("suite_tools", "own_machine"), pytest.mark.root, pytest.mark.real(*ALL)]


@pytest.fixture(scope="module")
def suite_tools() -> None:
    """Fetch the tools of the suite's images; the first time takes some seconds."""
    tools_root(print)


def findings(text: str) -> dict[str, str]:
    return {one["id"]: one["outcome"] for one in json.loads(text)["findings"]}


def probes(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.state()["notes"]["pivot-probes"]["value"]
    return found


def secrets_of(cluster: Cluster) -> list[bytes]:
    """Lines of private keys: whatever else is written must hold none of them."""
    keys = [path.read_bytes() for path in (cluster.folder / "artifacts" / "tls").glob("*.key")]
    assert keys
    return [key.splitlines()[1] for key in keys]


def check_no_secret_is_told(cluster: Cluster) -> None:
    told = [cluster.log, *(cluster.folder / ".umbilical" / name for name in ("state.json", "events.jsonl"))]
    secrets = secrets_of(cluster)
    for path in told:
        content = path.read_bytes()
        assert not any(secret in content for secret in secrets), path


def check_modes(cluster: Cluster) -> None:
    """Nobody but the owner reads a key, a kubeconfig, an Ignition config or a snapshot."""
    for pattern in ("artifacts/tls/*.key", "artifacts/auth/*", "artifacts/ignition/*", ".umbilical/*"):
        for path in cluster.folder.glob(pattern):
            if path.is_file():
                assert path.stat().st_mode & 0o077 == 0, path


def check_webhooks_before_the_pivot(cluster: Cluster, scratch: Path) -> None:
    """The only kube-apiserver has no route to pods: the test webhook and Kubernetes' own specs need the tunnel."""
    cluster.succeed("run", BEFORE_PIVOT)
    if IMAGE:
        check_the_tunnel_s_image(cluster)
    suite = ConformanceCluster(cluster.folder, print)
    suite.lay_programs()
    nodes = suite.node_ids()
    suite.require_no_route_to_pods(BOOTSTRAP, nodes[0])
    check_the_test_webhook(cluster, scratch)
    suite.load_images(nodes, ["agnhost"])
    suite.set_masters_schedulable(True)
    before = suite.tunnel_use()
    report = suite.run(SuiteRun("webhooks", SPECS, (), is_serial=False, processes=2, minutes=5), scratch)
    after = suite.tunnel_use()
    suite.set_masters_schedulable(False)
    outcomes = [one for one in read_outcomes(report) if one.result is not SpecResult.NOT_RUN]
    assert [one.result for one in outcomes] == [SpecResult.PASSED] * 2, outcomes
    assert after.dials > before.dials
    assert after.failures == before.failures


def check_the_tunnel_s_image(cluster: Cluster) -> None:
    """The server is a static pod of a kubelet without an API, so containerd knows it; the agents are pods that run."""
    shown = cluster.succeed("kubectl", "--", "get", "pods", "-n", KUBERNETES_NAMESPACE, "-o", "json")
    states = [one for pod in json.loads(shown)["items"] for one in pod["status"]["containerStatuses"]]
    assert [(one["image"], one["ready"]) for one in states] == [(DEFAULT_IMAGE, True)]
    lab = Lab.open(cluster.folder / LAB)
    listed = containerd.ctr(lab, "bootstrap", "containers", "ls").check().text.splitlines()
    images = {id_: image for id_, image, *_ in map(str.split, listed)}
    assert [images[id_] for id_ in containerd.task_pids(lab, "bootstrap")].count(DEFAULT_IMAGE) == 1


def check_the_test_webhook(cluster: Cluster, scratch: Path) -> None:
    rendered = scratch / "webhook"
    umbilical = [sys.executable, "-m", "umbilical", "bootstrap"]
    image = DEFAULT_IMAGE if IMAGE else UMBILICAL
    processes.run([*umbilical, "render", "--test-webhook", image, "--out", str(rendered)], 60)
    cluster.succeed("kubectl", "--", "apply", "-f", str(rendered))
    pod = ("-n", NAME, "wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=60s")
    cluster.succeed("kubectl", "--", *pod)
    # The one with an address: the API's name is known only in the lab.
    admin = next((cluster.folder / RECORD).glob("*.kubeconfig"))
    found = json.loads(inside(cluster.folder / LAB, LIVE_CHECK, str(admin)))["findings"]
    assert [(one["id"], one["outcome"]) for one in found] == [("L15", "passed")], found
    cluster.succeed("kubectl", "--", *shlex.split(REMOVAL)[1:], "--wait=false")


def check_the_way_in(cluster: Cluster, told: str) -> None:
    """The commands that a run ends with lead into the cluster, and a port of a node leads to a pod."""
    assert f"umbilical stage kubectl --dir {cluster.folder} -- get nodes" in told
    assert cluster.succeed("kubectl", "--", "get", "nodes", "--no-headers").count(" Ready ") == 2
    assert cluster.succeed("shell", "worker-0", "--", "hostname") == "worker-0.lab.example.com\n"
    assert '"level"' in cluster.succeed("logs", "master-0", "etcd", "--tail", "1")
    manifest = cluster.folder / "web.json"
    manifest.write_text(json.dumps(WEB))
    cluster.succeed("kubectl", "--", "apply", "-f", str(manifest))
    cluster.succeed("kubectl", "--", "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    assert cluster.succeed("shell", "host", "--", "curl", "-sS", "http://192.168.126.110:8081/healthz") == "ok"
    look = ("exec", "web", "-c", "shell", "--", "sh", "-c", "curl -sS http://localhost:8080/healthz")
    assert cluster.succeed("kubectl", "--", *look) == "ok"


def _is_another(lab: Lab, node: str, name: str, before: int) -> bool:
    return lab.process(node, name).pid != before


def check_killed_services_come_back(cluster: Cluster) -> None:
    lab = Lab.open(cluster.folder / LAB)
    for node, name in (("worker-0", "containerd"), (HOST, "haproxy")):
        before = lab.process(node, name).pid
        lab.exec(node, ["sh", "-c", f"kill -KILL {before}"]).check()
        wait_until(partial(_is_another, lab, node, name, before))
    wait_until(lambda: cluster.stage("kubectl", "--", "get", "--raw", "/readyz").stdout == "ok")
    done = cluster.stage("doctor")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


@pytest.mark.timeout(1500)
def test_a_cluster_is_built_killed_in_the_middle_resumed_verified_and_destroyed(tmp_path: Path) -> None:
    before = machine_picture()
    cluster = Cluster(tmp_path / "cluster")
    cluster.succeed(*INIT, *IMAGE, "--masters", "1", "--workers", "1")
    try:
        # Before etcd starts on the master: the suite waits for every pod of kube-system, and a learner is not ready.
        check_webhooks_before_the_pivot(cluster, tmp_path)
        assert cluster.run_until(began("start etcd on master-0"))
        cluster.succeed("run", "--junit", str(tmp_path / "run.xml"))
        told = cluster.log.read_text()
        assert "the webhook is called through the tunnel: one object allowed, one denied" in told
        assert "the webhook is called directly: one object allowed, one denied" in told
        assert probes(cluster)["failures"] == 0
        assert probes(cluster)["probes"] > 100
        outcomes = findings(cluster.succeed("status", "-o", "json"))
        assert "failed" not in outcomes.values()
        assert outcomes["etcd-members"] == outcomes["nodes-exact"] == outcomes["tunnel-gone"] == "passed"
        again = cluster.stage("run")
        assert again.returncode == 0
        assert "step" not in again.stderr
        check_no_secret_is_told(cluster)
        check_modes(cluster)
        check_the_way_in(cluster, again.stderr)
        check_killed_services_come_back(cluster)
    finally:
        cluster.succeed("destroy", "--yes")
    cluster.succeed("destroy", "--yes")
    assert processes_naming(cluster.folder) == []
    assert control_groups_of(cluster.folder / LAB) == []
    assert machine_picture() == before


@pytest.mark.soak
def test_a_larger_cluster_survives_five_kills_at_random_moments(tmp_path: Path) -> None:
    seed = int(os.environ.get("UMBILICAL_SEED", random.SystemRandom().randrange(1 << 32)))
    draw = random.Random(seed)
    masters, workers = os.environ.get("UMBILICAL_HARDWAY_NODES", "3+2").split("+")
    before = machine_picture()
    cluster = Cluster(tmp_path / "cluster")
    cluster.succeed(*INIT, *IMAGE, "--masters", masters, "--workers", workers)
    print(f"seed {seed}, {masters} masters, {workers} workers")
    try:
        for _ in range(5):
            if not cluster.run_until(reached(len(cluster.events()) + draw.randrange(20, 110))):
                break
            last = [one for one in cluster.events() if one["event"] == "step-began"][-1:]
            print("killed at:", last[0]["title"] if last else "the beginning")
        cluster.succeed("run")
        print(probes(cluster))
        assert probes(cluster)["failures"] == 0
        assert "failed" not in findings(cluster.succeed("status", "-o", "json")).values()
    finally:
        cluster.succeed("destroy", "--yes")
    assert processes_naming(cluster.folder) == []
    assert control_groups_of(cluster.folder / LAB) == []
    assert machine_picture() == before
