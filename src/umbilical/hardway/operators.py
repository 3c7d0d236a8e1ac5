"""Conditions that OpenShift's operators report; its installer waits for the same ones."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import yaml

from umbilical.cluster import objects
from umbilical.cluster.client import Json
from umbilical.cluster.objects import ApiKind
from umbilical.hardway import kube
from umbilical.hardway.artifacts.crds import is_included
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition
from umbilical.host.waiting import NotYet

_OPERATOR_GROUP: Final = "/apis/operator.openshift.io/v1"
_CONFIG_GROUP: Final = "/apis/config.openshift.io/v1"
ETCD: Final = ApiKind("Etcd", _OPERATOR_GROUP, "etcds", is_namespaced=False)
CLUSTER_OPERATOR: Final = ApiKind("ClusterOperator", _CONFIG_GROUP, "clusteroperators", is_namespaced=False)
CLUSTER_VERSION: Final = ApiKind("ClusterVersion", _CONFIG_GROUP, "clusterversions", is_namespaced=False)
POOL: Final = ApiKind(
    "MachineConfigPool", "/apis/machineconfiguration.openshift.io/v1", "machineconfigpools", is_namespaced=False
)
REMOVED: Final = "EtcdBootstrapMemberRemoved"
STABLE: Final = timedelta(seconds=30)
"""How long an operator's conditions must be unchanged: they flap while it starts."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FIRST: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "network")
"""ClusterOperators without which masters get no pod network and no control plane."""
_PLANE: Final = ("kubeapiservers", "kubecontrollermanagers", "kubeschedulers")


def control_plane_conditions(site: Site) -> list[Condition]:
    """Return the conditions of a control plane on the masters, as cluster-bootstrap and etcd's operator check them."""
    return [_etcd_condition("EtcdRunningInCluster"), *map(_revision_condition, _PLANE)]


def removed_condition() -> Condition:
    return _etcd_condition(REMOVED)


def _etcd_condition(name: str) -> Condition:
    def probe(site: Site) -> str:
        found = kube.get(site, ETCD, "cluster")
        if found is None:
            raise NotYet("there is no Etcd `cluster`: the etcd operator's CRD or object is missing")
        status = kube.condition(found, name)
        if status != "True":
            raise NotYet(f"{name} is {status or 'not reported'}: {_message(found, name)}")
        return f"{name}=True"

    why = "the etcd operator adds and removes members; only its conditions show whether etcd has quorum"
    fix = "oc logs -n openshift-etcd-operator deploy/etcd-operator; compare etcd-signer with bootstrap's (PKI-10)"
    return Condition(f"etcd-{name}", f"the etcd operator reports {name}", why, fix, probe)


def _revision_condition(plural: str) -> Condition:
    def probe(site: Site) -> str:
        kind = ApiKind(plural, _OPERATOR_GROUP, plural, is_namespaced=False)
        found = kube.get(site, kind, "cluster")
        rows = objects.items(objects.field(found or {}, "status", "nodeStatuses"))
        ready = [row for row in rows if int(row.get("currentRevision") or 0) >= 1]
        needed = min(2, len(site.cluster.masters))
        if len(ready) < needed:
            raise NotYet(f"{len(ready)} of {needed} masters have a revision")
        return f"{len(ready)} masters"

    why = "those of the bootstrap node are stopped in the pivot"
    fix = f"oc get {plural}.operator.openshift.io cluster -o yaml; oc get pods -A | grep installer"
    return Condition(f"revision-{plural}", f"{plural} run on masters", why, fix, probe)


def version_condition() -> Condition:
    def probe(site: Site) -> str:
        found = kube.get(site, CLUSTER_VERSION, "version")
        if found is None:
            raise NotYet("there is no ClusterVersion `version`")
        wrong = _wrong(found, {"Available": "True", "Failing": "False", "Progressing": "False"})
        if wrong:
            raise NotYet(f"{wrong}: {_message(found, wrong.partition('=')[0])}")
        history = objects.items(objects.field(found, "status", "history"))
        if not history or history[0].get("state") != "Completed":
            raise NotYet("its history has no completed update")
        reached, wanted = str(history[0].get("version")), site.cluster.release.version
        if wanted and reached != wanted:
            raise NotYet(f"its version is {reached}, not {wanted}")
        return reached

    why = "until then only a part of the release is installed"
    return Condition("cluster-version", "the cluster version is complete", why, "oc get clusterversion -o yaml", probe)


def started_condition() -> Condition:
    """The version operator reports its release; how much of it is installed does not matter yet."""
    why = "it deploys all other operators; without FeatureGate, CRDs or release image it restarts forever"
    fix = "umbilical stage logs bootstrap cluster-version-operator; umbilical stage logs bootstrap bootkube"
    return Condition("version-operator", "the cluster-version operator installs the release", why, fix, _progress)


def _progress(site: Site) -> str:
    """Return what the version operator reports. Raises NotYet: nothing, or on another release."""
    found = kube.get(site, CLUSTER_VERSION, "version")
    if found is None:
        raise NotYet("there is no ClusterVersion `version`")
    history = objects.items(objects.field(found, "status", "history"))
    if not history:
        raise NotYet("the cluster-version operator has reported nothing")
    reached, wanted = str(history[0].get("version") or ""), site.cluster.release.version
    if reached not in ("", wanted) and wanted:
        raise NotYet(f"the cluster-version operator installs {reached}, not {wanted}")
    troubles = [_message(found, "Failing")] if kube.condition(found, "Failing") == "True" else []
    return "; ".join([_message(found, "Progressing") or "it reports no progress", *troubles])


def reporting_condition() -> Condition:
    """The operators that install the control plane run, whatever they report."""

    def probe(site: Site) -> str:
        found = site.api().call(lambda client: objects.list_objects(client, CLUSTER_OPERATOR))
        running = {str(objects.metadata(one).get("name")) for one in found if kube.condition(one, "Available")}
        silent = [name for name in FIRST if name not in running]
        try:
            progress = _progress(site)
        except NotYet as error:
            progress = str(error)
        if silent:
            raise NotYet(f"no report from {', '.join(silent)}; {progress}")
        return f"{len(FIRST)} operators report; {progress}"

    why = "they install the pod network and the masters' control plane, for which the next stage waits"
    fix = "oc get clusteroperators; oc get pods -A -o wide; oc describe clusterversion version"
    return Condition("operators-report", "the control plane's operators run", why, fix, probe)


def operators_condition() -> Condition:
    """Requires all operators of the release, so an empty list is not a success."""

    def probe(site: Site) -> str:
        expected = site.operators
        if not expected:
            raise NotYet("the release names no ClusterOperators: umbilical stage run 04")
        found = site.api().call(lambda client: objects.list_objects(client, CLUSTER_OPERATOR))
        known = {str(objects.metadata(one).get("name")): one for one in found}
        for name in expected:
            trouble = operator_trouble(known.get(name), site.now(), site.cluster.release.version)
            if trouble:
                raise NotYet(f"{name}: {trouble}")
        return f"{len(expected)} operators"

    why = "the cluster works only when all of them do"
    fix = "oc get clusteroperators"
    return Condition("cluster-operators", "every cluster operator is available and stable", why, fix, probe)


def operator_condition(name: str) -> Condition:
    """One operator is Available, which is what others need of it."""

    def probe(site: Site) -> str:
        found = kube.get(site, CLUSTER_OPERATOR, name)
        if found is None or kube.condition(found, "Available") != "True":
            raise NotYet(_message(found or {}, "Available") or f"there is no ClusterOperator {name} yet")
        return "Available"

    why = "the next step needs what it installs"
    return Condition(f"operator-{name}", f"the operator {name} is Available", why, f"oc describe co {name}", probe)


def operator_trouble(item: Json | None, now: datetime, version: str = "") -> str:
    """Return why an operator is not stable at a version; empty if it is. An empty version matches any."""
    if item is None:
        return "the ClusterOperator does not exist"
    wanted = {"Available": "True", "Degraded": "False", "Progressing": "False"}
    wrong = _wrong(item, wanted)
    if wrong:
        return f"{wrong}: {_message(item, wrong.partition('=')[0])}"
    for one in objects.items(objects.field(item, "status", "conditions")):
        if one.get("type") in wanted and now - _moment(one.get("lastTransitionTime"), now) < STABLE:
            return f"{one.get('type')} changed less than {STABLE.seconds} s ago"
    rows = objects.items(objects.field(item, "status", "versions"))
    reached = next((str(row.get("version")) for row in rows if row.get("name") == "operator"), "")
    return "" if version in ("", reached) else f"its version is {reached or 'unknown'}, not {version}"


def pools_condition() -> Condition:
    def probe(site: Site) -> str:
        for name, count in (("master", len(site.cluster.masters)), ("worker", len(site.cluster.workers))):
            status = (kube.get(site, POOL, name) or {}).get("status") or {}
            numbers = [int(status.get(key, -1)) for key in ("machineCount", "updatedMachineCount", "readyMachineCount")]
            if numbers != [count] * 3 or int(status.get("degradedMachineCount", 0)):
                raise NotYet(f"pool {name}: machines, updated, ready are {numbers}; expected {count} of each")
        return "master and worker are updated"

    why = "nodes with an older config differ from the others"
    return Condition("machine-config-pools", "every machine has its machine config", why, "oc get mcp", probe)


def _wrong(item: Json, wanted: dict[str, str]) -> str:
    for name, value in wanted.items():
        status = kube.condition(item, name)
        if status != value:
            return f"{name}={status or 'unknown'}"
    return ""


def _message(item: Json, name: str) -> str:
    for one in objects.items(objects.field(item, "status", "conditions")):
        if one.get("type") == name:
            return str(one.get("message") or one.get("reason") or "")[:200]
    return ""


def _moment(text: object, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return otherwise


def operators_in(manifests: Mapping[str, bytes]) -> tuple[str, ...]:
    """List the ClusterOperators that a release installs in such a cluster, in the order of its files."""
    names: dict[str, None] = {}
    for file in sorted(manifests):
        if b"ClusterOperator" not in manifests[file]:
            continue
        for one in yaml.load_all(manifests[file], _Loader):
            if isinstance(one, dict) and one.get("kind") == "ClusterOperator" and is_included(one):
                names[str(objects.metadata(one).get("name"))] = None
    return tuple(names)
