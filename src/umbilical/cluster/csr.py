"""Signing requests of a cluster: listed, decided by a policy, approved one by one. Never all that are pending."""

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.csr_policy import (
    CLIENT_SIGNER,
    NODE_PREFIX,
    Decision,
    Policy,
    World,
    approval,
    decide,
    is_pending,
)
from umbilical.cluster.csr_request import RequestError, read_request
from umbilical.cluster.objects import Kind
from umbilical.fault import ApiRefused

KIND: Final = Kind(
    "CertificateSigningRequest", "/apis/certificates.k8s.io/v1", "certificatesigningrequests", is_namespaced=False
)
NODE: Final = Kind("Node", "/api/v1", "nodes", is_namespaced=False)
_CONFLICT: Final = 409


@dataclass(frozen=True)
class Round:
    """What one look at the requests came to."""

    approved: tuple[Decision, ...]
    refused: tuple[Decision, ...]
    """Still pending, each with the first rule that does not hold."""


async def approve_pending(client: ApiClient, policy: Policy, now: datetime, known: Collection[str] = ()) -> Round:
    """Look once, and approve what the policy allows.

    `known`: nodes that have got their first certificate, also where its request is deleted by now: the cluster's own
    cleaner takes those away after an hour.

    Raises:
        ApiRefused, ApiUnreachable: the API did not answer as it should; what was approved before stays so.
    """
    listed = await objects.list_objects(client, KIND)
    nodes = await objects.list_objects(client, NODE)
    known_nodes = {str(objects.metadata(one).get("name")): one for one in nodes}
    pending = [csr for csr in listed if is_pending(csr)]
    first = {*known, *_first_clients(listed, policy)}
    approved, refused = [], []
    for csr in pending:
        decision = decide(csr, policy, World(now, known_nodes, first, len(pending)))
        if not decision.is_approved:
            refused.append(decision)
        elif await _approve(client, csr, decision, now):
            approved.append(decision)
            first |= {decision.node} if decision.first_key else set()
    return Round(tuple(approved), tuple(refused))


async def _approve(client: ApiClient, csr: Json, decision: Decision, now: datetime) -> bool:
    try:
        await client.request("PUT", f"{KIND.path(None, decision.csr)}/approval", body=approval(csr, decision, now))
    except ApiRefused as refusal:
        if refusal.status == _CONFLICT:
            # It changed since it was listed; the next look decides anew.
            return False
        raise
    return True


def _first_clients(listed: Sequence[Json], policy: Policy) -> list[str]:
    """Name the nodes whose first certificate was approved, as far as the cluster remembers: for an hour."""
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
