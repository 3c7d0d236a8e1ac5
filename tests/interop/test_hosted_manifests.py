"""Every object of `umbilical hosted render` before the real kube-apiserver: would it be stored, strictly as it is?

Kinds that Kubernetes does not have by itself are judged by their own CRDs, which are applied first.
"""

import copy
import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.dry_runs import as_pod, dry_run
from tests.support.hosted_specs import hosted_spec

import peers
from umbilical.cli.hosted.render import renewed
from umbilical.fault import HostError
from umbilical.hosted.objects import names
from umbilical.hosted.objects.components import COMPONENTS
from umbilical.hosted.objects.render import Format, render
from umbilical.hosted.objects.sidecars import ACCOUNT, hosted_access, sidecar_patches
from umbilical.hosted.objects.spec import (
    Agents,
    DataPlaneProxy,
    HostedSpec,
    KubeApiserver,
    Leases,
    ManagementProxy,
    Pki,
    Publishing,
    ServerCount,
    ServerProgram,
    Signers,
    Strategy,
    TlsProfile,
    Workload,
)
from umbilical.hosted.objects.spec_reading import EXAMPLE, read_spec
from umbilical.hosted.pki.certificate_set import HostedSet
from umbilical.manifests.tree import AssetTree, yaml_bytes
from umbilical.pki.profiles import KeyType

pytestmark = pytest.mark.real(*PROGRAMS)
Object = dict[str, Any]
CRDS: Final = (
    "routes.crd.yaml",
    "monitoring.coreos.com_servicemonitors.yaml",
    "monitoring.coreos.com_podmonitors.yaml",
    "monitoring.coreos.com_prometheusrules.yaml",
)
FROM_CRDS: Final = {"Route", "ServiceMonitor", "PodMonitor", "PrometheusRule"}
PORTS: Final = {Strategy.ROUTE: 443, Strategy.NODE_PORT: 30091, Strategy.LOAD_BALANCER: 8091}
NAMESPACE: Final = hosted_spec().namespace


def published(strategy: Strategy, signers: Signers) -> HostedSpec:
    return hosted_spec(
        publishing=Publishing(strategy, "konnectivity.guest.example", PORTS[strategy]),
        pki=Pki(signers=signers, key_type=KeyType.ECDSA_P256, signers_in_cluster=signers is Signers.SINGLE),
    )


PLAIN: Final = published(Strategy.ROUTE, Signers.SEPARATE)
SPECS: Final = {
    "example": read_spec(EXAMPLE.encode()),
    **{
        f"{strategy.value}-{signers.value}": published(strategy, signers)
        for strategy, signers in itertools.product(Strategy, Signers)
    },
    "upstream": PLAIN.replace(server=ServerProgram.UPSTREAM),
    "leases": PLAIN.replace(server_count=ServerCount.LEASES, leases=Leases("konnectivity-server-kubeconfig")),
    "pod-network": PLAIN.replace(agents=Agents(host_network=False, dns_policy="ClusterFirst")),
    "one-replica-modern": PLAIN.replace(
        replicas=1, tls_profile=TlsProfile.MODERN, agents=Agents(control_plane_replicas=1)
    ),
    "user-proxy": PLAIN.replace(
        proxy=DataPlaneProxy("http://u:p@proxy.example:3128", "https://proxy.example", (".example.com",), "user-ca"),
        management_proxy=ManagementProxy("http://u:p@proxy.mgmt.example:3128", (".mgmt.example",)),
    ),
}


def made_certificates(spec: HostedSpec) -> HostedSet:
    return renewed(spec, None, "auto", rotate=False, retire=False).set


def deployment(name: str, *others: str) -> Object:
    """A Deployment as an operator makes one, cut to what the API asks for."""
    containers = [{"name": one, "image": "registry.example/own:1", "args": ["--v=2"]} for one in (name, *others)]
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


KUBE_APISERVER: Final = deployment(names.KUBE_APISERVER)
KUBE_APISERVER["spec"]["replicas"] = PLAIN.replicas
DEPLOYMENTS: Final = (KUBE_APISERVER, *(deployment(name) for name in COMPONENTS))
STATIC_POD: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": names.KUBE_APISERVER, "namespace": "kube-system", "labels": {"app": names.KUBE_APISERVER}},
    "spec": {
        "hostNetwork": True,
        "containers": [
            {"name": names.KUBE_APISERVER, "image": "registry.example/own:1", "command": ["kube-apiserver", "--v=2"]}
        ],
    },
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows the kinds, and holds what objects refer to."""
    with control_plane(tmp_path_factory.mktemp("plane")) as plane:
        for name in CRDS:
            path = peers.document(name)
            if path is None:
                pytest.skip(f"no {name}: run `make peers`")
            plane.kubectl("create", "-f", str(path))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": PLAIN.priority_class},
                "value": 1000,
            },
        )
        yield plane


def objects(tree: AssetTree) -> list[Object]:
    """What is applied: everything but patches, kustomize's own files and files of nodes."""
    values = [yaml.safe_load(one.content) for one in tree if one.path.endswith(".yaml") and one.path[0] in "mh"]
    return [value for value in values if not value["apiVersion"].startswith("kustomize")]


def everything(spec: HostedSpec) -> list[Object]:
    """All objects of both clusters."""
    return objects(render(spec, made_certificates(spec)))


def identity(value: Object) -> tuple[str, str, str]:
    return value["kind"], value["metadata"].get("namespace", ""), value["metadata"]["name"]


@pytest.mark.parametrize("name", SPECS)
def test_every_object_would_be_stored(plane: ControlPlane, name: str) -> None:
    values = everything(SPECS[name])
    by_kind: dict[str, list[Object]] = {}
    for value in values:
        by_kind.setdefault(value["kind"], []).append(value)
    for namespace in by_kind.pop("Namespace", []):
        # Labels on one that is there already.
        plane.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=json.dumps(namespace))
    # Kubernetes has warned of the kind as such since 1.33; older kube-apiservers look at nothing else.
    dry_run(plane, by_kind.pop("Endpoints"), "--warnings-as-errors=false")
    dry_run(plane, [value for group in by_kind.values() for value in group])
    dry_run(plane, [as_pod(value) for kind in ("Deployment", "DaemonSet") for value in by_kind.get(kind, [])])


def test_all_kinds_are_among_the_objects_that_are_tried() -> None:
    """Or the dry runs would show less than they seem to."""
    seen = {value["kind"] for spec in SPECS.values() for value in everything(spec)}
    assert seen >= FROM_CRDS | {"APIService", "ClusterRole", "ConfigMap", "DaemonSet", "Deployment", "EndpointSlice"}
    assert seen >= {"NetworkPolicy", "PodDisruptionBudget", "Role", "Secret", "Service", "ServiceAccount"}


@pytest.mark.parametrize("kind", sorted(FROM_CRDS | {"Deployment", "NetworkPolicy"}))
def test_a_field_that_a_kind_does_not_have_is_refused(plane: ControlPlane, kind: str) -> None:
    value = copy.deepcopy(next(one for one in everything(PLAIN) if one["kind"] == kind))
    value["spec"]["portt"] = "metrics"
    with pytest.raises(HostError, match="unknown field"):
        dry_run(plane, [value])


def test_a_value_that_a_crd_forbids_is_refused(plane: ControlPlane) -> None:
    route = copy.deepcopy(next(one for one in everything(PLAIN) if one["kind"] == "Route"))
    route["spec"]["tls"]["termination"] = "none"
    with pytest.raises(HostError, match="Unsupported value"):
        dry_run(plane, [route])


def patch(plane: ControlPlane, target: Object, change: Object | list[Object], kind: str, folder: Path) -> Object:
    """What kubectl makes of it, without a cluster."""
    before, after = folder / "before.yaml", folder / "change.yaml"
    before.write_bytes(yaml_bytes(target))
    after.write_bytes(yaml_bytes(change))
    said = plane.kubectl("patch", "--local", "-f", str(before), f"--type={kind}", f"--patch-file={after}", "-o", "json")
    found: Object = json.loads(said)
    return found


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_with_its_proxies_would_be_stored(plane: ControlPlane, name: str, tmp_path: Path) -> None:
    sample = deployment(name, "socks-proxy" if name == "ovnkube-control-plane" else "other")
    for spec in (PLAIN, SPECS["user-proxy"]):
        changed = patch(plane, sample, sidecar_patches(spec)[name], "strategic", tmp_path)
        containers = {one["name"]: one for one in changed["spec"]["template"]["spec"]["containers"]}
        assert set(containers) >= {name, *(proxy.container_name for proxy in COMPONENTS[name].proxies)}
        assert containers[name]["image"] == "registry.example/own:1"
        dry_run(plane, [changed, as_pod(changed)])


def test_a_patched_kube_apiserver_would_be_stored(plane: ControlPlane) -> None:
    for name in ("route-separate", "route-single", "upstream", "leases"):
        tree = render(SPECS[name], made_certificates(SPECS[name]), yaml_bytes(KUBE_APISERVER))
        (changed,) = [
            one for one in objects(tree) if identity(one)[2] == names.KUBE_APISERVER and "template" in one["spec"]
        ]
        assert {one["name"] for one in changed["spec"]["template"]["spec"]["containers"]} == {
            names.KUBE_APISERVER,
            names.SERVER,
        }
        dry_run(plane, [changed, as_pod(changed)])


def test_a_static_pod_with_its_server_would_be_stored(plane: ControlPlane) -> None:
    spec = PLAIN.replace(kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml"))
    tree = render(spec, made_certificates(spec), yaml_bytes(STATIC_POD))
    (path,) = [one.path for one in tree if one.path.endswith("/manifests/kube-apiserver.yaml")]
    dry_run(plane, [yaml.safe_load(tree[path].content)])


def write(tree: AssetTree, folder: Path) -> None:
    for asset in tree:
        path = folder / asset.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(asset.content)


def test_what_kustomize_makes_of_base_and_patches_would_be_stored(plane: ControlPlane, tmp_path: Path) -> None:
    write(render(PLAIN, made_certificates(PLAIN), form=Format.KUSTOMIZE), tmp_path)
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "deployments.yaml").write_bytes(b"---\n".join(yaml_bytes(one) for one in DEPLOYMENTS))
    (overlay / "kustomization.yaml").write_text(
        "resources: [deployments.yaml, ../management]\ncomponents: [../management/patches]\n"
    )
    made = list(yaml.safe_load_all(plane.kubectl("kustomize", str(overlay))))
    (kube_apiserver,) = [
        one for one in made if identity(one)[0] == "Deployment" and identity(one)[2] == "kube-apiserver"
    ]
    pod = kube_apiserver["spec"]["template"]["spec"]
    assert {one["name"] for one in pod["containers"]} == {names.KUBE_APISERVER, names.SERVER}
    main = next(one for one in pod["containers"] if one["name"] == names.KUBE_APISERVER)
    assert main["args"][0] == "--v=2"
    assert any(one.startswith("--egress-selector-config-file=") for one in main["args"])
    for name, component in COMPONENTS.items():
        (changed,) = [one for one in made if identity(one)[0] == "Deployment" and identity(one)[2] == name]
        containers = [one["name"] for one in changed["spec"]["template"]["spec"]["containers"]]
        assert set(containers) == {name, *(proxy.container_name for proxy in component.proxies)}
    dry_run(plane, made)
    hosted = list(yaml.safe_load_all(plane.kubectl("kustomize", str(tmp_path / "hosted"))))
    assert {identity(one) for one in hosted} >= {("DaemonSet", "kube-system", names.AGENT)}


def test_the_sidecars_account_may_get_services_and_nothing_else(plane: ControlPlane) -> None:
    plane.apply(*hosted_access(PLAIN))
    account = f"--as=system:serviceaccount:{names.HOSTED_NAMESPACE}:{ACCOUNT}"

    def may(verb: str, kind: str) -> bool:
        try:
            return plane.kubectl("auth", "can-i", verb, kind, account, "-n", "openshift-dns").strip() == "yes"
        except HostError:
            return False

    assert may("get", "services")
    for verb, kind in (("list", "services"), ("update", "services"), ("get", "secrets"), ("get", "pods")):
        assert not may(verb, kind), (verb, kind)


def test_the_spec_s_own_names_are_what_the_objects_say() -> None:
    """Nothing is written for a namespace other than the control plane's, kube-system and default."""
    other = dataclasses.replace(PLAIN, namespace="elsewhere")
    namespaces = {identity(one)[1] for one in everything(other)}
    assert namespaces == {"elsewhere", names.HOSTED_NAMESPACE, names.AGGREGATED_NAMESPACE, ""}
