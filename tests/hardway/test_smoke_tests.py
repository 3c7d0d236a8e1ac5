"""Temporary parts: the tunnel and its removal; the smoke test's webhook and workload."""

import base64
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_stock import Stock, finalize, namespace, node, pod
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import OPENSHIFT, live_site, machines_of, naps_of, seen_by, switch_on
from tests.support.made_up_smoke_test import NAMESPACE, WEBHOOK, MadeUpSmokeTest

from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET
from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.fault import HardwayError, HostError, StageTimeout
from umbilical.hardway import kube, temporary
from umbilical.hardway import smoke_tests as webhook
from umbilical.hardway import smoke_tests as workload
from umbilical.hardway.artifacts.static_pods.pods import REMOVALS_PATH, TUNNEL, RemovalStep
from umbilical.hardway.artifacts.tunnel import AGENT_PKI
from umbilical.hardway.machines.interface import Done, Power
from umbilical.hardway.site import Site
from umbilical.host.waiting import NotYet
from umbilical.manifests.tree import Asset

pytestmark = pytest.mark.real(*PROGRAMS)
PLACE = "bootstrap-konnectivity"
FILES = ("ca.crt", "tls.crt", "tls.key")
NAME = "trial"
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


@pytest.fixture
def place(shelf: Stock) -> Iterator[Stock]:
    shelf.put(namespace(PLACE))
    yield shelf
    for kind, name, version in (("Secret", AGENT_SECRET, "v1"), ("DaemonSet", AGENT_NAME, "apps/v1")):
        shelf.take(kind, name, PLACE, version)


def daemon_set(ready: int, wanted: int) -> dict[str, Any]:
    labels = {"app": "agent"}
    pod = {"containers": [{"name": "agent", "image": "localhost/agent:lab"}]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    counts = {"numberReady": ready, "desiredNumberScheduled": wanted, "currentNumberScheduled": wanted}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AGENT_NAME, "namespace": PLACE},
        "spec": spec,
        "status": {**counts, "numberMisscheduled": 0},
    }


@pytest.mark.usefixtures("place")
def test_the_agents_get_what_the_node_made_and_nothing_of_it_lies_on_disk(site: Site) -> None:
    with pytest.raises(NotYet, match=f"{AGENT_PKI}/ca.crt does not exist on the bootstrap node"):
        temporary.hand_out_certificates(site)
    for name in FILES:
        machines_of(site).files["bootstrap", f"{AGENT_PKI}/{name}"] = f"secret {name}".encode()
    for _ in range(2):
        temporary.hand_out_certificates(site)
    found = kube.get(site, objects.SECRET, AGENT_SECRET, PLACE)
    assert found is not None
    assert {name: base64.b64decode(value).decode() for name, value in found["data"].items()} == {
        name: f"secret {name}" for name in FILES
    }
    assert not any(b"secret tls.key" in path.read_bytes() for path in site.folder.rglob("*") if path.is_file())


def test_agents_must_be_as_many_as_nodes_and_all_of_them_ready(site: Site, place: Stock) -> None:
    condition = temporary.agents_condition(2)
    assert condition.check.judge(site).evidence == f"there is no DaemonSet {PLACE}/{AGENT_NAME}"
    place.put(daemon_set(1, 1))
    assert condition.check.judge(site).evidence == "1 of 2 agents are ready"
    place.put(daemon_set(2, 3))
    assert condition.check.judge(site).evidence == "2 of 3 agents are ready"
    place.put(daemon_set(2, 2))
    assert condition.check.judge(site).outcome is Outcome.PASSED


def test_it_is_cut_with_its_namespace_and_its_static_pod_and_cutting_twice_is_fine(site: Site, place: Stock) -> None:
    switch_on(site)
    machines = machines_of(site)
    machines.responders.append(lambda node, command, stdin: Done(0, b"", b""))
    place.put(daemon_set(1, 1))
    still = f"the namespace {PLACE} is still there"
    assert temporary.gone_condition().check.judge(site).evidence == still
    for _ in range(2):
        temporary.cut(site)
    assert machines.calls[0].startswith("run bootstrap rm -f /etc/kubernetes/manifests/konnectivity-server")
    left = kube.get(site, objects.NAMESPACE, PLACE)
    assert left is not None
    assert "deletionTimestamp" in left["metadata"]
    assert temporary.gone_condition().check.judge(site).evidence == still
    place.take("DaemonSet", AGENT_NAME, PLACE, "apps/v1")
    place.take("Namespace", PLACE)
    assert temporary.gone_condition().check.judge(site).outcome is Outcome.PASSED


def test_an_artifact_that_cannot_be_read_is_told(site: Site) -> None:
    site.assets = {**site.assets, REMOVALS_PATH: Asset(REMOVALS_PATH, b"{", 0o644)}
    with pytest.raises(HardwayError, match="UMB760"):
        temporary.removal(site, TUNNEL)


def test_namespace_then_files_then_commands_and_twice_is_fine(site: Site, shelf: Stock) -> None:
    shelf.put(namespace("shortlived"))
    machines = machines_of(site)
    machines.powers.update({"bootstrap": Power.OFF, "master-0": Power.ON})
    machines.responders.append(lambda node, command, stdin: Done(0, b"", b""))
    files = (("bootstrap", "/etc/a.yaml"), ("master-0", "/etc/b.yaml"))
    step = RemovalStep("it", 16, "", namespace="shortlived", files=files, commands=(("master-0", ("it", "--cleanup")),))
    temporary.remove(site, step)
    shelf.call(lambda client: finalize(client, "shortlived"))
    assert kube.get(site, objects.NAMESPACE, "shortlived") is None
    temporary.remove(site, step)
    assert machines.calls == ["run master-0 rm -f /etc/b.yaml", "run master-0 it --cleanup"] * 2


def test_a_command_that_fails_is_told_with_its_words(site: Site) -> None:
    with pytest.raises(HardwayError) as raised:
        temporary.remove(site, RemovalStep("it", 16, "", commands=(("master-0", ("it", "--cleanup")),)))
    assert (raised.value.code, raised.value.remedy) == ("UMB761", "on master-0: it --cleanup")


def test_openshift_has_it_in_a_namespace_of_its_own(tmp_path: Path, plane: ControlPlane, site: Site) -> None:
    assert temporary.namespace(site) == PLACE
    assert temporary.namespace(live_site(tmp_path, plane, OPENSHIFT)) == "openshift-bootstrap-konnectivity"


@pytest.fixture
def tried(site: Site, smoke_test: MadeUpSmokeTest, shelf: Stock) -> Iterator[Site]:
    site.smoke_test = smoke_test
    yield site
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    shelf.take("Pod", smoke_test.pod, NAMESPACE)
    shelf.take("Namespace", NAMESPACE)


def uid(site: Site) -> str:
    found = kube.get(site, objects.POD, webhook.smoke_test_of(site).pod, NAMESPACE)
    assert found is not None
    return str(found["metadata"]["uid"])


def test_it_is_laid_onto_its_node_and_what_is_there_stays(tried: Site) -> None:
    node = tried.cluster.masters[0]
    webhook.create_webhook(tried, node)
    first = uid(tried)
    webhook.create_webhook(tried, node)
    assert uid(tried) == first
    found = kube.get(tried, objects.POD, "lab-service", NAMESPACE)
    assert objects.field(found or {}, "spec", "nodeName") == node.name


def test_half_of_it_is_made_anew(tried: Site, shelf: Stock) -> None:
    node = tried.cluster.masters[0]
    webhook.create_webhook(tried, node)
    first = uid(tried)
    shelf.take("ValidatingWebhookConfiguration", WEBHOOK, version="admissionregistration.k8s.io/v1")
    # Its kubelet lets go of it after a while.
    naps_of(tried).plans.append(lambda: shelf.take("Pod", "lab-service", NAMESPACE))
    webhook.create_webhook(tried, node)
    assert uid(tried) != first
    assert kube.get(tried, objects.WEBHOOK_CONFIGURATION, WEBHOOK) is not None


def test_a_pod_that_failed_for_good_is_made_anew(tried: Site, shelf: Stock) -> None:
    node = tried.cluster.masters[0]
    webhook.create_webhook(tried, node)
    before, smoke_test = uid(tried), webhook.smoke_test_of(tried)
    path = f"{objects.POD.path(smoke_test.namespace, smoke_test.pod)}/status"
    shelf.call(lambda client: kube.merge_patch(client, path, {"status": {"phase": "Failed"}}))
    naps_of(tried).plans.append(lambda: shelf.take("Pod", smoke_test.pod, smoke_test.namespace))
    webhook.create_webhook(tried, node)
    assert uid(tried) != before


def test_a_pod_is_waited_for(tried: Site, shelf: Stock) -> None:
    node = tried.cluster.masters[0]
    webhook.create_webhook(tried, node)
    condition = webhook.pod_condition(webhook.smoke_test_of(tried))
    assert condition.check.judge(tried).outcome is Outcome.FAILED
    shelf.put(pod("lab-service", NAMESPACE, node_name=node.name))
    assert condition.check.judge(tried).evidence == f"10.128.0.7 on {node.name}"


def test_a_real_api_server_asks_it_and_stores_nothing(tried: Site) -> None:
    webhook.create_webhook(tried, tried.cluster.masters[0])
    condition = webhook.webhook_condition("asked", "it is asked", None)
    assert condition.wait(tried, 60) == "one object allowed, one denied"
    assert kube.get(tried, objects.CONFIG_MAP, "judged-allow", NAMESPACE) is None


def test_one_that_cannot_be_reached_is_told_with_a_hint(
    tried: Site, smoke_test: MadeUpSmokeTest, tmp_path: Path
) -> None:
    tried.smoke_test = MadeUpSmokeTest(smoke_test._authority, 1)
    webhook.create_webhook(tried, tried.cluster.masters[0])
    with pytest.raises(StageTimeout) as raised:
        webhook.webhook_condition("asked", "it is asked", None).wait(tried, 0)
    assert "connection refused" in raised.value.why
    assert "failed calling webhook" in seen_by(tried)[-1]


@pytest.mark.parametrize(
    ("seen", "hint"),
    [
        ("No agent available", "no tunnel agent is connected"),
        ("connect: no route to host", "check its --egress-selector-config-file"),
        ("context deadline exceeded", "packets to the pod are dropped"),
    ],
)
def test_failures_that_are_known_have_their_hints(seen: str, hint: str) -> None:
    known_failures = webhook.webhook_condition("asked", "", None).known_failures
    (found,) = [one.hint for one in known_failures if re.search(one.pattern, seen)]
    assert hint in found


def test_only_a_tunnel_makes_the_bootstrap_node_ask(tried: Site) -> None:
    node = tried.cluster.masters[0]
    titles = [step.title for step in webhook.webhook_steps(tried, node)]
    assert titles[-1] == "call the webhook through the tunnel"
    tried.has_tunnel = False
    assert [step.title for step in webhook.webhook_steps(tried, node)] == titles[:2]


@pytest.fixture
def deployed(site: Site, smoke_test: MadeUpSmokeTest, shelf: Stock) -> Iterator[Site]:
    site.smoke_test = smoke_test
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
    condition = workload.spread_condition()
    deployed.cluster = replace(
        deployed.cluster,
        nodes=(
            *deployed.cluster.nodes,
            replace(deployed.cluster.workers[0], id="worker-1", name="worker-1.ocp4.example.com"),
        ),
    )
    one, other = (worker.name for worker in deployed.cluster.workers)
    shelf.put(replica(0, one), replica(1, one, is_ready=False))
    assert condition.check.judge(deployed).evidence == "1 of 2 pods are ready"
    shelf.put(replica(1, one))
    assert condition.check.judge(deployed).evidence == f"all pods are on {one}"
    shelf.take("Pod", "trial-1", NAMESPACE)
    shelf.put(replica(1, other))
    assert condition.check.judge(deployed).evidence == f"2 pods on {one}, {other}"


def test_one_worker_may_have_them_all(deployed: Site, shelf: Stock) -> None:
    name = deployed.cluster.workers[0].name
    shelf.put(replica(0, name), replica(1, name))
    assert workload.spread_condition().check.judge(deployed).outcome is Outcome.PASSED


def test_its_service_is_reached_by_address_and_name_from_inside(deployed: Site, shelf: Stock, tmp_path: Path) -> None:
    log = kubectl(deployed, tmp_path, "echo ok")
    shelf.put(replica(0, "a"), replica(1, "b"))
    seen = workload.reached_condition().probe(deployed)
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
    with pytest.raises(NotYet, match="returned 'no'"):
        workload.reached_condition().probe(deployed)
    kubectl(deployed, tmp_path, "echo Error from server: Forbidden >&2", 1)
    with pytest.raises(HostError, match="Forbidden"):
        workload.execute(deployed, "trial-0", ["true"])
    verdict = workload.reached_condition().check.judge(deployed)
    assert (verdict.outcome, "Forbidden" in verdict.evidence) == (Outcome.FAILED, True)


def test_a_port_is_forwarded_and_asked(deployed: Site, shelf: Stock, tmp_path: Path) -> None:
    name = deployed.cluster.workers[0].name
    shelf.put(replica(0, name), replica(1, name))
    (deployed.folder / ".umbilical").mkdir(exist_ok=True)
    log = kubectl(deployed, tmp_path, FORWARDER % "ok")
    assert workload.forwarded_condition().check.judge(deployed).outcome is Outcome.PASSED
    assert f"-n {NAMESPACE} port-forward pod/trial-0 :" in log.read_text()
    kubectl(deployed, tmp_path, FORWARDER % "no")
    assert "returned b'no'" in workload.forwarded_condition().check.judge(deployed).evidence
    kubectl(deployed, tmp_path, "echo error: unable to forward >&2", 1)
    assert workload.forwarded_condition().check.judge(deployed).outcome is Outcome.FAILED


def test_without_kubectl_exec_cannot_be_tried(deployed: Site) -> None:
    with pytest.raises(HardwayError, match="UMB748"):
        workload.execute(deployed, "trial-0", ["true"])


def test_logs_that_no_kubelet_gives_are_told(deployed: Site, shelf: Stock) -> None:
    shelf.put(node("gone.example.com", "192.0.2.77"), replica(0, "none"), replica(1, "none"))
    verdict = workload.logs_condition().check.judge(deployed)
    assert verdict.outcome is Outcome.FAILED
    assert "trial-0/log" in verdict.evidence


def test_logs_must_have_something_in_them(deployed: Site, shelf: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(replica(0, "none"), replica(1, "none"))
    logs = {"trial-0/log": "listening", "trial-1/log": "\n"}
    monkeypatch.setattr(workload, "_log", lambda site, path: logs[path.partition("/pods/")[2]])
    assert workload.logs_condition().check.judge(deployed).evidence == "the log of trial-1 is empty"
    logs["trial-1/log"] = "listening"
    assert workload.logs_condition().check.judge(deployed).evidence == "of every pod"


def test_all_of_it_goes_with_its_namespace_and_going_twice_is_fine(deployed: Site, shelf: Stock) -> None:
    webhook.create_webhook(deployed, deployed.cluster.masters[0])
    workload.remove(deployed)
    assert kube.get(deployed, objects.WEBHOOK_CONFIGURATION, WEBHOOK) is None
    naps_of(deployed).plans.append(lambda: shelf.call(lambda client: finalize(client, NAMESPACE)))
    assert workload.removed_condition().wait(deployed, 60) == "its namespace is deleted"
    workload.remove(deployed)
    shelf.take("Pod", "lab-service", NAMESPACE)
