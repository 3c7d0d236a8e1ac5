"""A webhook in a pod, asked through one API server or another: through the tunnel before the pivot, directly after."""

from collections.abc import Sequence
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, read_document
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import Kind
from umbilical.fault import ApiRefused
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.looking import Sight, see
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.trial import Trial
from umbilical.hardway.waiting import NotYet, Signature
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
SIGNATURES: Final = (
    Signature(
        "No agent available", "no agent of the tunnel is connected: kubectl get pods -A | grep konnectivity-agent"
    ),
    Signature("unreachable|no route", "this kube-apiserver has no way to pods: is its egress selector set?"),
    Signature("i/o timeout|deadline exceeded", "packets to the pod vanish: a firewall, or a missing route"),
)


def trial_of(site: Site) -> Trial:
    assert site.trial is not None
    return site.trial


def lay(site: Site, node: Node) -> None:
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
        SIGNATURES,
    )


async def verdict(client: ApiClient, judged: Json) -> str:
    """Have an object judged without storing it: `allowed`, `denied`, or what went wrong."""
    path = objects.CONFIG_MAP.path(objects.metadata(judged)["namespace"])
    try:
        await client.request("POST", path, query={"dryRun": "All"}, body=judged)
    except ApiRefused as refusal:
        return "denied" if _DENIED in refusal.message else refusal.message
    return "allowed"


def trial_steps(site: Site, node: Node) -> Sequence[Step]:
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
