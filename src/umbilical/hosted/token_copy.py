"""The sidecars' token, from the hosted cluster, whose controller makes it, to the control-plane namespace.

A token cannot be rendered: it is there a moment after its Secret was applied, and has to be waited for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.apply import Document
from umbilical.cluster.client import Json, make_client
from umbilical.cluster.clock import Clock
from umbilical.cluster.objects import SECRET
from umbilical.fault import ApiRefused
from umbilical.hosted.access import BURST, REQUESTS_PER_SECOND
from umbilical.hosted.apply import ApplyOptions, Outcome, Step, apply_documents, refusal_words
from umbilical.hosted.objects import names
from umbilical.hosted.objects.sidecar_access import ACCOUNT, KUBECONFIG_MAP, TOKEN_SECRET
from umbilical.manifests.objects import manifest

SOURCE: Final = f"Secret {names.HOSTED_NAMESPACE}/{TOKEN_SECRET}"
KEYS: Final = ("token", "ca.crt")
"""What the sidecars' kubeconfig names as files."""
POLL_SECONDS: Final = 0.5


class TokenMissing(Exception):
    """Why there is nothing to copy, and what to do about it; nothing of the Secret's content."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why: Final = why
        self.remedy: Final = remedy


@dataclass(frozen=True)
class Patience:
    seconds: float
    waits: Callable[[], None] = lambda: None
    """Called once, if the token is not there at first."""
    clock: Clock = field(default_factory=Clock)


@dataclass(frozen=True)
class TokenCopy:
    """Where the copy goes, and what it is labelled with."""

    cluster: str
    namespace: str
    labels: Mapping[str, str]

    @property
    def subject(self) -> str:
        return f"Secret {self.namespace}/{TOKEN_SECRET}"

    def document(self, data: Mapping[str, str]) -> Document:
        """`data` as the API has it, in base64. Opaque: in this cluster there is no such account."""
        head = {"name": TOKEN_SECRET, "namespace": self.namespace, "labels": dict(self.labels)}
        content = manifest("v1", "Secret", head, type="Opaque", data=dict(data))
        return Document("v1", "Secret", TOKEN_SECRET, self.namespace, content)


def planned_copy(cluster: str, documents: Iterable[Document]) -> TokenCopy | None:
    """Read from the control plane's objects where a copy has to go: beside the kubeconfig that needs it, if any."""
    for document in documents:
        if document.kind == "ConfigMap" and document.name == KUBECONFIG_MAP and document.namespace:
            labels = objects.field(document.content, "metadata", "labels")
            return TokenCopy(cluster, document.namespace, labels if isinstance(labels, dict) else {})
    return None


def has_source(documents: Iterable[Document]) -> bool:
    """Whether the hosted cluster's objects have a token to be copied among them."""
    return any(str(document) == SOURCE for document in documents)


async def copy_token(
    copy: TokenCopy,
    hosted: Path,
    management: Path,
    options: ApplyOptions,
    tell: Callable[[Step], None],
    patience: Patience,
) -> Step:
    """Copy the token, once the hosted cluster has made it.

    Raises:
        ClusterError: no usable kubeconfig, or an API does not answer.
    """
    if options.is_dry_run:
        return _told(copy, tell, Outcome.UNCHECKED, "the hosted cluster makes the token once its Secret is applied")
    try:
        data = await _token(hosted, patience)
    except TokenMissing as missing:
        return _told(copy, tell, Outcome.NOT_COPIED, missing.why, missing.remedy)
    except ApiRefused as refusal:
        return _told(copy, tell, Outcome.NOT_COPIED, f"{SOURCE}: {refusal_words(refusal)}", refusal.remedy)
    (step,) = await apply_documents(copy.cluster, management, [copy.document(data)], options, tell)
    return step


def _told(copy: TokenCopy, tell: Callable[[Step], None], outcome: Outcome, why: str, remedy: str = "") -> Step:
    step = Step(copy.cluster, copy.subject, outcome, why, remedy)
    tell(step)
    return step


async def _token(kubeconfig: Path, patience: Patience) -> dict[str, str]:
    clock, seconds = patience.clock, patience.seconds
    begin = clock.monotonic()
    waits = False
    async with make_client(kubeconfig, qps=REQUESTS_PER_SECOND, burst=BURST) as client:
        while True:
            try:
                return _content(await objects.get(client, SECRET, TOKEN_SECRET, names.HOSTED_NAMESPACE), seconds)
            except TokenMissing:
                if clock.monotonic() >= begin + seconds:
                    raise
            if not waits:
                patience.waits()
                waits = True
            await clock.sleep(POLL_SECONDS)


def _content(secret: Json | None, seconds: float) -> dict[str, str]:
    if secret is None:
        why = f"there is no {SOURCE} in the hosted cluster, which removes one whose account is missing"
        raise TokenMissing(why, f"kubectl -n {names.HOSTED_NAMESPACE} get serviceaccount {ACCOUNT}; then apply again")
    data = {key: objects.field(secret, "data", key) for key in KEYS}
    found = {key: value for key, value in data.items() if isinstance(value, str) and value}
    if "token" not in found:
        why = f"the hosted cluster has put no token into {SOURCE} within {seconds:g} s"
        raise TokenMissing(why, "see that its kube-controller-manager runs, which makes tokens; then apply again")
    if len(found) < len(KEYS):
        why = f"{SOURCE} of the hosted cluster has a token and no ca.crt"
        raise TokenMissing(why, "give its kube-controller-manager --root-ca-file; then apply again")
    return found
