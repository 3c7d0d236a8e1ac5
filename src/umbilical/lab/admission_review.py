"""AdmissionReview v1: the question that kube-apiserver asks a webhook, and how it reads the answer."""

import json
from collections.abc import Mapping
from typing import Any, Final

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
# Kinds whose plural is not the lower-case kind with an s; others of the core that a user may try are regular.
_IRREGULAR_PLURALS: Final = {"Endpoints": "endpoints", "Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}


class AnswerRefused(Exception):
    """The webhook answered something that kube-apiserver does not take for an answer."""


def review_of(value: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Ask whether this object may be created."""
    group, _, version = str(value.get("apiVersion", "v1")).rpartition("/")
    kind = str(value.get("kind", ""))
    metadata = value.get("metadata") or {}
    resource = {"group": group, "version": version, "resource": _plural(kind)}
    kind_of = {"group": group, "version": version, "kind": kind}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "request": {
            "uid": uid,
            "kind": kind_of,
            "resource": resource,
            "requestKind": kind_of,
            "requestResource": resource,
            "name": metadata.get("name", ""),
            "namespace": metadata.get("namespace", ""),
            "operation": "CREATE",
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
            "object": dict(value),
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }


def verdict_of(body: bytes, uid: str) -> tuple[bool, str]:
    """Return whether the object may be created, and the webhook's own words.

    Raises:
        AnswerRefused: it is no answer to this question.
    """
    response = _response(body)
    if response.get("uid") != uid:
        raise AnswerRefused(f"expected response.uid={json.dumps(uid)}, got {json.dumps(response.get('uid'))}")
    allowed = response.get("allowed")
    if not isinstance(allowed, bool):
        raise AnswerRefused("response.allowed is no boolean")
    status = response.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    return allowed, message if isinstance(message, str) else ""


def _response(body: bytes) -> dict[str, Any]:
    try:
        review = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerRefused("invalid character in the answer: it is no JSON") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        raise AnswerRefused(f"expected webhook response of {API_VERSION}, Kind={KIND}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise AnswerRefused("webhook response was absent")
    return response


def _plural(kind: str) -> str:
    return _IRREGULAR_PLURALS.get(kind) or f"{kind.lower()}s"
