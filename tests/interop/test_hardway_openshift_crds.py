"""OpenShift's own definitions: what is chosen of them, and that they take what is rendered without losing a field."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
import yaml
from tests.support import hardway, openshift_api, release_directory
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.dry_runs import dry_run
from tests.support.hardway_everything import rendered

from umbilical.checks.check import Outcome
from umbilical.cluster.apply import CreateResult, CreationError, Creator, ManifestDocument, read_document
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import ApiKind, Discovery
from umbilical.fault import ApiRefused, HostError
from umbilical.hardway import operators
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.manifests.catalogue import render_manifests
from umbilical.hardway.artifacts.nodes import machine, render
from umbilical.hardway.config.cluster import Switch
from umbilical.hardway.lint import catalogue
from umbilical.hardway.site import ClusterApi
from umbilical.manifests.tree import AssetTree

pytestmark = pytest.mark.real(*PROGRAMS)
Object = dict[str, Any]
SECONDS: Final = 120.0
SETS: Final = ("Default", "CustomNoUpgrade", "DevPreviewNoUpgrade", "OKD", "TechPreviewNoUpgrade")
SHAPES: Final = [(3, 2), (1, 0), (2, 0), (3, 1)]
WITH_STATUS: Final = {"FeatureGate", "Infrastructure"}
MACHINE_CONFIG: Final = "machineconfigs.machineconfiguration.openshift.io"
ABSENT: Final = object()


def parsed(files: dict[str, bytes]) -> list[Object]:
    """By the C loader: schemas are long."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for name in sorted(files) for one in yaml.load_all(files[name], loader)]


@cache
def api_definitions() -> list[Object]:
    """All that cluster-config-api brings."""
    return parsed(openshift_api.api_files("crds"))


@cache
def all_definitions() -> list[Object]:
    return [*api_definitions(), *parsed(openshift_api.operators_files())]


def names(values: list[Object]) -> list[str]:
    return sorted(one["metadata"]["name"] for one in values)


def objects(given: Inputs) -> list[Object]:
    return parsed({asset.path: asset.content for asset in render_manifests(given, AssetTree())})


def definitions_of(values: list[Object]) -> list[Object]:
    return [one for one in values if one["kind"] == crds.KIND]


def custom(values: list[Object]) -> list[Object]:
    """Those of OpenShift's kinds: definitions themselves are of k8s.io."""
    return [one for one in values if one["apiVersion"].partition("/")[0].endswith(".openshift.io")]


def document(value: Object) -> ManifestDocument:
    found = read_document(value)
    assert found is not None
    return found


def create(plane: ControlPlane, values: list[Object]) -> list[CreateResult]:
    documents = [document(one) for one in values]
    return ClusterApi(plane.kubeconfig).call(lambda client: Creator(client).create(documents, SECONDS), SECONDS)


def ask(plane: ControlPlane, verb: str, value: Object, suffix: str = "", **request: Any) -> Json:
    """One call for the object of a manifest."""

    async def call(client: ApiClient) -> Json:
        kind = await Discovery(client).find(value["apiVersion"], value["kind"])
        assert kind is not None, f"{value['kind']} of {value['apiVersion']} is not served"
        return await client.request(verb, kind.path(None, value["metadata"]["name"]) + suffix, **request)

    return ClusterApi(plane.kubeconfig).call(call)


def write_status(plane: ControlPlane, value: Object, status: Object) -> None:
    """As far as storing, strictly: the engine's own call leaves a field that the kind does not have unsaid."""
    body = {**ask(plane, "GET", value), "status": status}
    ask(plane, "PUT", value, "/status", query={"dryRun": "All", "fieldValidation": "Strict"}, body=body)


def lost(wanted: Any, live: Any, place: str = "") -> Iterator[str]:
    """Say what of a manifest the API did not keep as it is. What it adds, by default, is its own."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key, value in wanted.items():
            yield from lost(value, live.get(key, ABSENT), f"{place}.{key}")
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for index, (one, other) in enumerate(zip(wanted, live, strict=True)):
            yield from lost(one, other, f"{place}[{index}]")
    elif wanted != live:
        yield f"{place}: {'nothing' if live is ABSENT else live} instead of {wanted}"


@pytest.fixture(scope="module")
def defined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with the definitions that we render, and that of machine configs, which come later."""
    arguments = [f"--service-cluster-ip-range={hardway.cluster().networks.services}"]
    values = definitions_of(objects(openshift_api.real_inputs()))
    later = [one for one in api_definitions() if one["metadata"]["name"] == MACHINE_CONFIG]
    with control_plane(tmp_path_factory.mktemp("plane"), apiserver_arguments=arguments) as plane:
        # Without warnings as errors: OpenShift writes formats that an API server of today does not know.
        dry_run(plane, values, "--validate=strict")
        create(plane, [*values, *later])
        yield plane


@pytest.fixture
def plane(defined: ControlPlane) -> Iterator[ControlPlane]:
    """With no objects of those kinds left behind."""
    yield defined
    left = [json.dumps(one) for one in custom(objects(openshift_api.real_inputs()))]
    defined.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin="\n---\n".join(left))


def test_as_many_definitions_are_for_us_as_docs_peers_says_and_each_once() -> None:
    values = api_definitions()
    assert (len(values), len(set(names(values)))) == (144, 58)
    included = [one for one in values if crds.is_included(one)]
    assert len(included) == len(set(names(included))) == 53
    required = [one for one in included if crds.is_required(one)]
    assert len(required) == crds.REQUIRED_COUNTS["4.18"]
    assert names(required) == sorted(release_directory.REQUIRED)


@pytest.mark.parametrize("feature_set", SETS)
def test_no_feature_set_has_two_variants_of_one_definition(feature_set: str) -> None:
    included = [one for one in api_definitions() if crds.is_included(one, feature_set)]
    assert len(included) == len(set(names(included))) > 50


@pytest.mark.parametrize("feature_set", ["", "TechPreviewNoUpgrade"])
def test_what_is_chosen_at_a_glance_is_what_reading_everything_would_choose(feature_set: str) -> None:
    found = crds.bootstrap_crds(openshift_api.definitions(), feature_set)
    everything = [one for one in all_definitions() if crds.is_included(one, feature_set or crds.DEFAULT_SET)]
    wanted = [one for one in everything if crds.is_required(one) or one["metadata"]["name"] in crds.BY_NAME]
    assert len(found) == len(wanted) == 25
    chosen = {one.name: one.content for one in found}
    assert parsed(chosen) == sorted(wanted, key=lambda one: one["metadata"]["name"])


@pytest.mark.parametrize(("masters", "workers"), SHAPES)
def test_every_object_is_taken_strictly_with_its_status_and_nothing_of_it_is_lost(
    plane: ControlPlane, masters: int, workers: int
) -> None:
    values = custom(objects(openshift_api.real_inputs(masters, workers)))
    dry_run(plane, values)
    done = create(plane, values)
    assert {one.document.kind for one in done if one.wrote_status} == WITH_STATUS
    for value in values:
        assert list(lost(value, ask(plane, "GET", value), value["kind"])) == []
        if "status" in value:
            write_status(plane, value, value["status"])
    assert {one["kind"] for one in values} == {
        *("ClusterVersion", "DNS", "FeatureGate", "Infrastructure", "Ingress", "Network", "Proxy", "Scheduler"),
        "SecurityContextConstraints",
    }
    assert len([one for one in values if one["kind"] == "Network"]) == 2


def test_what_a_kind_does_not_have_is_refused_in_spec_and_status(plane: ControlPlane) -> None:
    """Or the tests above would show less than they seem to."""
    values = {one["kind"]: one for one in custom(objects(openshift_api.real_inputs())) if "spec" in one}
    for value in values.values():
        with pytest.raises(HostError, match=r'unknown field "spec\.portt"'):
            dry_run(plane, [{**value, "spec": {**value["spec"], "portt": "x"}}])
    create(plane, [values[kind] for kind in sorted(WITH_STATUS)])
    for kind in sorted(WITH_STATUS):
        with pytest.raises(ApiRefused, match=r'unknown field \\?"status\.portt\\?"'):
            write_status(plane, values[kind], {**values[kind]["status"], "portt": "x"})


def test_an_infrastructure_of_two_replicas_would_never_be_taken(plane: ControlPlane) -> None:
    """The reason why two masters without workers are HighlyAvailable for all but themselves."""
    (value,) = (one for one in objects(openshift_api.real_inputs(2, 0)) if one["kind"] == "Infrastructure")
    assert value["status"]["controlPlaneTopology"] == "DualReplica"
    wrong = {**value, "status": {**value["status"], "infrastructureTopology": "DualReplica"}}
    with pytest.raises(CreationError, match=r"status\.infrastructureTopology") as caught:
        create(plane, [wrong])
    assert caught.value.code == "UMB741"


def test_the_releases_own_gates_become_the_status_under_its_version(plane: ControlPlane) -> None:
    (value,) = (one for one in objects(openshift_api.real_inputs()) if one["kind"] == "FeatureGate")
    create(plane, [value])
    (entry,) = ask(plane, "GET", value)["status"]["featureGates"]
    files = openshift_api.api_files("featuregates")
    ((told,),) = (
        yaml.safe_load(files[name])["status"]["featureGates"] for name in files if "SelfManagedHA-Default" in name
    )
    assert entry == {**told, "version": hardway.VERSION}
    assert len(entry["enabled"]) > 20 < len(entry["disabled"])


@pytest.mark.parametrize("role", ["master-0", "worker-0"])
def test_machine_configs_that_a_node_boots_with_are_some(plane: ControlPlane, role: str) -> None:
    given = openshift_api.real_inputs()
    made = render.builtin_base(given, given.cluster.node(role))
    whole = json.loads(made.machine_config)
    bare = machine.encapsulated(made)
    bare = {**bare, "metadata": {**bare["metadata"], "name": f"bare-{role}"}}
    dry_run(plane, [whole, bare])
    with pytest.raises(HostError, match=r'unknown field "spec\.portt"'):
        dry_run(plane, [{**whole, "spec": {**whole["spec"], "portt": "x"}}])


def schema(kind: ApiKind) -> Object:
    """What the definition of a kind, served under its path, says about its objects."""
    group, version = kind.group_path.removeprefix("/apis/").split("/")
    everything = [one for one in all_definitions() if crds.is_included(one)]
    (found,) = (one for one in everything if one["metadata"]["name"] == f"{kind.plural}.{group}")
    assert (found["spec"]["scope"] == "Namespaced") == kind.is_namespaced
    (served,) = (one for one in found["spec"]["versions"] if one["name"] == version and one["served"])
    properties: Object = served["schema"]["openAPIV3Schema"]["properties"]
    return properties


def status_of(kind: ApiKind) -> Object:
    properties: Object = schema(kind)["status"]["properties"]
    return properties


def test_what_stages_read_of_operators_is_where_the_definitions_have_it() -> None:
    for kind in (operators.ETCD, operators.CLUSTER_VERSION, operators.CLUSTER_OPERATOR):
        assert {"type", "status", "lastTransitionTime"} <= set(status_of(kind)["conditions"]["items"]["properties"])
    assert {"state", "version"} <= set(status_of(operators.CLUSTER_VERSION)["history"]["items"]["properties"])
    for plural in ("kubeapiservers", "kubecontrollermanagers", "kubeschedulers"):
        kind = ApiKind(plural, operators.ETCD.group_path, plural, is_namespaced=False)
        assert "currentRevision" in status_of(kind)["nodeStatuses"]["items"]["properties"]
    counts = {"machineCount", "updatedMachineCount", "readyMachineCount", "degradedMachineCount"}
    assert counts <= set(status_of(operators.POOL))


@pytest.mark.parametrize(("masters", "workers"), [(3, 2), (1, 0)])
def test_the_whole_tree_of_that_release_is_clean(masters: int, workers: int) -> None:
    switches = {"kube_proxy": Switch.ON, "konnectivity": Switch.ON}
    seen = rendered(openshift_api.real_inputs(masters, workers, **switches))
    told = [one for one in catalogue.judge(seen.facts()) if one.outcome in (Outcome.FAILED, Outcome.WARNED)]
    assert told == []
