"""CertificateSigningRequests of a cluster: listed, checked against a policy, approved one by one. Only requests from
kubelets of expected nodes are approved.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.csr_request import RequestError, SigningRequest, read_request
from umbilical.cluster.objects import ApiKind
from umbilical.fault import ApiRefused

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
NODES_GROUP: Final = "system:nodes"
EVERYBODY: Final = "system:authenticated"
NODE_PREFIX: Final = "system:node:"
WINDOW: Final = timedelta(hours=2)
"""How long after its start a node may request its first certificate."""
MAX_PENDING: Final = 100
"""With more, nothing is approved; the limit of OpenShift's machine-approver."""
_FIRST: Final = "first client"
_SIGNING: Final = frozenset({"digital signature"})
_ENCIPHERMENT: Final = frozenset({"key encipherment"})
# `hardway.csr_rounds` matches some of the reasons below to give hints.
_PURPOSE: Final = {CLIENT_SIGNER: "client auth", SERVING_SIGNER: "server auth"}


@dataclass(frozen=True)
class ExpectedNode:
    name: str
    addresses: frozenset[str]
    started_at: datetime
    """When the node's stage started."""
    other_names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Policy:
    nodes: Mapping[str, ExpectedNode]
    bootstrap_user: str
    """User name of a kubelet without a certificate."""
    bootstrap_groups: frozenset[str]
    reissue: frozenset[str] = frozenset()
    """Nodes that may request a first certificate again, even if their Node object exists."""
    window: timedelta = WINDOW


@dataclass(frozen=True)
class ClusterState:
    """State of the cluster besides the request."""

    now: datetime
    nodes: Mapping[str, Json] = field(default_factory=dict)
    """Node objects by name."""
    approved_clients: Collection[str] = ()
    """Nodes whose first client certificate was already approved."""
    pending: int = 0


@dataclass(frozen=True)
class Decision:
    csr: str
    node: str
    """Empty if the request does not name one."""
    is_approved: bool
    reason: str
    """Why it was approved, or the first rule that does not hold."""
    first_key: str = ""
    """For a first client certificate: SHA-256 of its public key, to find it on the node."""


@dataclass(frozen=True)
class _Case:
    csr: Json
    signer: str
    request: SigningRequest
    policy: Policy
    world: ClusterState

    @property
    def name(self) -> str:
        return self.request.common_name.removeprefix(NODE_PREFIX)

    @property
    def expected(self) -> ExpectedNode:
        return self.policy.nodes[self.name]

    @property
    def user(self) -> str:
        return str(objects.field(self.csr, "spec", "username") or "")

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(map(str, objects.field(self.csr, "spec", "groups") or ()))

    @property
    def is_renewal(self) -> bool:
        """A kubelet with a certificate uses its own identity."""
        return self.user == self.request.common_name


_Predicate = Callable[[_Case], str | None]


def decide(csr: Json, policy: Policy, world: ClusterState) -> Decision:
    """Decide on one pending request."""
    title = str(objects.metadata(csr).get("name") or "")
    signer = objects.field(csr, "spec", "signerName")
    if signer not in _PURPOSE:
        return Decision(title, "", False, f"its signer {signer} is not a signer for kubelets")
    try:
        request = read_request(_pem(csr))
    except RequestError as error:
        return Decision(title, "", False, str(error))
    case = _Case(csr, str(signer), request, policy, world)
    for predicate in _predicates(str(signer)):
        reason = predicate(case)
        if reason is not None:
            return Decision(title, case.name, False, reason)
    kind = "serving" if signer == SERVING_SIGNER else "renewal" if case.is_renewal else _FIRST
    first_key = hashlib.sha256(request.public_key).hexdigest() if kind == _FIRST else ""
    return Decision(title, case.name, True, f"{kind} certificate of the expected node {case.name}", first_key)


def is_pending(csr: Json) -> bool:
    """Return whether the request is neither approved, denied nor failed."""
    conditions = objects.items(objects.field(csr, "status", "conditions"))
    return not any(one.get("type") in ("Approved", "Denied", "Failed") for one in conditions)


def approval(csr: Json, decision: Decision, now: datetime) -> Json:
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "HardwayApproved",
        "message": decision.reason,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    earlier = objects.items(objects.field(csr, "status", "conditions"))
    return {**csr, "status": {**(csr.get("status") or {}), "conditions": [*earlier, condition]}}


def _pem(csr: Json) -> bytes:
    try:
        return base64.b64decode(str(objects.field(csr, "spec", "request") or ""), validate=True)
    except binascii.Error:
        raise RequestError("its request is not base64") from None


def _predicates(signer: str) -> Iterator[_Predicate]:
    yield from (_is_open, _not_flooded, _subject, _usages, _no_strange_names, _in_time)
    if signer == CLIENT_SIGNER:
        yield from (_client_requester, _no_names, _is_first)
    else:
        yield from (_own_requester, _names_of_node, _node_is_registered)


def _is_open(case: _Case) -> str | None:
    return None if is_pending(case.csr) else "it is already approved, denied or failed"


def _not_flooded(case: _Case) -> str | None:
    count = case.world.pending
    return None if count <= MAX_PENDING else f"{count} requests are pending, more than the limit of {MAX_PENDING}"


def _subject(case: _Case) -> str | None:
    if case.request.organizations != (NODES_GROUP,):
        return f"its organizations are {list(case.request.organizations)}, expected [{NODES_GROUP}]"
    if not case.request.common_name.startswith(NODE_PREFIX):
        return f"its common name {case.request.common_name} does not begin with {NODE_PREFIX}"
    if case.name not in case.policy.nodes:
        return f"no node {case.name} is expected"
    return None


def _usages(case: _Case) -> str | None:
    found = frozenset(map(str, objects.field(case.csr, "spec", "usages") or ()))
    needed = _SIGNING | {_PURPOSE[case.signer]}
    if found - _ENCIPHERMENT == needed:
        return None
    return f"its usages are {sorted(found)}, expected {sorted(needed)}"


def _no_strange_names(case: _Case) -> str | None:
    return "it has alternative names that are neither DNS nor IP" if case.request.other_names else None


def _in_time(case: _Case) -> str | None:
    if case.is_renewal or case.name in case.policy.reissue:
        return None
    made = _moment(objects.metadata(case.csr).get("creationTimestamp"))
    start = case.expected.started_at
    # The clocks of the cluster and of this machine may differ.
    if made is not None and start - timedelta(minutes=5) <= made <= start + case.policy.window:
        return None
    return f"it was created outside of the node's boot, which began at {start:%H:%M} UTC"


def _client_requester(case: _Case) -> str | None:
    if case.is_renewal:
        return None if NODES_GROUP in case.groups else f"its requester {case.user} is not in the group {NODES_GROUP}"
    if case.user != case.policy.bootstrap_user:
        return f"its requester is {case.user}, expected {case.policy.bootstrap_user} or the node itself"
    missing = case.policy.bootstrap_groups - case.groups
    return f"its requester lacks the groups {sorted(missing)}" if missing else None


def _own_requester(case: _Case) -> str | None:
    if not case.is_renewal:
        return f"its requester is {case.user}, expected {case.request.common_name}"
    missing = frozenset({NODES_GROUP, EVERYBODY}) - case.groups
    return f"its requester lacks the groups {sorted(missing)}" if missing else None


def _no_names(case: _Case) -> str | None:
    names = [*case.request.dns_names, *map(str, case.request.ip_addresses)]
    return f"a client certificate must have no alternative names, and it has {names}" if names else None


def _is_first(case: _Case) -> str | None:
    if case.is_renewal or case.name in case.policy.reissue:
        return None
    if case.name in case.world.approved_clients:
        return f"{case.name} has its first certificate already"
    return f"the Node {case.name} exists already" if case.name in case.world.nodes else None


def _names_of_node(case: _Case) -> str | None:
    dns, addresses = set(case.request.dns_names), set(map(str, case.request.ip_addresses))
    if not dns | addresses:
        return "a serving certificate needs an alternative name, and it has none"
    foreign = (dns - {case.name} - case.expected.other_names) | (addresses - case.expected.addresses)
    return f"it requests the names {sorted(foreign)}, which do not belong to the node" if foreign else None


def _node_is_registered(case: _Case) -> str | None:
    node = case.world.nodes.get(case.name)
    if node is None:
        return f"the Node {case.name} does not exist yet"
    addresses = objects.items(objects.field(node, "status", "addresses"))
    internal = {str(one.get("address")) for one in addresses if one.get("type") == "InternalIP"}
    if internal and internal <= case.expected.addresses:
        return None
    return f"the Node's addresses are {sorted(internal)}, expected {sorted(case.expected.addresses)}"


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


KIND: Final = ApiKind(
    "CertificateSigningRequest", "/apis/certificates.k8s.io/v1", "certificatesigningrequests", is_namespaced=False
)
NODE: Final = ApiKind("Node", "/api/v1", "nodes", is_namespaced=False)
_CONFLICT: Final = 409


@dataclass(frozen=True)
class CsrRound:
    """Result of one pass over the pending requests."""

    approved: tuple[Decision, ...]
    refused: tuple[Decision, ...]
    """Requests left pending, each with the first rule that does not hold."""


async def approve_pending(client: ApiClient, policy: Policy, now: datetime, known: Collection[str] = ()) -> CsrRound:
    """List the pending requests once, and approve those that the policy allows.

    `known`: nodes that already have their first certificate; the cluster deletes approved requests after an hour.

    Raises ApiRefused, ApiUnreachable: the API failed; earlier approvals stay.
    """
    listed = await objects.list_objects(client, KIND)
    nodes = await objects.list_objects(client, NODE)
    known_nodes = {str(objects.metadata(one).get("name")): one for one in nodes}
    pending = [csr for csr in listed if is_pending(csr)]
    first = {*known, *_first_clients(listed, policy)}
    approved, refused = [], []
    for csr in pending:
        decision = decide(csr, policy, ClusterState(now, known_nodes, first, len(pending)))
        if not decision.is_approved:
            refused.append(decision)
        elif await _approve(client, csr, decision, now):
            approved.append(decision)
            first |= {decision.node} if decision.first_key else set()
    return CsrRound(tuple(approved), tuple(refused))


async def _approve(client: ApiClient, csr: Json, decision: Decision, now: datetime) -> bool:
    try:
        await client.request("PUT", f"{KIND.path(None, decision.csr)}/approval", body=approval(csr, decision, now))
    except ApiRefused as refusal:
        if refusal.status == _CONFLICT:
            # It changed since it was listed; the next pass decides again.
            return False
        raise
    return True


def _first_clients(listed: Sequence[Json], policy: Policy) -> list[str]:
    """Return the nodes whose first certificate was approved; the cluster keeps such requests for an hour."""
    found = []
    for csr in listed:
        spec = csr.get("spec") or {}
        if spec.get("signerName") != CLIENT_SIGNER or spec.get("username") != policy.bootstrap_user:
            continue
        if any(one.get("type") == "Approved" for one in objects.items(objects.field(csr, "status", "conditions"))):
            found.append(_node(csr))
    return found


def _node(csr: Json) -> str:
    try:
        content = base64.b64decode(str(objects.field(csr, "spec", "request") or ""))
        return read_request(content).common_name.removeprefix(NODE_PREFIX)
    except (RequestError, ValueError):
        return ""
