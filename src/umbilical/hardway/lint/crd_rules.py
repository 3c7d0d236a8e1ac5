"""Rules about custom resource definitions: which come before operators, one of each, before their objects."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from umbilical.hardway.artifacts import crds, layout
from umbilical.hardway.lint.applied import Applied, applied, entries, text
from umbilical.hardway.lint.facts import Facts, Unreadable
from umbilical.hardway.lint.release_facts import release_version
from umbilical.hardway.lint.rule import OPENSHIFT, Rule, Severity, rule

BUILT_IN_GROUPS: Final = ("", "apps", "autoscaling", "batch", "policy")
VERSION_OPERATOR: Final = "cluster-version-operator"


def definitions(facts: Facts) -> list[Applied]:
    return [one for one in applied(facts) if one.kind == crds.KIND]


def version_operator_faults(facts: Facts) -> Iterator[str]:
    """Look for a version operator that would start before objects are there.

    Raises:
        Unreadable: there is none that waits.
    """
    node = facts.cluster.bootstrap.id
    for asset in facts.below(f"{layout.STATIC_PODS}/{node}"):
        if asset.path.endswith(".yaml") and any(_is_operator(one) for one in facts.documents(asset.path)):
            yield f"{asset.path}: the kubelet would start the version operator at once, before anything is applied"
    waiting = [asset.path for asset in facts.below(f"{layout.LATE_STATIC_PODS}/{node}")]
    if not any(_is_operator(one) for path in waiting for one in facts.documents(path)):
        raise Unreadable(f"no version operator waits in {layout.LATE_STATIC_PODS}/{node}")


def _is_operator(document: dict[str, object]) -> bool:
    names = [text(document, "metadata", "labels", "k8s-app"), text(document, "metadata", "name")]
    containers = [text(one, "name") for one in entries(document, "spec", "containers")]
    return any(VERSION_OPERATOR in name for name in (*names, *containers))


def _order(facts: Facts) -> Iterator[str]:
    served = {}
    for one in definitions(facts):
        for version in entries(one.value, "spec", "versions"):
            key = (text(one.value, "spec", "group"), text(version, "name"), text(one.value, "spec", "names", "kind"))
            served[key] = one
    for one in applied(facts):
        if one.group in BUILT_IN_GROUPS or one.group.endswith(".k8s.io"):
            continue
        crd = served.get((one.group, one.version, one.kind))
        if crd is None:
            yield f"{one.path}: nothing defines {one.kind} of {one.group}/{one.version}"
        elif crd.place > one.place:
            yield f"{one.path}: {one} comes before its definition {crd.path}"
    yield from version_operator_faults(facts)


def _variants(facts: Facts) -> Iterator[str]:
    found = definitions(facts)
    for name, count in sorted(Counter(one.name for one in found).items()):
        if count > 1:
            yield f"{name} is defined {count} times"
    for one in found:
        if not crds.is_included(dict(one.value)):
            yield f"{one.path}: this variant is for another profile or feature set"


def _counts(facts: Facts) -> Iterator[str]:
    line = crds.release_line(release_version(facts))
    found = definitions(facts)
    required = sum(crds.is_required(dict(one.value)) for one in found)
    if required != crds.REQUIRED_COUNTS[line]:
        yield f"{required} definitions are marked as needed for the bootstrap, {line} has {crds.REQUIRED_COUNTS[line]}"
    missing = sorted(set(crds.VERSION_OPERATOR) - {one.name for one in found})
    if missing:
        yield f"{', '.join(missing)} is missing, which the version operator itself needs"


def _known_line(facts: Facts) -> str | None:
    try:
        line = crds.release_line(release_version(facts))
    except Unreadable:
        return None
    return None if line in crds.REQUIRED_COUNTS else f"nobody has counted the definitions of {line}"


RULES: Final[tuple[Rule, ...]] = (
    rule(
        "CRD-01",
        Severity.ERROR,
        OPENSHIFT,
        "every object's definition is applied before it, and the version operator starts last",
        'An object without its definition is refused ("no matches for kind"), and the version operator needs both.',
        "apply the definition out of the release's manifests first, and keep the operator's pod in late-static-pods",
        _order,
    ),
    rule(
        "CRD-02",
        Severity.ERROR,
        OPENSHIFT,
        "each definition is there once, in the variant of this profile and feature set",
        "A release holds several variants of one definition. Applied one after the other, the technology preview's "
        "comes last by its name and stays.",
        "choose by the annotations include.release.openshift.io/... and release.openshift.io/feature-set",
        _variants,
    ),
    rule(
        "CRD-03",
        Severity.WARNING,
        OPENSHIFT,
        "there are as many definitions as a release of this line has",
        "Another number means that the release was extracted in part, or that its annotations mean something new.",
        "extract the release again, or count: grep -l bootstrap-required *.crd.yaml",
        _counts,
        _known_line,
    ),
)
