"""The chart with the real helm: lint, the same renderings, a strict dry run of every object, install to rollback.

Without kubelets no pod starts. The test plays the controller of the hook's Job: it runs the command of the Job with the
rights of its account, and reports the Job as done.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.chart_objects import NAMES, Object, named, pods, rendering
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.dry_runs import as_pod, dry_run

import chart
import peers

pytestmark = [pytest.mark.soak, pytest.mark.real("helm", *PROGRAMS)]
CRDS: Final = (
    "monitoring.coreos.com_servicemonitors.yaml",
    "monitoring.coreos.com_podmonitors.yaml",
    "monitoring.coreos.com_prometheusrules.yaml",
    "cert-manager.io_certificates.yaml",
    "cert-manager.io_issuers.yaml",
)
PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 120.0
HOOK: Final = "umbilical-certificates-hook"
REFUSED: Final = {
    "nothing to install": ["server.kind=none", "agent.kind=none"],
    "the agents need the servers' CA": ["server.kind=none", "agent.servers={a:1}"],
    "set agent.servers": ["server.kind=none", "certificates.mode=existing"],
    "needs servers of this release": [
        *("server.kind=none", "certificates.mode=existing", "agent.servers={a:1}", "leases.enabled=true")
    ],
    "needs server.kind DaemonSet": ["server.frontend.type=unix"],
    "additional properties 'replica' not allowed": ["replica=3"],
}


@pytest.mark.parametrize("values", chart.value_files(), ids=lambda path: path.name)
def test_helm_lints_the_chart_strictly_and_renders_what_is_committed(values: Path) -> None:
    assert "0 chart(s) failed" in chart.helm("lint", "--strict", str(chart.CHART), "--values", str(values))
    assert chart.rendered(values) == chart.rendering_of(values).read_text()


@pytest.mark.parametrize("reason", REFUSED)
def test_values_that_cannot_work_together_are_refused(reason: str) -> None:
    sets = [word for one in REFUSED[reason] for word in ("--set", one)]
    with pytest.raises(chart.ChartError) as caught:
        chart.helm("template", chart.RELEASE, str(chart.CHART), *sets)
    assert reason in str(caught.value)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as plane:
        for name in CRDS:
            path = peers.document(name)
            assert path is not None, f"no {name}: run `make peers`, and `make peers GROUP=helm`"
            plane.kubectl("create", "-f", str(path))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.NAMESPACE}})
        yield plane


def given(*sets: str) -> list[Object]:
    """Objects of other values than those of the renderings."""
    words = [word for one in sets for word in ("--set", one)]
    options = ["--namespace", chart.NAMESPACE, "--kube-version", chart.CLUSTER_VERSION.removeprefix("v"), *words]
    return [one for one in yaml.safe_load_all(chart.helm("template", chart.RELEASE, str(chart.CHART), *options)) if one]


OTHERS: Final = {
    "openshift": ["podSecurity.user=null", "image.digest=sha256:" + "a" * 64, "image.pullSecrets={registry}"],
    "deployments on the host network": [
        *("agent.kind=Deployment", "agent.hostNetwork=true", "server.hostNetwork=true", "server.workers=auto"),
        *("server.publish.type=NodePort", "server.publish.nodePort=30091", "server.protocol=grpc"),
    ],
    "leases that only count, a proxied agent": ["leases.enabled=true", "agent.extraArgs={--max-dials=64}"],
    "an issuer of the user": [
        *("certificates.mode=certManager", "certificates.certManager.issuerRef.name=platform"),
        "certificates.certManager.issuerRef.kind=ClusterIssuer",
    ],
    "without rules for identities and policies": [
        *("server.agentIdentities=null", "server.frontend.identities=null", "networkPolicy.enabled=false"),
    ],
}


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_every_object_would_be_stored_as_it_is(plane: ControlPlane, name: str) -> None:
    found = rendering(name) if name in NAMES else given(*OTHERS[name])
    dry_run(plane, found)
    workloads = [one for one in found if one["kind"] in ("Deployment", "DaemonSet", "Job")]
    dry_run(plane, [as_pod(one) for one in workloads])


def test_pods_pass_pod_security_restricted_unless_they_need_the_node(plane: ControlPlane) -> None:
    labels = {f"pod-security.kubernetes.io/{kind}": "restricted" for kind in ("enforce", "warn")}
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": labels}})
    found = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": "restricted"},
            "spec": pod,
        }
        for number, (_, _, pod) in enumerate(pods(rendering("default")))
    ]
    assert len(found) == 5
    dry_run(plane, found)


class Helm:
    """Runs helm against the control plane, and the Jobs of its hooks."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._environment = {
            **os.environ,
            **{f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
            "KUBECONFIG": str(plane.kubeconfig),
        }

    def run(self, *arguments: str) -> str:
        program = peers.binary("helm")
        assert program is not None
        command = [str(program), *arguments, "--namespace", chart.NAMESPACE]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_with_hook(self, *arguments: str) -> str:
        """Run it while the hook's Job is done for it."""
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(self.run, *arguments)
            deadline = time.monotonic() + SECONDS
            while not told.done() and HOOK not in self._jobs():
                assert time.monotonic() < deadline, f"no Job {HOOK}"
                time.sleep(0.2)
            if not told.done():
                self._do(self._jobs()[HOOK])
            return told.result()

    def _jobs(self) -> dict[str, Object]:
        return named(get(self._plane, "jobs")["items"], "Job")

    def _do(self, job: Object) -> None:
        pod = job["spec"]["template"]["spec"]
        user = f"system:serviceaccount:{chart.NAMESPACE}:{pod['serviceAccountName']}"
        arguments = [*pod["containers"][0]["args"], f"--kubeconfig={self._plane.make_kubeconfig(user)}"]
        subprocess.run([PROGRAM, *arguments], timeout=SECONDS, check=True)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
        status["uncountedTerminatedPods"] = {}
        change = json.dumps({"status": status})
        name = job["metadata"]["name"]
        self._plane.kubectl(
            *("patch", "job", name, "-n", chart.NAMESPACE, "--subresource=status", "--type=merge", "-p", change)
        )


def get(plane: ControlPlane, what: str, *names: str) -> Any:
    return json.loads(plane.kubectl("get", what, *names, "-n", chart.NAMESPACE, "-o", "json"))


def test_a_release_is_installed_upgraded_and_rolled_back(plane: ControlPlane, tmp_path: Path) -> None:
    helm = Helm(plane, tmp_path)
    told = helm.run_with_hook("install", chart.RELEASE, str(chart.CHART))
    assert "helm test umbilical -n umbilical --logs" in told
    assert get(plane, "deployment", "umbilical-server")["spec"]["replicas"] == 2
    server = get(plane, "secret", "umbilical-server")["data"]
    # The hook's own rights are gone; the CronJob has others.
    assert set(named(get(plane, "roles")["items"], "Role")) == {"umbilical-certificates"}

    helm.run_with_hook("upgrade", chart.RELEASE, str(chart.CHART), "--set", "server.replicas=3,leases.enabled=true")
    assert get(plane, "deployment", "umbilical-server")["spec"]["replicas"] == 3
    assert "umbilical-server-leases" in named(get(plane, "roles")["items"], "Role")
    assert get(plane, "secret", "umbilical-server")["data"] == server

    helm.run("rollback", chart.RELEASE, "1")
    assert get(plane, "deployment", "umbilical-server")["spec"]["replicas"] == 2
    assert "umbilical-server-leases" not in named(get(plane, "roles")["items"], "Role")
    history = json.loads(helm.run("history", chart.RELEASE, "-o", "json"))
    assert [one["status"] for one in history] == ["superseded", "superseded", "deployed"]

    helm.run("uninstall", chart.RELEASE)
    assert get(plane, "deployments,daemonsets,services,cronjobs,roles")["items"] == []
    # Certificates outlive the release, and the next one uses them.
    assert get(plane, "secret", "umbilical-server")["data"] == server
