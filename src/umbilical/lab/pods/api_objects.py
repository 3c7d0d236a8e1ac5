"""Secrets, ConfigMaps and tokens for pods, from the API. One that cannot be had now is asked for again later."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from umbilical.cluster.client import ApiClient
from umbilical.cluster.objects import CONFIG_MAP, SECRET
from umbilical.cluster.objects import Kind as ApiKind
from umbilical.fault import ApiRefused, ClusterError, Waiting
from umbilical.lab.pods.daemons import values
from umbilical.lab.pods.fields import Fields
from umbilical.lab.pods.spec import Kind, Pod

log: Final = logging.getLogger(__name__)

_KINDS: Final[Mapping[Kind, ApiKind]] = {Kind.SECRET: SECRET, Kind.CONFIG_MAP: CONFIG_MAP}


class ApiObjects:
    """Fulfils `Sources`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def values(self, kind: Kind, namespace: str, name: str) -> Mapping[str, bytes] | None:
        found = await self._ask("GET", _KINDS[kind].path(namespace, name), None)
        return None if found is None else values(kind, Fields(found, kind.value))

    async def token(self, pod: Pod, audience: str, lifetime_seconds: int) -> str | None:
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{pod.service_account}/token"
        answer = await self._ask("POST", path, token_request(pod, audience, lifetime_seconds))
        return None if answer is None else str(answer.get("status", {}).get("token", "")) or None

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            return await self._client.request(method, path, body=body)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            # 403, too: the node authorizer lets a node read what its pods need, a moment after it learnt of them.
            raise _later(refusal) from refusal
        except ClusterError as error:
            raise _later(error) from error


def token_request(pod: Pod, audience: str, lifetime_seconds: int) -> dict[str, Any]:
    """Ask for a token that is worth nothing once the pod is gone."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [audience] if audience else [],
            "expirationSeconds": lifetime_seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
        },
    }


def _later(error: ClusterError) -> Waiting:
    return Waiting("UMB834", error.what, error.why, error.remedy, "ContainerCreating")
