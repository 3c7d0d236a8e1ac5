"""Stage 17: test the cluster with a workload, then clean up."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.fault import HardwayError
from umbilical.hardway import kube, prober, smoke_tests
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.etcd import Etcd, client_url
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.machines.interface import Power, kill
from umbilical.hardway.site import Site
from umbilical.hardway.stage import NEVER, Condition, Step, Undo, wait_for
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.stages.s12_control_plane import api_condition
from umbilical.hardway.stages.s15_worker_csrs import ready_condition
from umbilical.host.waiting import NotYet
from umbilical.pki.certificate import read_certificates

SMOKE_TEST_SECONDS: Final = 600.0
_GRACE_PHASES: Final = frozenset({"Running", "Succeeded"})

TOPIC: Final = stage_topic(
    17,
    "Tests the cluster: a workload on the workers, its Service by address and name, logs, exec, a webhook that masters "
    "call directly, data that survives the loss of an API server. Then it cleans up and deletes the bootstrap disk.",
    "You: the cluster is ready for use afterwards.",
    "Nodes can be Ready while, for example, `kubectl exec` still fails with Forbidden.",
    "kubectl create deployment; kubectl expose; kubectl exec; kubectl logs; etcdctl endpoint status --cluster",
    "The installer prints the console's address and the kubeadmin password, and tests nothing.",
)


def nodes_condition() -> Condition:
    def probe(site: Site) -> str:
        found, wanted = set(kube.nodes(site)), {node.name for node in site.cluster.members}
        if found != wanted:
            raise NotYet(f"unexpected: {sorted(found - wanted)}, missing: {sorted(wanted - found)}")
        return f"exactly {len(wanted)}"

    why = "an extra node is a mistake or an intruder, a missing one is a lost machine"
    return Condition("nodes-exact", "the nodes are exactly those of the config", why, "kubectl get nodes", probe)


def pods_condition() -> Condition:
    def probe(site: Site) -> str:
        found = kube.pods(site, "kube-system")
        wrong = [
            f"{objects.metadata(pod).get('name')} {objects.field(pod, 'status', 'phase')}"
            for pod in found
            if objects.field(pod, "status", "phase") not in _GRACE_PHASES
        ]
        if wrong or not found:
            raise NotYet(", ".join(wrong) or "there are no pods")
        return f"{len(found)} pods"

    why = "a pod that fails now will not recover by itself"
    return Condition("system-pods", "the pods of kube-system run", why, "kubectl -n kube-system get pods", probe)


def etcd_condition() -> Condition:
    def probe(site: Site) -> str:
        masters = site.cluster.masters
        etcd, endpoints = Etcd(site.machines, masters[0]), [client_url(node) for node in masters]
        if trouble := etcd.unhealthy(endpoints):
            raise NotYet("; ".join(trouble.values()))
        terms = {one.raft_term for one in etcd.status(endpoints)}
        if len(terms) != 1:
            raise NotYet(f"members are in different terms: {sorted(terms)}")
        return f"{len(masters)} members in term {terms.pop()}"

    why = "members in different terms do not communicate"
    fix = "etcdctl endpoint status --cluster"
    return Condition("etcd-terms", "etcd's members are healthy and agree", why, fix, probe)


def _lose_an_api_server(site: Site, node: ClusterNode) -> None:
    """Write through the load balancer, kill one API server, read the data, and wait until it is back."""
    secret = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"kept": "yes"}}
    place = smoke_tests.smoke_test_of(site).namespace

    async def store(client: ApiClient) -> None:
        await kube.delete_if_there(client, objects.CONFIG_MAP, "kept", place)
        await client.request("POST", objects.CONFIG_MAP.path(place), body=secret)

    site.api().call(store)
    if not kill(site.machines, node.id, "kube-apiserver"):
        remedy = f"umbilical stage status; on {node.id}: ss -ltnp"
        raise HardwayError("UMB749", f"no kube-apiserver runs on {node.id}", "nothing listens on its port", remedy)
    wait_for(site, SMOKE_TEST_SECONDS, _kept_condition(place), api_condition(node))


def _kept_condition(place: str) -> Condition:
    def probe(site: Site) -> str:
        found = kube.get(site, objects.CONFIG_MAP, "kept", place)
        if objects.field(found or {}, "data", "kept") != "yes":
            raise NotYet("the written data is missing")
        return "read through another API server"

    why = "the cluster must tolerate the loss of one API server"
    return Condition("data-kept", "data survives the loss of an API server", why, "kubectl get configmap kept", probe)


def _report_expiry(site: Site) -> None:
    paths = [path for path in site.assets if path.startswith(f"{layout.TLS}/") and path.endswith(".crt")]
    first = min((read_certificates(site.content(path))[0] for path in paths), key=lambda one: one.not_after)
    hours = first.time_left(site.now()).total_seconds() / 3600
    site.reporter.saw(f"the first certificate to expire is {first.common_name}, in {hours:.0f} h")


def _call_webhook_directly(site: Site) -> None:
    """Call the webhook of stage 11; create it again if an earlier run deleted it."""
    smoke_tests.create_webhook(site, site.cluster.masters[0])
    wait_for(site, SMOKE_TEST_SECONDS, smoke_tests.pod_condition(smoke_tests.smoke_test_of(site)))
    called = smoke_tests.webhook_condition("webhook-direct", "the webhook is called directly", None)
    wait_for(site, SMOKE_TEST_SECONDS, called)


def _clean(site: Site) -> None:
    names = (prober.COUNTER_NAME, "umbilical-nonce")

    async def delete(client: ApiClient) -> None:
        for name in names:
            await kube.delete_if_there(client, objects.CONFIG_MAP, name, "kube-system")

    site.api().call(delete)
    if site.smoke_test is not None:
        smoke_tests.remove(site)
        wait_for(site, SMOKE_TEST_SECONDS, smoke_tests.removed_condition())


def _remove_bootstrap(site: Site) -> None:
    if site.machines.power(site.cluster.bootstrap.id) is not Power.ABSENT:
        site.machines.remove(site.cluster.bootstrap.id)


def _smoke_test_steps(site: Site) -> list[Step]:
    steps = [
        Step("deploy a workload", "kubectl apply -f workload.yaml", partial(smoke_tests.deploy, site)),
        Step(
            "wait until it runs",
            "kubectl get pods -o wide",
            partial(wait_for, site, SMOKE_TEST_SECONDS, smoke_tests.spread_condition()),
        ),
        Step(
            "reach it by Service address and name",
            "kubectl exec POD -- curl http://SERVICE.NAMESPACE.svc.cluster.local/healthz",
            partial(wait_for, site, SMOKE_TEST_SECONDS, smoke_tests.reached_condition()),
        ),
        Step(
            "read its logs",
            "kubectl logs POD",
            partial(wait_for, site, SMOKE_TEST_SECONDS, smoke_tests.logs_condition()),
        ),
        Step(
            "forward a port to it",
            "kubectl port-forward POD :PORT",
            partial(wait_for, site, SMOKE_TEST_SECONDS, smoke_tests.forwarded_condition()),
        ),
    ]
    if site.has_tunnel:
        command = "kubectl create --dry-run=server -f configmap.yaml"
        steps.append(Step("call the webhook directly", command, partial(_call_webhook_directly, site)))
    if len(site.cluster.masters) > 1:
        node = site.cluster.masters[0]
        kill = f"pkill -KILL kube-apiserver   # on {node.id}"
        steps.append(Step("kill an API server", kill, partial(_lose_an_api_server, site, node)))
    return steps


def _steps(site: Site) -> Sequence[Step]:
    gone = "the bootstrap machine is deleted"
    return [
        *(_smoke_test_steps(site) if site.smoke_test is not None else []),
        Step("show when certificates expire", "openssl x509 -enddate -noout -in CRT", partial(_report_expiry, site)),
        Step("delete the objects of the smoke test", "kubectl delete namespace NAME", partial(_clean, site)),
        Step(
            "delete the bootstrap machine",
            "virsh destroy CLUSTER-bootstrap; virsh undefine CLUSTER-bootstrap --nvram; rm -f DISK ISO IGNITION",
            partial(_remove_bootstrap, site),
            Undo(NEVER, {"why": gone}),
        ),
    ]


def _conditions(site: Site) -> Sequence[Condition]:
    found = [nodes_condition(), ready_condition(site.cluster.members), pods_condition()]
    if not site.cluster.is_openshift:
        found.append(etcd_condition())
    return [*found, smoke_tests.removed_condition()] if site.smoke_test is not None else found


STAGE: Final = LiveStage(17, "verification", "test the cluster, and clean up", (16,), TOPIC, _steps, _conditions)
