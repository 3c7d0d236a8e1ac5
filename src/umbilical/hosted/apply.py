"""Applies rendered files to one cluster, in order, with a result for each object; and copies the sidecars' token from
the hosted cluster, which creates it, to the control-plane namespace.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.apply import AppliedChange, Applier, KindUnknown, ManifestDocument, read_document
from umbilical.cluster.client import ClientClock, Json, make_client
from umbilical.cluster.objects import SECRET
from umbilical.fault import ApiRefused, HostedError
from umbilical.hosted.access import BURST, REQUESTS_PER_SECOND
from umbilical.hosted.objects import names
from umbilical.hosted.objects.sidecars import ACCOUNT, KUBECONFIG_MAP, TOKEN_SECRET
from umbilical.manifests.objects import manifest


class ApplyOutcome(Enum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    NOT_COPIED = "not copied"
    """The source in the other cluster is missing."""
    UNCHECKED = "not checked"
    """A dry run does not create the namespace or the token that the object needs."""

    @property
    def is_finding(self) -> bool:
        return self in (ApplyOutcome.REFUSED, ApplyOutcome.NOT_COPIED)


_OF_CHANGE = {
    AppliedChange.CREATED: ApplyOutcome.CREATED,
    AppliedChange.CHANGED: ApplyOutcome.CHANGED,
    AppliedChange.UNCHANGED: ApplyOutcome.UNCHANGED,
}


@dataclass(frozen=True)
class ApplyResult:
    """The result for one object."""

    cluster: str
    subject: str
    outcome: ApplyOutcome
    detail: str = ""
    remedy: str = ""


Report = Callable[[ApplyResult], None]


@dataclass(frozen=True)
class ApplyOptions:
    is_dry_run: bool = False
    """The API validates everything and stores nothing."""
    force: bool = False
    """Overwrite fields that another field manager owns."""


async def apply_documents(
    cluster: str,
    kubeconfig: Path,
    documents: Sequence[ManifestDocument],
    options: ApplyOptions,
    report: Report,
) -> list[ApplyResult]:
    """Apply all, in the order given. Raises ClusterError: the kubeconfig is invalid, or the API does not answer."""
    coming = {document.name for document in documents if document.kind == "Namespace"}
    results: list[ApplyResult] = []
    async with make_client(kubeconfig, qps=REQUESTS_PER_SECOND, burst=BURST) as client:
        applier = Applier(client, dry_run=options.is_dry_run, force=options.force)
        for document in documents:
            absent = coming if options.is_dry_run else set()
            results.append(await _apply(cluster, applier, document, absent))
            report(results[-1])
    return results


async def _apply(cluster: str, applier: Applier, document: ManifestDocument, coming: set[str]) -> ApplyResult:
    subject, namespace = str(document), document.namespace
    try:
        change = await applier.apply(document)
    except ApiRefused as refusal:
        if refusal.status == 404 and namespace in coming:
            return ApplyResult(cluster, subject, ApplyOutcome.UNCHECKED, f"namespace {namespace} does not exist yet")
        return ApplyResult(cluster, subject, ApplyOutcome.REFUSED, refusal_words(refusal), _remedy(refusal))
    except KindUnknown as fault:
        return ApplyResult(cluster, subject, ApplyOutcome.REFUSED, fault.why, fault.remedy)
    return ApplyResult(cluster, subject, _OF_CHANGE[change])


def refusal_words(refusal: ApiRefused) -> str:
    return f"HTTP {refusal.status} {refusal.reason}: {refusal.message}"


def _remedy(refusal: ApiRefused) -> str:
    if refusal.status == 409:
        return "another field manager owns these fields; to overwrite them: --force-conflicts"
    if refusal.status == 404:
        return "create its namespace, or render the directory again"
    return refusal.remedy


_RENDER: Final = "umbilical hosted render --spec FILE --out DIR --overwrite"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
# Dependencies first: a pod must not start before its RBAC, Secrets and ConfigMaps exist.
_ORDER: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "Service",
    "Endpoints",
    "EndpointSlice",
    "NetworkPolicy",
    "Route",
    "PodDisruptionBudget",
    "Deployment",
    "DaemonSet",
    "StatefulSet",
    "Pod",
)
_NO_OBJECT: Final = frozenset({"Kustomization", "Component"})
"""Kinds for kustomize, which no API serves."""


def read_manifests(folder: Path) -> list[ManifestDocument]:
    """Read a cluster's objects in the order to apply them. Raises HostedError: there is none, or a file is invalid."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
        found = [document for path in files for document in _read(path)]
    except OSError as error:
        why = error.strerror or str(error)
        raise HostedError("UMB565", f"could not read {error.filename or folder}", why, f"ls -lR {folder}") from None
    if not found:
        why = "it has no file with a Kubernetes object"
        raise HostedError("UMB565", f"found nothing to apply in {folder}", why, _RENDER)
    return sorted(found, key=lambda document: _ORDER.index(document.kind) if document.kind in _ORDER else len(_ORDER))


def _read(path: Path) -> Iterator[ManifestDocument]:
    for content in _contents(path):
        if isinstance(content, dict) and content.get("kind") in _NO_OBJECT:
            continue
        document = read_document(content)
        if document is None:
            why = "an object in it has no apiVersion, kind or metadata.name"
            raise HostedError("UMB565", f"{path} is not a manifest", why, _RENDER)
        yield document


def _contents(path: Path) -> Iterator[Any]:
    import yaml

    try:
        contents = list(yaml.safe_load_all(path.read_bytes()))
    except yaml.YAMLError as error:
        # PyYAML's message quotes the invalid line, which may be part of a Secret.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        why = "it is not YAML" if line is None else f"line {line + 1} is not YAML"
        raise HostedError("UMB565", f"{path} is not a manifest", why, _RENDER) from None
    for content in contents:
        if isinstance(content, dict) and content.get("kind") == "List":
            yield from content.get("items") or ()
        elif content is not None:
            yield content


SOURCE: Final = f"Secret {names.HOSTED_NAMESPACE}/{TOKEN_SECRET}"
KEYS: Final = ("token", "ca.crt")
"""Files that the sidecars' kubeconfig refers to."""
POLL_SECONDS: Final = 0.5


class TokenMissing(Exception):
    """There is no token to copy. Holds no content of the Secret."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why: Final = why
        self.remedy: Final = remedy


@dataclass(frozen=True)
class TokenWait:
    seconds: float
    waits: Callable[[], None] = lambda: None
    """Called once, if the token does not exist at first."""
    clock: ClientClock = field(default_factory=ClientClock)


@dataclass(frozen=True)
class TokenCopy:
    """Target and labels of the copy."""

    cluster: str
    namespace: str
    labels: Mapping[str, str]

    @property
    def subject(self) -> str:
        return f"Secret {self.namespace}/{TOKEN_SECRET}"

    def document(self, data: Mapping[str, str]) -> ManifestDocument:
        """`data` in base64, as in the API. Type Opaque: this cluster does not have the service account."""
        head = {"name": TOKEN_SECRET, "namespace": self.namespace, "labels": dict(self.labels)}
        content = manifest("v1", "Secret", head, type="Opaque", data=dict(data))
        return ManifestDocument("v1", "Secret", TOKEN_SECRET, self.namespace, content)


def planned_copy(cluster: str, documents: Iterable[ManifestDocument]) -> TokenCopy | None:
    """Return the copy's target: the namespace of the kubeconfig that needs it, if there is one."""
    for document in documents:
        if document.kind == "ConfigMap" and document.name == KUBECONFIG_MAP and document.namespace:
            labels = objects.field(document.content, "metadata", "labels")
            return TokenCopy(cluster, document.namespace, labels if isinstance(labels, dict) else {})
    return None


def has_source(documents: Iterable[ManifestDocument]) -> bool:
    """Return whether the token to copy is among the hosted cluster's objects."""
    return any(str(document) == SOURCE for document in documents)


async def copy_token(
    copy: TokenCopy,
    hosted: Path,
    management: Path,
    options: ApplyOptions,
    report: Report,
    patience: TokenWait,
) -> ApplyResult:
    """Wait for the hosted cluster to create the token, and copy it. Raises ClusterError: an API does not answer."""
    if options.is_dry_run:
        return _reported(copy, report, ApplyOutcome.UNCHECKED, "the token is created after its Secret is applied")
    try:
        data = await _token(hosted, patience)
    except TokenMissing as missing:
        return _reported(copy, report, ApplyOutcome.NOT_COPIED, missing.why, missing.remedy)
    except ApiRefused as refusal:
        return _reported(copy, report, ApplyOutcome.NOT_COPIED, f"{SOURCE}: {refusal_words(refusal)}", refusal.remedy)
    (result,) = await apply_documents(copy.cluster, management, [copy.document(data)], options, report)
    return result


def _reported(copy: TokenCopy, report: Report, outcome: ApplyOutcome, why: str, remedy: str = "") -> ApplyResult:
    result = ApplyResult(copy.cluster, copy.subject, outcome, why, remedy)
    report(result)
    return result


async def _token(kubeconfig: Path, patience: TokenWait) -> dict[str, str]:
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
        why = f"{SOURCE} does not exist in the hosted cluster, which deletes it if the service account is missing"
        raise TokenMissing(why, f"kubectl -n {names.HOSTED_NAMESPACE} get serviceaccount {ACCOUNT}; then apply again")
    data = {key: objects.field(secret, "data", key) for key in KEYS}
    found = {key: value for key, value in data.items() if isinstance(value, str) and value}
    if "token" not in found:
        why = f"timed out after {seconds:g} s waiting for the hosted cluster to write a token to {SOURCE}"
        raise TokenMissing(why, "check that its kube-controller-manager runs, which creates tokens; then apply again")
    if len(found) < len(KEYS):
        why = f"{SOURCE} of the hosted cluster has a token but no ca.crt"
        raise TokenMissing(why, "set --root-ca-file on its kube-controller-manager; then apply again")
    return found
