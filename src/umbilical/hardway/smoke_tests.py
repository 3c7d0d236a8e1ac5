"""Smoke tests of a new cluster: a webhook in a pod, called by different API servers, and a workload.

The workload must be scheduled and reachable by Service address and name; logs, exec and port-forward must work.
"""

import re
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, read_document
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import WEBHOOK_CONFIGURATION, config_map_verdict
from umbilical.fault import HardwayError, HostError
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.site import Site, SmokeTest
from umbilical.hardway.stage import Condition, Step, wait_for
from umbilical.hardway.waiting import KnownFailure
from umbilical.host.processes import Child, run, start
from umbilical.host.waiting import NotYet
from umbilical.manifests.objects import IpAddress

POD_SECONDS: Final = 600.0
CALL_SECONDS: Final = 300.0
WEBHOOK_FAILURES: Final = (
    KnownFailure("No agent available", "no tunnel agent is connected: kubectl get pods -A | grep konnectivity-agent"),
    KnownFailure(
        "unreachable|no route", "this kube-apiserver has no route to pods: check its --egress-selector-config-file"
    ),
    KnownFailure("i/o timeout|deadline exceeded", "packets to the pod are dropped: check the firewall and the routes"),
)


def smoke_test_of(site: Site) -> SmokeTest:
    assert site.smoke_test is not None
    return site.smoke_test


def create_webhook(site: Site, node: ClusterNode) -> None:
    """Create the webhook and its pod on a node, with new keys; a working one is kept."""
    smoke_test = smoke_test_of(site)
    if _is_created(site, smoke_test):
        return

    async def apply(client: ApiClient) -> None:
        await kube.delete_if_there(client, WEBHOOK_CONFIGURATION, smoke_test.webhook_name)
        await kube.delete_if_there(client, objects.POD, smoke_test.pod, smoke_test.namespace)
        applier = Applier(client, force=True)
        for content in smoke_test.webhook_objects(node.name):
            document = read_document(content)
            assert document is not None
            await applier.apply(document)

    if kube.get(site, objects.POD, smoke_test.pod, smoke_test.namespace) is not None:
        site.api().call(lambda client: kube.delete_if_there(client, objects.POD, smoke_test.pod, smoke_test.namespace))
        _gone(smoke_test).wait(site, POD_SECONDS)
    site.api().call(apply)


def _is_created(site: Site, smoke_test: SmokeTest) -> bool:
    pod = kube.get(site, objects.POD, smoke_test.pod, smoke_test.namespace)
    # A pod without a controller is not restarted after it has failed.
    is_there = pod is not None and objects.field(pod, "status", "phase") not in ("Failed", "Succeeded")
    return is_there and kube.get(site, WEBHOOK_CONFIGURATION, smoke_test.webhook_name) is not None


def _gone(smoke_test: SmokeTest) -> Condition:
    def probe(site: Site) -> str:
        if kube.get(site, objects.POD, smoke_test.pod, smoke_test.namespace) is not None:
            raise NotYet("the old pod is still terminating")
        return ""

    return Condition(
        "webhook-gone", "the old webhook is deleted", "the new pod has the same name", "kubectl delete pod", probe
    )


def pod_condition(smoke_test: SmokeTest) -> Condition:
    def probe(site: Site) -> str:
        pod = kube.ready_pod(site, smoke_test.namespace, smoke_test.pod)
        return f"{objects.field(pod, 'status', 'podIP')} on {objects.field(pod, 'spec', 'nodeName')}"

    why = "a configured admission webhook that does not run blocks all requests that it handles"
    fix = f"kubectl -n {smoke_test.namespace} describe pod {smoke_test.pod}"
    return Condition("webhook-pod", "the webhook runs in a pod", why, fix, probe)


def webhook_condition(identifier: str, title: str, address: IpAddress | None) -> Condition:
    """The webhook allows one object and denies another, called by the API server at an address."""

    def probe(site: Site) -> str:
        smoke_test = smoke_test_of(site)
        allowed = site.api(address).call(lambda client: config_map_verdict(client, smoke_test.review_object("allow")))
        denied = site.api(address).call(lambda client: config_map_verdict(client, smoke_test.review_object("deny")))
        if (allowed, denied) != ("allowed", "denied"):
            raise NotYet(f"allow: {allowed}; deny: {denied}")
        return "one object allowed, one denied"

    why = "kube-apiserver must reach pods: operators register webhooks before the pivot"
    fix = "umbilical ping; kubectl get --raw /readyz?verbose"
    return Condition(identifier, title, why, fix, probe, WEBHOOK_FAILURES)


def webhook_steps(site: Site, node: ClusterNode) -> Sequence[Step]:
    smoke_test, bootstrap = smoke_test_of(site), site.cluster.bootstrap
    name = "through the tunnel" if site.has_tunnel else "by the bootstrap node"
    steps = [
        Step(
            f"create a webhook in a pod on {node.id}",
            f"kubectl apply -f webhook.yaml   # namespace {smoke_test.namespace}",
            lambda: create_webhook(site, node),
        ),
        Step(
            "wait for the webhook's pod",
            f"kubectl -n {smoke_test.namespace} get pod {smoke_test.pod}",
            lambda: wait_for(site, POD_SECONDS, pod_condition(smoke_test)),
        ),
    ]
    if site.has_tunnel:
        condition = webhook_condition("webhook-tunnel", f"the webhook is called {name}", bootstrap.address)
        steps.append(
            Step(
                f"call the webhook {name}",
                f"kubectl --server=https://{bootstrap.address}:6443 create --dry-run=server -f configmap.yaml",
                lambda: wait_for(site, CALL_SECONDS, condition),
            )
        )
    return steps


REPLICAS: Final = 2
ENDING_SECONDS: Final = 600.0
EXEC_SECONDS: Final = 60.0
FETCH_SECONDS: Final = 20.0
MAX_ANSWER_BYTES: Final = 4096
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
WORKLOAD_FAILURES: Final = (
    KnownFailure("Forbidden", "kube-apiserver's user may not use nodes/proxy: umbilical stage lint --only PKI-06"),
    KnownFailure("tls|x509", "a kubelet's serving certificate is missing or not trusted: kubectl get csr"),
    KnownFailure("resolve|Name or service", "DNS does not work in pods: kubectl -n kube-system logs deploy/coredns"),
    KnownFailure(
        "timed out|refused",
        "the Service has no reachable endpoint: kubectl get endpointslices; nft list ruleset on the node",
    ),
)


def deploy(site: Site) -> None:
    """Create the workload, after an earlier namespace has terminated: it would reject new objects."""
    found = kube.get(site, objects.NAMESPACE, smoke_test_of(site).namespace)
    if found is not None and "deletionTimestamp" in objects.metadata(found):
        removed_condition().wait(site, ENDING_SECONDS)

    async def apply(client: ApiClient) -> None:
        applier = Applier(client, force=True)
        for content in smoke_test_of(site).workload(REPLICAS):
            document = read_document(content)
            assert document is not None
            await applier.apply(document)

    site.api().call(apply)


def running_pods(site: Site) -> list[Json]:
    """Return the workload's pods. Raises NotYet: not all are ready."""
    smoke_test = smoke_test_of(site)
    found = kube.pods(site, smoke_test.namespace, f"app={smoke_test.workload_name}")
    ready = [pod for pod in found if kube.is_pod_ready(pod) and "deletionTimestamp" not in objects.metadata(pod)]
    if len(ready) < REPLICAS:
        raise NotYet(f"{len(ready)} of {REPLICAS} pods are ready")
    return ready


def spread_condition() -> Condition:
    def probe(site: Site) -> str:
        nodes = {str(objects.field(pod, "spec", "nodeName")) for pod in running_pods(site)}
        expected = min(REPLICAS, len(site.cluster.routers))
        if len(nodes) < expected:
            raise NotYet(f"all pods are on {', '.join(nodes)}")
        return f"{REPLICAS} pods on {', '.join(sorted(nodes))}"

    why = "the scheduler and the kubelets must be able to start pods"
    return Condition("workload", "a workload runs, spread over nodes", why, "kubectl describe pods", probe)


def reached_condition() -> Condition:
    """A pod reaches the Service by its address and by its name."""

    def probe(site: Site) -> str:
        smoke_test = smoke_test_of(site)
        pod = str(objects.metadata(running_pods(site)[0])["name"])
        service = kube.get(site, _SERVICE, smoke_test.workload_name, smoke_test.namespace) or {}
        address = str(objects.field(service, "spec", "clusterIP"))
        host = f"[{address}]" if ":" in address else address
        name = f"{smoke_test.workload_name}.{smoke_test.namespace}.svc.cluster.local"
        for place in (host, name):
            url = f"http://{place}:{smoke_test.workload_port}/healthz"
            answer = execute(site, pod, smoke_test.fetch_command(url)).strip()
            if answer != "ok":
                raise NotYet(f"{url} returned {answer[:80]!r}")
        return f"{address} and {name}"

    why = "pods reach each other by Service addresses and DNS names"
    fix = "kubectl -n kube-system logs deploy/coredns; nft list ruleset on the node"
    return Condition(
        "service-and-dns", "its Service is reachable by address and by name", why, fix, probe, WORKLOAD_FAILURES
    )


def logs_condition() -> Condition:
    def probe(site: Site) -> str:
        smoke_test = smoke_test_of(site)
        for pod in running_pods(site):
            name = str(objects.metadata(pod)["name"])
            if not _log(site, f"{objects.POD.path(smoke_test.namespace, name)}/log").strip():
                raise NotYet(f"the log of {name} is empty")
        return "of every pod"

    why = "kubelets must authorize kube-apiserver, and it must trust their certificates"
    return Condition("logs", "logs can be read", why, "kubectl logs POD -v=8", probe, WORKLOAD_FAILURES)


def _log(site: Site, path: str) -> str:
    return site.api().call(lambda client: client.get_text(path))


_SERVICE: Final = objects.ApiKind("Service", "/api/v1", "services")


def forwarded_condition() -> Condition:
    """kubectl port-forward from this machine to a pod works."""

    def probe(site: Site) -> str:
        smoke_test = smoke_test_of(site)
        pod = str(objects.metadata(running_pods(site)[0])["name"])
        words = ["-n", smoke_test.namespace, "port-forward", f"pod/{pod}", f":{smoke_test.workload_port}"]
        log = site.folder / ".umbilical" / "port-forward.log"
        log.unlink(missing_ok=True)
        with start([*_kubectl(site), *words], log, name="kubectl port-forward") as child:
            try:
                child.wait_ready(lambda: _forwarding(child) is not None, EXEC_SECONDS)
                answer = _fetch(_forwarding(child) or 0)
            except (HostError, OSError) as error:
                raise NotYet(str(error).splitlines()[-1]) from None
        log.unlink(missing_ok=True)
        if answer != b"ok":
            raise NotYet(f"{pod} returned {answer[:80]!r}")
        return pod

    why = "it uses the same connection as exec with another protocol"
    fix = "kubectl port-forward POD :PORT -v=8"
    return Condition("port-forward", "a port of a pod can be forwarded", why, fix, probe, WORKLOAD_FAILURES)


def _forwarding(child: Child) -> int | None:
    found = _FORWARDING.search(child.log_text())
    return int(found.group(1)) if found else None


def _fetch(port: int) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=FETCH_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().read(MAX_ANSWER_BYTES).strip()
    except HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
    finally:
        connection.close()


def execute(site: Site, pod: str, command: Sequence[str]) -> str:
    """Run a program in a pod with kubectl exec. Raises HostError: with its error output."""
    place = ["-n", smoke_test_of(site).namespace, pod, "--", *command]
    return run([*_kubectl(site), "--request-timeout=30s", "exec", *place], EXEC_SECONDS)


def _kubectl(site: Site) -> list[str]:
    kubectl = site.machines.survey(site.cluster).programs.get("kubectl", "")
    if not kubectl:
        raise HardwayError(
            "UMB748", "could not test exec and port-forward", "kubectl is not installed", "install kubectl"
        )
    return [kubectl, f"--kubeconfig={site.kubeconfig(None)}"]


def remove(site: Site) -> None:
    """Delete the objects of the smoke test; most are in its namespace."""
    smoke_test = smoke_test_of(site)

    async def delete(client: ApiClient) -> None:
        await kube.delete_if_there(client, WEBHOOK_CONFIGURATION, smoke_test.webhook_name)
        await kube.delete_if_there(client, objects.NAMESPACE, smoke_test.namespace)

    site.api().call(delete)


def removed_condition() -> Condition:
    def probe(site: Site) -> str:
        smoke_test = smoke_test_of(site)
        if kube.get(site, objects.NAMESPACE, smoke_test.namespace) is not None:
            raise NotYet(f"the namespace {smoke_test.namespace} is still there")
        return "its namespace is deleted"

    why = "test objects must not stay in a cluster that is handed over"
    return Condition(
        "trial-gone", "the objects of the smoke test are deleted", why, "kubectl get namespace -o yaml", probe
    )
