"""Rendered files back as objects, applied to one cluster in order, and what became of each; and the sidecars' token,
from the hosted cluster, whose controller makes it, to the control-plane namespace.
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


class Outcome(Enum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    NOT_COPIED = "not copied"
    """What is to be copied from the other cluster is not there."""
    UNCHECKED = "not checked"
    """A dry run cannot: the namespace would be made by the real one."""

    @property
    def is_finding(self) -> bool:
        return self in (Outcome.REFUSED, Outcome.NOT_COPIED)


_OF_CHANGE = {
    AppliedChange.CREATED: Outcome.CREATED,
    AppliedChange.CHANGED: Outcome.CHANGED,
    AppliedChange.UNCHANGED: Outcome.UNCHANGED,
}


@dataclass(frozen=True)
class Step:
    """What became of one object."""

    cluster: str
    subject: str
    outcome: Outcome
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class ApplyOptions:
    is_dry_run: bool = False
    """The API checks everything and stores nothing."""
    force: bool = False
    """Take fields over that another manager owns."""


async def apply_documents(
    cluster: str,
    kubeconfig: Path,
    documents: Sequence[ManifestDocument],
    options: ApplyOptions,
    tell: Callable[[Step], None],
) -> list[Step]:
    """Apply all, in the order given. Raises ClusterError: no usable kubeconfig, or the API does not answer."""
    coming = {document.name for document in documents if document.kind == "Namespace"}
    steps: list[Step] = []
    async with make_client(kubeconfig, qps=REQUESTS_PER_SECOND, burst=BURST) as client:
        applier = Applier(client, dry_run=options.is_dry_run, force=options.force)
        for document in documents:
            absent = coming if options.is_dry_run else set()
            steps.append(await _step(cluster, applier, document, absent))
            tell(steps[-1])
    return steps


async def _step(cluster: str, applier: Applier, document: ManifestDocument, coming: set[str]) -> Step:
    try:
        change = await applier.apply(document)
    except ApiRefused as refusal:
        if refusal.status == 404 and document.namespace in coming:
            return Step(cluster, str(document), Outcome.UNCHECKED, f"namespace {document.namespace} is not there yet")
        return Step(cluster, str(document), Outcome.REFUSED, refusal_words(refusal), _remedy(refusal))
    except KindUnknown as fault:
        return Step(cluster, str(document), Outcome.REFUSED, fault.why, fault.remedy)
    return Step(cluster, str(document), _OF_CHANGE[change])


def refusal_words(refusal: ApiRefused) -> str:
    return f"HTTP {refusal.status} {refusal.reason}: {refusal.message}"


def _remedy(refusal: ApiRefused) -> str:
    if refusal.status == 409:
        return "another manager set these fields: --force-conflicts takes them over"
    if refusal.status == 404:
        return "make the namespace that it names, or render the directory again"
    return refusal.remedy


_SUFFIXES: Final = (".yaml", ".yml", ".json")
# Whom others lean on comes first: a pod must not start before its rights, keys and settings are there.
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
"""Kinds that kustomize reads and no API serves."""


def read_manifests(folder: Path) -> list[ManifestDocument]:
    """Read a cluster's objects in the order to apply them. Raises HostedError: there is none, or an unusable file."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
        found = [document for path in files for document in _read(path)]
    except OSError as error:
        why = error.strerror or str(error)
        raise HostedError("UMB565", f"cannot read {error.filename or folder}", why, f"ls -lR {folder}") from None
    if not found:
        why = "there is no file with a Kubernetes object in it"
        raise HostedError("UMB565", f"nothing to apply in {folder}", why, "umbilical hosted render --help")
    return sorted(found, key=lambda document: _ORDER.index(document.kind) if document.kind in _ORDER else len(_ORDER))


def _read(path: Path) -> Iterator[ManifestDocument]:
    for content in _contents(path):
        if isinstance(content, dict) and content.get("kind") in _NO_OBJECT:
            continue
        document = read_document(content)
        if document is None:
            why = "something in it has no apiVersion, kind or metadata.name"
            raise HostedError("UMB565", f"{path} is no manifest", why, "render the directory again")
        yield document


def _contents(path: Path) -> Iterator[Any]:
    import yaml

    try:
        contents = list(yaml.safe_load_all(path.read_bytes()))
    except yaml.YAMLError as error:
        # PyYAML's message quotes the line at fault, which may be one of a Secret.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        why = "it is no YAML" if line is None else f"line {line + 1} is no YAML"
        raise HostedError("UMB565", f"{path} is no manifest", why, "render the directory again") from None
    for content in contents:
        if isinstance(content, dict) and content.get("kind") == "List":
            yield from content.get("items") or ()
        elif content is not None:
            yield content


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
    clock: ClientClock = field(default_factory=ClientClock)


@dataclass(frozen=True)
class TokenCopy:
    """Where the copy goes, and what it is labelled with."""

    cluster: str
    namespace: str
    labels: Mapping[str, str]

    @property
    def subject(self) -> str:
        return f"Secret {self.namespace}/{TOKEN_SECRET}"

    def document(self, data: Mapping[str, str]) -> ManifestDocument:
        """`data` as the API has it, in base64. Opaque: in this cluster there is no such account."""
        head = {"name": TOKEN_SECRET, "namespace": self.namespace, "labels": dict(self.labels)}
        content = manifest("v1", "Secret", head, type="Opaque", data=dict(data))
        return ManifestDocument("v1", "Secret", TOKEN_SECRET, self.namespace, content)


def planned_copy(cluster: str, documents: Iterable[ManifestDocument]) -> TokenCopy | None:
    """Read from the control plane's objects where a copy has to go: beside the kubeconfig that needs it, if any."""
    for document in documents:
        if document.kind == "ConfigMap" and document.name == KUBECONFIG_MAP and document.namespace:
            labels = objects.field(document.content, "metadata", "labels")
            return TokenCopy(cluster, document.namespace, labels if isinstance(labels, dict) else {})
    return None


def has_source(documents: Iterable[ManifestDocument]) -> bool:
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
    """Copy the token, once the hosted cluster has made it. Raises ClusterError: an API does not answer."""
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
