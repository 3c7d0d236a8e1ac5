"""Rules about all applied objects together, and about CRDs.

They check for duplicates, the order of namespaces, CRDs and objects, unknown roles, and ignored errors in scripts.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import crds, layout
from umbilical.hardway.lint.applied import SCRIPT, AppliedObject, applied, entries, release_version, text
from umbilical.hardway.lint.facts import OPENSHIFT, LintFacts, LintRule, RuleSeverity, Unreadable, rule

BUILT_IN_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
BUILT_IN_ROLES: Final = frozenset(
    {"cluster-admin", "admin", "edit", "view", "system:auth-delegator", "system:basic-user", "system:discovery"}
    | {"system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view", "system:heapster"}
    | {"system:kube-aggregator", "system:kube-controller-manager", "system:kube-dns", "system:kube-scheduler"}
    | {"system:kubelet-api-admin", "system:monitoring", "system:node", "system:node-bootstrapper"}
    | {"system:node-problem-detector", "system:node-proxier", "system:persistent-volume-provisioner"}
    | {"system:public-info-viewer", "system:service-account-issuer-discovery", "system:volume-scheduler"}
    | {"system:certificates.k8s.io:certificatesigningrequests:nodeclient"}
    | {"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"}
)
"""Cluster roles that kube-apiserver creates; those of controllers are `system:controller:...`."""
OPENSHIFT_ROLES: Final = frozenset({"system:node-admin", "system:node-reader", "system:master", "cluster-reader"})
"""Additional cluster roles that OpenShift's kube-apiserver creates."""
_GROUPED: Final = ("Role", "ClusterRole")
_IGNORED: Final = re.compile(r"\|\|\s*(?:true|:)(?:\s|;|\)|$)|;\s*true\s*$|^\s*set \+e\b|^\s*set \+o errexit\b")


def _whole(facts: LintFacts) -> Iterator[str]:
    """Find duplicate and incomplete objects, missing namespaces and unknown roles."""
    seen: dict[tuple[str, str, str, str], AppliedObject] = {}
    for one in applied(facts):
        if not (text(one.value, "apiVersion") and one.kind and one.name):
            yield f"{one.path}: an object without apiVersion, kind or name"
        elif one.key in seen:
            yield f"{one.path}: {one} is already in {seen[one.key].path}"
        seen.setdefault(one.key, one)
    yield from _places(facts)
    yield from _roles(facts)


def _places(facts: LintFacts) -> Iterator[str]:
    known = set(BUILT_IN_NAMESPACES)
    for one in applied(facts):
        if one.kind == "Namespace":
            known.add(one.name)
        elif one.namespace and one.namespace not in known:
            yield f"{one.path}: namespace {one.namespace} of {one} does not exist yet"


def _roles(facts: LintFacts) -> Iterator[str]:
    known = {(one.kind, one.namespace, one.name) for one in applied(facts) if one.kind in _GROUPED}
    for one in applied(facts):
        if one.kind not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        kind, name = text(one.value, "roleRef", "kind"), text(one.value, "roleRef", "name")
        namespace = one.namespace if kind == "Role" else ""
        if (kind, namespace, name) not in known and not _is_built_in(facts, kind, name):
            yield f"{one.path}: {one} refers to {kind} {name}, which does not exist"


def _is_built_in(facts: LintFacts, kind: str, name: str) -> bool:
    if kind != "ClusterRole":
        return False
    roles = BUILT_IN_ROLES | OPENSHIFT_ROLES if facts.cluster.is_openshift else BUILT_IN_ROLES
    return name in roles or name.startswith("system:controller:")


def _ignored(facts: LintFacts) -> Iterator[str]:
    for where, script in _scripts(facts):
        for number, line in enumerate(script.splitlines(), 1):
            if _IGNORED.search(line.partition(" #")[0]):
                yield f"{where}, line {number} ignores errors: {line.strip()[:80]}"


def _scripts(facts: LintFacts) -> Iterator[tuple[str, str]]:
    """List the scripts that build the cluster: on the bootstrap node, and the machine-config script."""
    if SCRIPT in facts.assets:
        yield SCRIPT, facts.text(SCRIPT)
    for node in facts.cluster.nodes:
        # Other nodes may have scripts of the release's rendered base.
        path = layout.ignition(node)
        if node is not facts.cluster.bootstrap or path not in facts.assets:
            continue
        for file in facts.ignition(node).files:
            try:
                content = file.content()
            except IgnitionError:
                continue
            if content.startswith(b"#!") and b"sh" in content.partition(b"\n")[0]:
                yield f"{path}: {file.path}", content.decode(errors="replace")


BUILT_IN_GROUPS: Final = ("", "apps", "autoscaling", "batch", "policy")
VERSION_OPERATOR: Final = "cluster-version-operator"


def definitions(facts: LintFacts) -> list[AppliedObject]:
    return [one for one in applied(facts) if one.kind == crds.KIND]


def version_operator_faults(facts: LintFacts) -> Iterator[str]:
    """Find a version operator that starts before objects are applied. Raises Unreadable: there is no late one."""
    node = facts.cluster.bootstrap.id
    for asset in facts.below(f"{layout.STATIC_PODS}/{node}"):
        if asset.path.endswith(".yaml") and any(_is_operator(one) for one in facts.documents(asset.path)):
            yield f"{asset.path}: the kubelet would start the version operator before objects are applied"
    waiting = [asset.path for asset in facts.below(f"{layout.LATE_STATIC_PODS}/{node}")]
    if not any(_is_operator(one) for path in waiting for one in facts.documents(path)):
        raise Unreadable(f"there is no version operator in {layout.LATE_STATIC_PODS}/{node}")


def _is_operator(document: dict[str, object]) -> bool:
    names = [text(document, "metadata", "labels", "k8s-app"), text(document, "metadata", "name")]
    containers = [text(one, "name") for one in entries(document, "spec", "containers")]
    return any(VERSION_OPERATOR in name for name in (*names, *containers))


def _order(facts: LintFacts) -> Iterator[str]:
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
            yield f"{one.path}: there is no CRD for {one.kind} of {one.group}/{one.version}"
        elif crd.place > one.place:
            yield f"{one.path}: {one} comes before its CRD {crd.path}"
    yield from version_operator_faults(facts)


def _variants(facts: LintFacts) -> Iterator[str]:
    found = definitions(facts)
    for name, count in sorted(Counter(one.name for one in found).items()):
        if count > 1:
            yield f"there are {count} CRDs {name}"
    for one in found:
        if not crds.is_included(dict(one.value)):
            yield f"{one.path}: this variant is for another profile or feature set"


def _counts(facts: LintFacts) -> Iterator[str]:
    line = crds.release_line(release_version(facts))
    found = definitions(facts)
    required = sum(crds.is_required(dict(one.value)) for one in found)
    if required != crds.REQUIRED_COUNTS[line]:
        yield f"{required} CRDs are marked as required for the bootstrap, {line} has {crds.REQUIRED_COUNTS[line]}"
    missing = sorted(set(crds.VERSION_OPERATOR) - {one.name for one in found})
    if missing:
        yield f"{', '.join(missing)} is missing, which the version operator needs"


def _known_line(facts: LintFacts) -> str | None:
    try:
        line = crds.release_line(release_version(facts))
    except Unreadable:
        return None
    return None if line in crds.REQUIRED_COUNTS else f"the number of CRDs in {line} is unknown"


RULES: Final[tuple[LintRule, ...]] = (
    rule(
        "CRD-01",
        "every object's CRD is applied before it, and the version operator starts last",
        'The API rejects an object without its CRD ("no matches for kind"), and the version operator needs both.',
        "apply the CRD from the release's manifests first, and keep the operator's pod in late-static-pods",
        _order,
        profiles=OPENSHIFT,
    ),
    rule(
        "CRD-02",
        "each CRD exists once, in the variant of this cluster profile and feature set",
        "A release contains several variants of a CRD. If all are applied, the technology preview's variant comes last "
        "by name and remains.",
        "choose by the annotations include.release.openshift.io/... and release.openshift.io/feature-set",
        _variants,
        profiles=OPENSHIFT,
    ),
    rule(
        "CRD-03",
        "the number of CRDs is that of this release line",
        "Another number means that the release was extracted only in part, or that its annotations have changed.",
        "extract the release again, or count: grep -l bootstrap-required *.crd.yaml",
        _counts,
        _known_line,
        profiles=OPENSHIFT,
        severity=RuleSeverity.WARNING,
    ),
    rule(
        "MAN-01",
        "every object exists once, after its namespace, and refers to existing roles",
        "Of two objects with one name only the last remains. The API rejects an object if its namespace is missing. A "
        "binding to a missing role allows nothing, without an error.",
        "put each object into one file, its namespace before it, and bind to roles of Kubernetes or of a manifest",
        _whole,
    ),
    rule(
        "MAN-02",
        "no script that builds the cluster ignores errors",
        "With `|| true` a rejected object looks like a created one, and its absence is noticed days later.",
        "let the script fail, or wait for the condition that it needs",
        _ignored,
    ),
)
