"""Applies rendered objects to one cluster, in order, and tells what became of each.

A refusal does not stop the others, and none is forgotten; only an API that does not answer ends it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from umbilical.cluster.apply import Applier, Change, Document, KindUnknown
from umbilical.cluster.client import make_client
from umbilical.fault import ApiRefused
from umbilical.hosted.access import BURST, REQUESTS_PER_SECOND


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
    Change.CREATED: Outcome.CREATED,
    Change.CHANGED: Outcome.CHANGED,
    Change.UNCHANGED: Outcome.UNCHANGED,
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
    documents: Sequence[Document],
    options: ApplyOptions,
    tell: Callable[[Step], None],
) -> list[Step]:
    """Apply all, in the order given.

    Raises:
        ClusterError: no usable kubeconfig, or the API does not answer.
    """
    coming = {document.name for document in documents if document.kind == "Namespace"}
    steps: list[Step] = []
    async with make_client(kubeconfig, qps=REQUESTS_PER_SECOND, burst=BURST) as client:
        applier = Applier(client, dry_run=options.is_dry_run, force=options.force)
        for document in documents:
            absent = coming if options.is_dry_run else set()
            steps.append(await _step(cluster, applier, document, absent))
            tell(steps[-1])
    return steps


async def _step(cluster: str, applier: Applier, document: Document, coming: set[str]) -> Step:
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
