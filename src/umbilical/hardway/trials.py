"""Trials of a new cluster: a webhook in a pod, asked through one API server or another, and a workload.

The workload is scheduled, reached by Service and name, its logs are read, and a program runs in it.
"""

import re
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, read_document
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import Kind
from umbilical.fault import ApiRefused, HardwayError, HostError
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.site import Site, Trial
from umbilical.hardway.stage import Sight, Step, see
from umbilical.hardway.waiting import Signature
from umbilical.host.processes import Child, run, start
from umbilical.host.waiting import NotYet
from umbilical.manifests.objects import IpAddress

POD_SECONDS: Final = 600.0
CALL_SECONDS: Final = 300.0
CONFIGURATION: Final = Kind(
    "ValidatingWebhookConfiguration",
    "/apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    is_namespaced=False,
)
_DENIED: Final = "denied the request"
WEBHOOK_SIGNATURES: Final = (
    Signature(
        "No agent available", "no agent of the tunnel is connected: kubectl get pods -A | grep konnectivity-agent"
    ),
    Signature("unreachable|no route", "this kube-apiserver has no way to pods: is its egress selector set?"),
    Signature("i/o timeout|deadline exceeded", "packets to the pod vanish: a firewall, or a missing route"),
)


def trial_of(site: Site) -> Trial:
    assert site.trial is not None
    return site.trial


def lay(site: Site, node: ClusterNode) -> None:
    """Put the webhook's pod onto a node. What is there and works stays; else it is made anew, with new keys."""
    trial = trial_of(site)
    if _is_laid(site, trial):
        return

    async def apply(client: ApiClient) -> None:
        await kube.delete_if_there(client, CONFIGURATION, trial.webhook_name)
        await kube.delete_if_there(client, objects.POD, trial.pod, trial.namespace)
        applier = Applier(client, force=True)
        for content in trial.webhook_objects(node.name):
            document = read_document(content)
            assert document is not None
            await applier.apply(document)

    if kube.get(site, objects.POD, trial.pod, trial.namespace) is not None:
        site.api().call(lambda client: kube.delete_if_there(client, objects.POD, trial.pod, trial.namespace))
        _gone(trial).wait(site, POD_SECONDS)
    site.api().call(apply)


def _is_laid(site: Site, trial: Trial) -> bool:
    pod = kube.get(site, objects.POD, trial.pod, trial.namespace)
    # One that has failed for good is never restarted: nothing but a controller would do that.
    is_there = pod is not None and objects.field(pod, "status", "phase") not in ("Failed", "Succeeded")
    return is_there and kube.get(site, CONFIGURATION, trial.webhook_name) is not None


def _gone(trial: Trial) -> Sight:
    def look(site: Site) -> str:
        if kube.get(site, objects.POD, trial.pod, trial.namespace) is not None:
            raise NotYet("the old pod is still ending")
        return ""

    return Sight("webhook-gone", "the old webhook is gone", "two of one name cannot be", "kubectl delete pod", look)


def pod_sight(trial: Trial) -> Sight:
    def look(site: Site) -> str:
        pod = kube.ready_pod(site, trial.namespace, trial.pod)
        return f"{objects.field(pod, 'status', 'podIP')} on {objects.field(pod, 'spec', 'nodeName')}"

    return Sight(
        "webhook-pod",
        "the webhook runs in a pod",
        "an admission webhook that is configured and does not run stops every request it is for",
        f"kubectl -n {trial.namespace} describe pod {trial.pod}",
        look,
    )


def asked_sight(identifier: str, title: str, address: IpAddress | None) -> Sight:
    """The webhook allows one object and denies another, asked through the API server at an address."""

    def look(site: Site) -> str:
        trial = trial_of(site)
        allowed = site.api(address).call(lambda client: verdict(client, trial.judged("allow")))
        denied = site.api(address).call(lambda client: verdict(client, trial.judged("deny")))
        if (allowed, denied) != ("allowed", "denied"):
            raise NotYet(f"allow: {allowed}; deny: {denied}")
        return "one object allowed, one denied"

    return Sight(
        identifier,
        title,
        "kube-apiserver must reach pods: operators register webhooks long before the pivot",
        "umbilical ping; kubectl get --raw /readyz?verbose",
        look,
        WEBHOOK_SIGNATURES,
    )


async def verdict(client: ApiClient, judged: Json) -> str:
    """Have an object judged without storing it: `allowed`, `denied`, or what went wrong."""
    path = objects.CONFIG_MAP.path(objects.metadata(judged)["namespace"])
    try:
        await client.request("POST", path, query={"dryRun": "All"}, body=judged)
    except ApiRefused as refusal:
        return "denied" if _DENIED in refusal.message else refusal.message
    return "allowed"


def trial_steps(site: Site, node: ClusterNode) -> Sequence[Step]:
    trial, bootstrap = trial_of(site), site.cluster.bootstrap
    name = "through the tunnel" if site.has_tunnel else "by the bootstrap node"
    steps = [
        Step(
            f"put a webhook into a pod on {node.id}",
            f"kubectl apply -f webhook.yaml   # namespace {trial.namespace}",
            lambda: lay(site, node),
        ),
        Step(
            "wait for the webhook's pod",
            f"kubectl -n {trial.namespace} get pod {trial.pod}",
            lambda: see(site, POD_SECONDS, pod_sight(trial)),
        ),
    ]
    if site.has_tunnel:
        sight = asked_sight("webhook-tunnel", f"the webhook is asked {name}", bootstrap.address)
        steps.append(
            Step(
                f"have an object judged {name}",
                f"kubectl --server=https://{bootstrap.address}:6443 create --dry-run=server -f judged.yaml",
                lambda: see(site, CALL_SECONDS, sight),
            )
        )
    return steps


REPLICAS: Final = 2
ENDING_SECONDS: Final = 600.0
EXEC_SECONDS: Final = 60.0
FETCH_SECONDS: Final = 20.0
MAX_ANSWER_BYTES: Final = 4096
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
WORKLOAD_SIGNATURES: Final = (
    Signature("Forbidden", "kube-apiserver's user may not use nodes/proxy: stage lint, PKI-06"),
    Signature("tls|x509", "a kubelet's serving certificate is missing or unknown: kubectl get csr"),
    Signature("resolve|Name or service", "pods find no names: kubectl -n kube-system logs deploy/coredns"),
    Signature(
        "timed out|refused", "the Service leads nowhere: kubectl get endpointslices; nft list ruleset on the node"
    ),
)


def deploy(site: Site) -> None:
    """Put it there, after what an earlier trial left has gone: a namespace that is ending takes nothing new."""
    found = kube.get(site, objects.NAMESPACE, trial_of(site).namespace)
    if found is not None and "deletionTimestamp" in objects.metadata(found):
        removed_sight().wait(site, ENDING_SECONDS)

    async def apply(client: ApiClient) -> None:
        applier = Applier(client, force=True)
        for content in trial_of(site).workload(REPLICAS):
            document = read_document(content)
            assert document is not None
            await applier.apply(document)

    site.api().call(apply)


def running_pods(site: Site) -> list[Json]:
    """Return the workload's pods, if all of them are ready. Raises NotYet: they are not."""
    trial = trial_of(site)
    found = kube.pods(site, trial.namespace, f"app={trial.workload_name}")
    ready = [pod for pod in found if kube.is_pod_ready(pod) and "deletionTimestamp" not in objects.metadata(pod)]
    if len(ready) < REPLICAS:
        raise NotYet(f"{len(ready)} of {REPLICAS} pods are ready")
    return ready


def spread_sight() -> Sight:
    def look(site: Site) -> str:
        nodes = {str(objects.field(pod, "spec", "nodeName")) for pod in running_pods(site)}
        expected = min(REPLICAS, len(site.cluster.routers))
        if len(nodes) < expected:
            raise NotYet(f"all pods are on {', '.join(nodes)}")
        return f"{REPLICAS} pods on {', '.join(sorted(nodes))}"

    why = "a cluster that cannot schedule is none"
    return Sight("workload", "a workload runs, spread over nodes", why, "kubectl describe pods", look)


def reached_sight() -> Sight:
    """From inside one pod: by the Service's address, and by its name."""

    def look(site: Site) -> str:
        trial = trial_of(site)
        pod = str(objects.metadata(running_pods(site)[0])["name"])
        service = kube.get(site, _SERVICE, trial.workload_name, trial.namespace) or {}
        address = str(objects.field(service, "spec", "clusterIP"))
        host = f"[{address}]" if ":" in address else address
        name = f"{trial.workload_name}.{trial.namespace}.svc.cluster.local"
        for place in (host, name):
            url = f"http://{place}:{trial.workload_port}/healthz"
            answer = execute(site, pod, trial.fetch_command(url)).strip()
            if answer != "ok":
                raise NotYet(f"{url} answers {answer[:80]!r}")
        return f"{address} and {name}"

    why = "pods know each other by Services and names"
    fix = "kubectl -n kube-system logs deploy/coredns; nft list ruleset on the node"
    return Sight(
        "service-and-dns", "its Service is reached by address and by name", why, fix, look, WORKLOAD_SIGNATURES
    )


def logs_sight() -> Sight:
    def look(site: Site) -> str:
        trial = trial_of(site)
        for pod in running_pods(site):
            name = str(objects.metadata(pod)["name"])
            if not _log(site, f"{objects.POD.path(trial.namespace, name)}/log").strip():
                raise NotYet(f"the log of {name} is empty")
        return "of every pod"

    why = "kube-apiserver must be let in by kubelets, and must know their certificates"
    return Sight("logs", "logs can be read", why, "kubectl logs POD -v=8", look, WORKLOAD_SIGNATURES)


def _log(site: Site, path: str) -> str:
    return site.api().call(lambda client: client.get_text(path))


_SERVICE: Final = objects.Kind("Service", "/api/v1", "services")


def forwarded_sight() -> Sight:
    """From here into a pod, by a port of this machine."""

    def look(site: Site) -> str:
        trial = trial_of(site)
        pod = str(objects.metadata(running_pods(site)[0])["name"])
        words = ["-n", trial.namespace, "port-forward", f"pod/{pod}", f":{trial.workload_port}"]
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
            raise NotYet(f"{pod} answers {answer[:80]!r}")
        return pod

    why = "it takes the same way as exec, with another protocol on it"
    fix = "kubectl port-forward POD :PORT -v=8"
    return Sight("port-forward", "a port of a pod can be forwarded", why, fix, look, WORKLOAD_SIGNATURES)


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
    """Run a program in a pod by kubectl: exec has a protocol of its own. Raises HostError: with its complaint."""
    place = ["-n", trial_of(site).namespace, pod, "--", *command]
    return run([*_kubectl(site), "--request-timeout=30s", "exec", *place], EXEC_SECONDS)


def _kubectl(site: Site) -> list[str]:
    kubectl = site.machines.survey(site.cluster).programs.get("kubectl", "")
    if not kubectl:
        raise HardwayError("UMB748", "exec and port-forward cannot be tried", "there is no kubectl", "install kubectl")
    return [kubectl, f"--kubeconfig={site.kubeconfig(None)}"]


def remove(site: Site) -> None:
    """Delete what the trial made; its namespace takes the rest with it."""
    trial = trial_of(site)

    async def delete(client: ApiClient) -> None:
        await kube.delete_if_there(client, CONFIGURATION, trial.webhook_name)
        await kube.delete_if_there(client, objects.NAMESPACE, trial.namespace)

    site.api().call(delete)


def removed_sight() -> Sight:
    def look(site: Site) -> str:
        trial = trial_of(site)
        if kube.get(site, objects.NAMESPACE, trial.namespace) is not None:
            raise NotYet(f"the namespace {trial.namespace} is still there")
        return "nothing is left"

    why = "a trial that stays is taken for a workload one day"
    return Sight("trial-gone", "nothing of the trial is left", why, "kubectl get namespace -o yaml", look)
