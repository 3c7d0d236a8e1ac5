"""Who an agent is, by its service account token: the API server reviews it, we compare namespace and name.

Fulfils `AgentAuthenticator` of `tunnel.interfaces` by shape. This room does not know `tunnel`, so the exception
that means "refused" is handed in: `cli` passes `AuthenticationRefused`, everyone else gets `TokenRefused`.
The texts are upstream's; they travel to the agent as the gRPC status message.
"""

import json
import logging
from collections.abc import Callable
from typing import Final

from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused, ClusterError

log: Final = logging.getLogger(__name__)

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenRefused(Exception):
    """The token is not good for this tunnel; `str()` is the text for the agent."""


class TokenReviewer:
    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        service_account: str,
        audience: str,
        refusal: Callable[[str], Exception] = TokenRefused,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._service_account = service_account
        self._audience = audience
        self._refusal = refusal

    async def authenticate(self, token: str) -> None:
        """Return for a good token, in the client's time limit. Raises TokenRefused, or what `refusal` makes of it."""
        fault = await self._fault(token)
        if fault is not None:
            raise self._refusal(f"Failed to validate authentication token, err:{fault}")

    async def _fault(self, token: str) -> str | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            answer = await self._client.request("POST", PATH, body=review)
        except ClusterError as error:
            # The agent gets one line; what to do about it is for the operator of the server.
            log.warning("token review failed: %s", error.brief)
            return f"Failed to authenticate request. err:{_short(error)}"
        fault = self._status_fault(answer.get("status") or {})
        return None if fault is None else f"lookup failed: {fault}"

    def _status_fault(self, status: Json) -> str | None:
        """Say what is wrong with the review's outcome, checks in upstream's order."""
        if status.get("error"):
            return str(status["error"])
        if status.get("authenticated") is not True:
            return "service account jwt not valid"
        parts = str((status.get("user") or {}).get("username", "")).split(":")
        if len(parts) != 4:
            return "unexpected username format"
        if parts[:2] != ["system", "serviceaccount"]:
            return "username returned is not a service account"
        namespace, service_account = parts[2:]
        if namespace != self._namespace:
            return f"incoming request from {_quoted(namespace)} namespace. Expected {_quoted(self._namespace)}"
        if service_account != self._service_account:
            wanted = _quoted(self._service_account)
            return f"incoming request from {_quoted(service_account)} service account. Expected {wanted}"
        return None


def _short(error: ClusterError) -> str:
    return error.message if isinstance(error, ApiRefused) else f"{error.what}: {error.why}"


def _quoted(text: str) -> str:
    """Quote as Go's %q does for the names that Kubernetes allows."""
    return json.dumps(text, ensure_ascii=False)
