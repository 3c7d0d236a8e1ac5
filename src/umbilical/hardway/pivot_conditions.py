"""Pivot conditions P1 to P8: they must hold twice before the bootstrap node is removed."""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.fault import Fault
from umbilical.hardway import kube, operators, smoke_tests
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.haproxy import API_SERVICE
from umbilical.hardway.config.cluster import API_PORT, ClusterNode
from umbilical.hardway.etcd import BOOTSTRAP_MEMBER, Etcd, EtcdMember, client_url, peer_url
from umbilical.hardway.machines.interface import is_listening
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition
from umbilical.host.waiting import NotYet
from umbilical.pki.certificate import read_certificates

KUBELET_PAIR: Final = "/var/lib/kubelet/pki/kubelet-client-current.pem"
CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler")
_NONCE: Final = "umbilical-nonce"
_NAMESPACE: Final = "kube-system"
_NEEDS_SMOKE_TEST: Final = "P8"


def conditions(site: Site) -> list[Condition]:
    """List the conditions for this cluster; P8 (webhook reachable directly) needs a smoke test."""
    return [one for one in CONDITIONS if site.smoke_test is not None or one.id != _NEEDS_SMOKE_TEST]


def members(site: Site) -> list[EtcdMember]:
    """List the members as the masters' etcd reports them."""
    return Etcd(site.machines, site.cluster.masters[0]).members()


def bootstrap_member(site: Site) -> EtcdMember | None:
    """Find the bootstrap node's member; None once it is removed."""
    url = peer_url(site.cluster.bootstrap)
    return next((one for one in members(site) if one.name == BOOTSTRAP_MEMBER or url in one.peer_urls), None)


def is_past(site: Site) -> bool:
    """Whether the bootstrap member is removed, so that the pivot conditions need not hold any more.

    In OpenShift the operator reports it: masters have no etcdctl there.
    """
    if site.cluster.is_openshift:
        return kube.condition(kube.get(site, operators.ETCD, "cluster") or {}, operators.REMOVED) == "True"
    return bootstrap_member(site) is None


def is_handed_over(site: Site) -> bool:
    """The same, and False while no master has an etcd."""
    try:
        return is_past(site)
    except Fault:
        return False


def _p1() -> Condition:
    def probe(site: Site) -> str:
        known = kube.nodes(site)
        for node in site.cluster.masters:
            kube.registered(known, node)
        return f"{len(site.cluster.masters)} masters"

    why = "the pivot moves etcd and the API to the masters, so all of them must be registered"
    return Condition("P1", "all masters are registered under their names", why, "umbilical stage run 11", probe)


def _p2() -> Condition:
    def probe(site: Site) -> str:
        masters = site.cluster.masters
        if site.cluster.is_openshift:
            operators.control_plane_conditions(site)[0].probe(site)
            return "EtcdRunningInCluster"
        etcd = Etcd(site.machines, masters[0])
        found = etcd.members()
        if trouble := etcd.unhealthy([client_url(node) for node in masters]):
            raise NotYet("; ".join(f"{endpoint}: {why}" for endpoint, why in trouble.items()))
        voting = {url for one in found if not one.is_learner for url in one.peer_urls}
        silent = [node.id for node in masters if peer_url(node) not in voting]
        if silent or len(found) < len(masters) + 1:
            raise NotYet(f"{len(found)} members; not voting: {', '.join(silent) or 'none'}")
        return f"{len(found)} members, all masters vote"

    why = "after the bootstrap member is removed the masters alone must have quorum"
    return Condition("P2", "etcd has a healthy, voting member on every master", why, "umbilical stage run 12", probe)


def _p3() -> Condition:
    def probe(site: Site) -> str:
        for node in site.cluster.masters:
            kube.ready_text(site, node.address)
        if site.cluster.is_openshift:
            for condition in operators.control_plane_conditions(site)[1:]:
                condition.probe(site)
        else:
            _check_controllers(site)
        return "ready"

    why = "after the pivot the load balancer sends all requests to the masters"
    return Condition("P3", "every master's control plane is ready", why, "umbilical stage run 12", probe)


def _check_controllers(site: Site) -> None:
    for node in site.cluster.masters:
        for program in CONTROLLERS:
            if not is_listening(site.machines, node.id, program):
                raise NotYet(f"{program} does not run on {node.id}")


def _p4() -> Condition:
    def probe(site: Site) -> str:
        nonce = secrets.token_hex(8)
        masters = site.cluster.masters
        body = {"metadata": {"name": _NONCE, "namespace": _NAMESPACE}, "data": {"nonce": nonce}}
        site.api(masters[0].address).call(lambda client: _store(client, body))
        for node in (*masters[1:], site.cluster.bootstrap):
            _read_nonce(site, node, nonce)
        return f"written by {masters[0].id}, read by all others"

    why = "an API server with another etcd or another --etcd-prefix serves an empty cluster"
    fix = "compare --etcd-prefix and --etcd-servers of the API servers: umbilical explain --etcd-prefix"
    return Condition("P4", "data that one API server writes is read by all others", why, fix, probe)


def _read_nonce(site: Site, node: ClusterNode, nonce: str) -> None:
    found = kube.get(site, objects.CONFIG_MAP, _NONCE, _NAMESPACE, node.address)
    seen = objects.field(found or {}, "data", "nonce")
    if seen != nonce:
        raise NotYet(f"kube-apiserver on {node.id} returned {seen!r} instead of {nonce!r}")


async def _store(client: ApiClient, body: Mapping[str, object]) -> None:
    from umbilical.cluster.apply import Applier, read_document

    document = read_document({"apiVersion": "v1", "kind": "ConfigMap", **body})
    assert document is not None
    await Applier(client, force=True).apply(document)


def _p5() -> Condition:
    def probe(site: Site) -> str:
        token = site.api(site.cluster.bootstrap.address).call(_mint)
        for node in site.cluster.masters:
            user = site.api(node.address).call(lambda client: _review(client, token))
            if not user:
                raise NotYet(f"kube-apiserver on {node.id} rejected a token that the bootstrap API server issued")
        return "tokens are accepted"

    why = "every pod has a token that the bootstrap API server issued; a master without its key rejects them all"
    fix = "compare --service-account-key-file of both: umbilical stage lint --only PKI-11"
    return Condition("P5", "every master accepts tokens that the bootstrap API server issued", why, fix, probe)


async def _mint(client: ApiClient) -> str:
    path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await client.request("POST", path, body=body)
    return str(objects.field(answer, "status", "token"))


async def _review(client: ApiClient, token: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await client.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
    status = answer.get("status") or {}
    return str(objects.field(status, "user", "username") or "") if status.get("authenticated") else ""


def _p6() -> Condition:
    def probe(site: Site) -> str:
        admin = read_certificates(site.content(layout.certificate("admin-kubeconfig-client")))[0].common_name
        for node in site.cluster.masters:
            user = site.api(node.address).call(_who_am_i)
            if user != admin:
                raise NotYet(f"kube-apiserver on {node.id} authenticated {admin} as {user or 'no user'}")
            _get_as_kubelet(site, site.cluster.masters[0], node)
        return f"{admin} and {site.cluster.masters[0].name}"

    why = "a master whose client CA lacks a signer rejects administrators and kubelets after the pivot"
    fix = "compare --client-ca-file of both: it must be the complete client CA bundle"
    return Condition("P6", "every master accepts administrators and kubelets", why, fix, probe)


async def _who_am_i(client: ApiClient) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    return str(objects.field(answer, "status", "userInfo", "username") or "")


def _get_as_kubelet(site: Site, kubelet: ClusterNode, server: ClusterNode) -> None:
    """Get a node's object from the node itself with its own certificate, which never leaves it."""
    host = f"[{server.address}]" if server.address.version == 6 else str(server.address)
    url = f"https://{host}:{API_PORT}/api/v1/nodes/{kubelet.name}"
    words = ["curl", "-sS", "-m", "20", "--noproxy", "*", "--cert", KUBELET_PAIR, "--cacert", "/dev/stdin", url]
    done = site.machines.run(kubelet.id, words, stdin=site.content(layout.bundle(Bundle.SERVER_CA.value)))
    try:
        kind = json.loads(done.stdout)["kind"] if done.exit_code == 0 else ""
    except (ValueError, KeyError, TypeError):
        kind = ""
    if kind != "Node":
        raise NotYet(f"the kubelet of {kubelet.id} got an error from {server.id}: {done.complaint[:200]}")


def _p7() -> Condition:
    def probe(site: Site) -> str:
        names = {node.name for node in site.cluster.masters}
        # A machine is in other backends too, and may be up there.
        api = [one for one in site.machines.balancer() if one.backend == API_SERVICE]
        up = {one.server for one in api if one.is_up and one.server in names}
        needed = min(2, len(names))
        if len(up) < needed:
            raise NotYet(f"the load balancer sees {len(up)} masters up, {needed} are needed")
        return ", ".join(sorted(up))

    why = "the pivot sends all traffic to them"
    fix = "umbilical stage lint --only HA-01; check its statistics"
    return Condition("P7", "the load balancer sees the masters up", why, fix, probe)


def _p8() -> Condition:
    def probe(site: Site) -> str:
        for node in site.cluster.masters:
            smoke_tests.webhook_condition("P8", "", node.address).probe(site)
        return "called directly"

    why = "the pivot removes the tunnel, so masters must reach pods without it"
    fix = "from a master: curl -k https://POD_IP:PORT; check routes and the pod network"
    return Condition("P8", "every master reaches the webhook directly", why, fix, probe)


def first_that_fails(site: Site, conditions: Sequence[Condition]) -> str:
    """Probe all conditions; return the first that does not hold, empty if all do."""
    if site.smoke_test is None:
        site.reporter.saw(
            f"{_NEEDS_SMOKE_TEST} (every master reaches the webhook) is skipped: there is no image for a webhook"
        )
    for condition in conditions:
        try:
            site.reporter.saw(f"{condition.id} {condition.title}: {condition.probe(site)}")
        except NotYet as error:
            return f"{condition.id} {condition.title}: {error}"
        except Fault as fault:
            return f"{condition.id} {condition.title}: {fault.brief}"
    return ""


CONDITIONS: Final[tuple[Condition, ...]] = (_p1(), _p2(), _p3(), _p4(), _p5(), _p6(), _p7(), _p8())
