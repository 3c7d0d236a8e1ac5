"""A workload in a real API: its pods as a kubelet would report them, exec by a kubectl that writes down its words."""

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_stock import Stock, finalize, node, pod
from tests.support.control_plane import PROGRAMS
from tests.support.live_site import machines_of, naps_of
from tests.support.made_up_trial import NAMESPACE, WEBHOOK, MadeUpTrial

from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.hardway import kube, webhook, workload
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet
from umbilical.host.errors import HostError

pytestmark = pytest.mark.real(*PROGRAMS)
NAME = "trial"


@pytest.fixture
def deployed(site: Site, trial: MadeUpTrial, shelf: Stock) -> Iterator[Site]:
    site.trial = trial
    workload.deploy(site)
    yield site
    for kind, version in (("Deployment", "apps/v1"), ("Service", "v1")):
        shelf.take(kind, NAME, NAMESPACE, version)
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    shelf.take("Namespace", NAMESPACE)


def kubectl(site: Site, folder: Path, answer: str, exit_code: int = 0) -> Path:
    """Introduce a kubectl that writes its words down."""
    program, log = folder / "kubectl", folder / "words"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{answer}\nexit {exit_code}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    machines = machines_of(site)
    machines.machine_survey = replace(machines.machine_survey, programs={"kubectl": str(program)})
    return log


def replica(number: int, node_name: str, *, is_ready: bool = True) -> dict[str, Any]:
    return pod(f"trial-{number}", NAMESPACE, is_ready=is_ready, node_name=node_name, app=NAME)


def test_it_is_deployed_and_deploying_twice_is_fine(deployed: Site) -> None:
    workload.deploy(deployed)
    found = kube.get(deployed, kube.DEPLOYMENT, NAME, NAMESPACE)
    assert found is not None
    assert found["spec"]["replicas"] == 2


def test_an_earlier_trial_that_is_still_ending_is_waited_for(deployed: Site, shelf: Stock) -> None:
    workload.remove(deployed)
    naps_of(deployed).plans.append(lambda: shelf.call(lambda client: finalize(client, NAMESPACE)))
    workload.deploy(deployed)
    found = kube.get(deployed, objects.NAMESPACE, NAMESPACE)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


def test_it_runs_when_all_replicas_are_ready_and_spread(deployed: Site, shelf: Stock) -> None:
    sight = workload.spread_sight()
    deployed.cluster = replace(
        deployed.cluster,
        nodes=(
            *deployed.cluster.nodes,
            replace(deployed.cluster.workers[0], id="worker-1", name="worker-1.ocp4.example.com"),
        ),
    )
    one, other = (worker.name for worker in deployed.cluster.workers)
    shelf.put(replica(0, one), replica(1, one, is_ready=False))
    assert sight.check.judge(deployed).evidence == "1 of 2 pods are ready"
    shelf.put(replica(1, one))
    assert sight.check.judge(deployed).evidence == f"all pods are on {one}"
    shelf.take("Pod", "trial-1", NAMESPACE)
    shelf.put(replica(1, other))
    assert sight.check.judge(deployed).evidence == f"2 pods on {one}, {other}"


def test_one_worker_may_have_them_all(deployed: Site, shelf: Stock) -> None:
    name = deployed.cluster.workers[0].name
    shelf.put(replica(0, name), replica(1, name))
    assert workload.spread_sight().check.judge(deployed).outcome is Outcome.PASSED


def test_its_service_is_reached_by_address_and_by_name_from_inside(
    deployed: Site, shelf: Stock, tmp_path: Path
) -> None:
    log = kubectl(deployed, tmp_path, "echo ok")
    shelf.put(replica(0, "a"), replica(1, "b"))
    seen = workload.reached_sight().look(deployed)
    address = kube.get(deployed, workload._SERVICE, NAME, NAMESPACE)
    assert address is not None
    cluster_ip = address["spec"]["clusterIP"]
    assert seen == f"{cluster_ip} and trial.{NAMESPACE}.svc.cluster.local"
    first, second = log.read_text().splitlines()
    head = f"--kubeconfig={deployed.kubeconfig(None)} --request-timeout=30s exec -n {NAMESPACE} trial-0 -- lab-fetch"
    assert first == f"{head} http://{cluster_ip}:8080/healthz"
    assert second == f"{head} http://trial.{NAMESPACE}.svc.cluster.local:8080/healthz"


def test_another_answer_or_a_failed_exec_is_told(deployed: Site, shelf: Stock, tmp_path: Path) -> None:
    shelf.put(replica(0, "a"), replica(1, "b"))
    kubectl(deployed, tmp_path, "echo no")
    with pytest.raises(NotYet, match="answers 'no'"):
        workload.reached_sight().look(deployed)
    kubectl(deployed, tmp_path, "echo Error from server: Forbidden >&2", 1)
    with pytest.raises(HostError, match="Forbidden"):
        workload.execute(deployed, "trial-0", ["true"])
    verdict = workload.reached_sight().check.judge(deployed)
    assert (verdict.outcome, "Forbidden" in verdict.evidence) == (Outcome.FAILED, True)


FORWARDER = """exec python3 - <<'PROGRAM'
import http.server, sys
class Answerer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"%s")
server = http.server.HTTPServer(("127.0.0.1", 0), Answerer)
print(f"Forwarding from 127.0.0.1:{server.server_port} -> 8080", flush=True)
server.serve_forever()
PROGRAM
"""


def test_a_port_is_forwarded_and_asked(deployed: Site, shelf: Stock, tmp_path: Path) -> None:
    name = deployed.cluster.workers[0].name
    shelf.put(replica(0, name), replica(1, name))
    (deployed.folder / ".umbilical").mkdir(exist_ok=True)
    log = kubectl(deployed, tmp_path, FORWARDER % "ok")
    assert workload.forwarded_sight().check.judge(deployed).outcome is Outcome.PASSED
    assert f"-n {NAMESPACE} port-forward pod/trial-0 :" in log.read_text()
    kubectl(deployed, tmp_path, FORWARDER % "no")
    assert "answers b'no'" in workload.forwarded_sight().check.judge(deployed).evidence
    kubectl(deployed, tmp_path, "echo error: unable to forward >&2", 1)
    assert workload.forwarded_sight().check.judge(deployed).outcome is Outcome.FAILED


def test_without_kubectl_exec_cannot_be_tried(deployed: Site) -> None:
    with pytest.raises(HardwayError) as raised:
        workload.execute(deployed, "trial-0", ["true"])
    assert raised.value.code == "UMB748"


def test_logs_that_no_kubelet_gives_are_told(deployed: Site, shelf: Stock) -> None:
    shelf.put(node("gone.example.com", "192.0.2.77"), replica(0, "none"), replica(1, "none"))
    verdict = workload.logs_sight().check.judge(deployed)
    assert verdict.outcome is Outcome.FAILED
    assert "trial-0/log" in verdict.evidence


def test_logs_must_have_something_in_them(deployed: Site, shelf: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(replica(0, "none"), replica(1, "none"))
    logs = {"trial-0/log": "listening", "trial-1/log": "\n"}
    monkeypatch.setattr(workload, "_log", lambda site, path: logs[path.partition("/pods/")[2]])
    assert workload.logs_sight().check.judge(deployed).evidence == "the log of trial-1 is empty"
    logs["trial-1/log"] = "listening"
    assert workload.logs_sight().check.judge(deployed).evidence == "of every pod"


def test_all_of_it_goes_with_its_namespace_and_going_twice_is_fine(deployed: Site, shelf: Stock) -> None:
    webhook.lay(deployed, deployed.cluster.masters[0])
    workload.remove(deployed)
    assert kube.get(deployed, webhook.CONFIGURATION, WEBHOOK) is None
    naps_of(deployed).plans.append(lambda: shelf.call(lambda client: finalize(client, NAMESPACE)))
    assert workload.removed_sight().wait(deployed, 60) == "nothing is left"
    workload.remove(deployed)
    shelf.take("Pod", "lab-service", NAMESPACE)
