"""Rules about all objects together: none twice, none before its namespace, no role that nobody knows, no error lost."""

import re
from collections.abc import Iterator
from typing import Final

from umbilical.fault import IgnitionError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.applied import Applied, applied, text
from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.lint.release_facts import SCRIPT
from umbilical.hardway.lint.rule import BOTH, Rule, Severity, rule

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
"""Cluster roles that kube-apiserver makes itself; controllers' own are `system:controller:...`."""
OPENSHIFT_ROLES: Final = frozenset({"system:node-admin", "system:node-reader", "system:master", "cluster-reader"})
"""Those that OpenShift's kube-apiserver makes besides."""
_GROUPED: Final = ("Role", "ClusterRole")
_IGNORED: Final = re.compile(r"\|\|\s*(?:true|:)(?:\s|;|\)|$)|;\s*true\s*$|^\s*set \+e\b|^\s*set \+o errexit\b")


def _whole(facts: Facts) -> Iterator[str]:
    """Judge the list as a whole."""
    seen: dict[tuple[str, str, str, str], Applied] = {}
    for one in applied(facts):
        if not (text(one.value, "apiVersion") and one.kind and one.name):
            yield f"{one.path}: an object without apiVersion, kind or name"
        elif one.key in seen:
            yield f"{one.path}: {one} stands in {seen[one.key].path} already"
        seen.setdefault(one.key, one)
    yield from _places(facts)
    yield from _roles(facts)


def _places(facts: Facts) -> Iterator[str]:
    known = set(BUILT_IN_NAMESPACES)
    for one in applied(facts):
        if one.kind == "Namespace":
            known.add(one.name)
        elif one.namespace and one.namespace not in known:
            yield f"{one.path}: namespace {one.namespace} of {one} is not there yet"


def _roles(facts: Facts) -> Iterator[str]:
    known = {(one.kind, one.namespace, one.name) for one in applied(facts) if one.kind in _GROUPED}
    for one in applied(facts):
        if one.kind not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        kind, name = text(one.value, "roleRef", "kind"), text(one.value, "roleRef", "name")
        namespace = one.namespace if kind == "Role" else ""
        if (kind, namespace, name) not in known and not _is_built_in(facts, kind, name):
            yield f"{one.path}: {one} refers to {kind} {name}, which neither Kubernetes nor a manifest has"


def _is_built_in(facts: Facts, kind: str, name: str) -> bool:
    if kind != "ClusterRole":
        return False
    roles = BUILT_IN_ROLES | OPENSHIFT_ROLES if facts.cluster.is_openshift else BUILT_IN_ROLES
    return name in roles or name.startswith("system:controller:")


def _ignored(facts: Facts) -> Iterator[str]:
    for where, script in _scripts(facts):
        for number, line in enumerate(script.splitlines(), 1):
            if _IGNORED.search(line.partition(" #")[0]):
                yield f"{where}, line {number}: what goes wrong here is ignored: {line.strip()[:80]}"


def _scripts(facts: Facts) -> Iterator[tuple[str, str]]:
    """Everything that acts while the cluster is built: scripts of nodes, and the machine-config commands."""
    if SCRIPT in facts.assets:
        yield SCRIPT, facts.text(SCRIPT)
    for node in facts.cluster.nodes:
        # What a rendered base of the release brings besides is not ours to judge.
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


RULES: Final[tuple[Rule, ...]] = (
    rule(
        "MAN-01",
        Severity.ERROR,
        BOTH,
        "every object is there once, after its namespace, and refers to roles that exist",
        "What is there twice is applied by chance in one of its forms; an object before its namespace is refused; a "
        "binding to a role that does not exist allows nothing, without a word.",
        "give each object one file, put its namespace before it, and bind to roles that Kubernetes or a manifest has",
        _whole,
    ),
    rule(
        "MAN-02",
        Severity.ERROR,
        BOTH,
        "no script that builds the cluster ignores what goes wrong",
        "Behind `|| true` an object that was refused looks like one that was created; it is missed days later.",
        "let the script fail, or wait for the fact that it needs",
        _ignored,
    ),
)
