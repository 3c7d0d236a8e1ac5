"""Authenticates an agent by its service account token: the API server reviews it, we compare namespace and name.

Implements `AgentAuthenticator` of `tunnel.interfaces`. This room does not import `tunnel`, so the exception that means
"refused" is passed in: `cli` passes `AuthenticationRefused`, the default is `TokenRefused`.
The texts are upstream's; the agent gets them as the gRPC status message.
"""

import json
import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused, ClusterError

log: Final = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 1.0
"""Between lines about reviews that failed: any host may ask for one."""
PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"


class TokenRefused(Exception):
    """The token is not valid for this tunnel; `str()` is the text for the agent."""


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
        self._logged_at = float("-inf")
        self._not_logged = 0

    async def authenticate(self, token: str) -> None:
        """Return for a valid token, within the client's timeout. Raises TokenRefused, or the result of `refusal`."""
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
            self._log(error)
            return f"Failed to authenticate request. err:{_short(error)}"
        fault = self._status_fault(answer.get("status") or {})
        return None if fault is None else f"lookup failed: {fault}"

    def _log(self, error: ClusterError) -> None:
        """The agent gets one line; the remedy is for the operator of the server."""
        now = monotonic()
        if now - self._logged_at < REPEAT_SECONDS:
            self._not_logged += 1
            return
        more = f" ({self._not_logged:,} more since the last such line)" if self._not_logged else ""
        log.warning("token review failed: %s%s", error.brief, more)
        self._logged_at, self._not_logged = now, 0

    def _status_fault(self, status: Json) -> str | None:
        """Return why the review does not authenticate the agent; checks in upstream's order."""
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
    """Quote like Go's %q, for names that Kubernetes allows."""
    return json.dumps(text, ensure_ascii=False)
