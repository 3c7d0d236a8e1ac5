"""kube-apiserver's manifest: read, compared with the spec, and patched with a server."""

import ipaddress
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from tests.support.hosted_specs import hosted_spec
from tests.support.hosted_workloads import as_bytes, container, deployment, static_pod
from tests.support.manifests import json_values

from umbilical.fault import RenderError
from umbilical.hosted.objects.kube_apiserver_manifest import flag_value, read_manifest
from umbilical.hosted.objects.server import flag_patch, patched, server_container, strategic_patch
from umbilical.hosted.objects.spec import HostedSpec, KubeApiserver, ManagementProxy, Workload
from umbilical.manifests.objects import Object

STATIC = hosted_spec(kube_apiserver=KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml"))


def refusal(content: bytes, spec: HostedSpec | None = None) -> tuple[str, str]:
    with pytest.raises(RenderError) as refused:
        read_manifest(content, spec or hosted_spec())
    return refused.value.code, refused.value.why


def test_a_deployment_and_a_static_pod_are_read_with_their_container() -> None:
    found = read_manifest(as_bytes(deployment()), hosted_spec())
    assert (found.index, found.container["name"], found.arguments_key) == (0, "kube-apiserver", "args")
    assert found.pod["terminationGracePeriodSeconds"] == 30
    found = read_manifest(as_bytes(static_pod()), STATIC)
    assert (found.index, found.arguments_key) == (0, "command")
    assert found.pod is found.document["spec"]


def test_a_container_of_another_name_is_found_by_its_program() -> None:
    document = deployment()
    container(document)["name"] = "api"
    document["spec"]["template"]["spec"]["containers"].reverse()
    assert read_manifest(as_bytes(document), hosted_spec()).index == 1


def test_something_else_is_refused() -> None:
    document = deployment()
    container(document).update(name="x", args=[1])
    head = b"{apiVersion: apps/v1, kind: Deployment, spec: "
    for content, why in (
        (b"a: *b", "aliases"),
        (b"[]", "its kind is not Deployment"),
        (b"{apiVersion: v1, kind: Pod}", "its kind is not Deployment"),
        (b"{apiVersion: extensions/v1beta1, kind: Deployment}", "apiVersion is not apps/v1"),
        (head + b"{}}", "no containers"),
        (head + b"{template: {spec: {containers: x}}}}", "its containers are not a list"),
        (head + b"{template: {spec: {containers: []}}}}", "none of its containers"),
        (as_bytes(static_pod()), "as in kubeApiserver.workload"),
        (as_bytes(document), ""),
    ):
        code, told = refusal(content)
        assert code == "UMB551"
        assert why in told


def test_what_contradicts_the_spec_is_refused() -> None:
    for path, value, why in (
        (("metadata", "namespace"), "elsewhere", "in the namespace elsewhere, the spec says clusters-guest"),
        (("metadata", "name"), "kas", "its name is kas, the spec says kube-apiserver"),
        (("spec", "replicas"), 2, "2 replicas, the spec says 3"),
        (("spec", "template", "metadata", "labels"), {"app": "x"}, "lack the labels app=kube-apiserver"),
    ):
        document = deployment()
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        code, told = refusal(as_bytes(document))
        assert code == "UMB552"
        assert why in told


def test_a_kube_apiserver_that_takes_no_flags_is_refused_with_the_way_out() -> None:
    document = deployment()
    container(document)["args"] = ["--openshift-config=/etc/kubernetes/config/config.json"]
    assert "set egressFlag to false" in refusal(as_bytes(document))[1]
    allowed = hosted_spec(kube_apiserver=KubeApiserver(has_egress_flag=False))
    assert read_manifest(as_bytes(document), allowed).index == 0


def test_a_flag_is_found_in_either_form() -> None:
    for words, value in (("--a=1", "1"), ("--a 2", "2"), ("--b=1", None), ("--ab=1", None), ("--a=", ""), ("--a", "")):
        assert flag_value({"command": ["x"], "args": words.split()}, "--a") == value


@given(json_values())
def test_any_document_is_read_or_refused(value: Any) -> None:
    for document in ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": value, "spec": value}, value):
        with suppress(RenderError):
            read_manifest(as_bytes(document), hosted_spec())


EGRESS = "--egress-selector-config-file=/etc/kubernetes/egress-selector/config.yaml"


def patch(document: Object, spec: HostedSpec | None = None) -> Object:
    chosen = spec or hosted_spec()
    return patched(read_manifest(as_bytes(document), chosen), chosen)


def pod(document: Object) -> Object:
    found: Object = document["spec"].get("template", document)["spec"]
    return found


def environment(document: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container(document).get("env", [])}


def test_the_server_stands_beside_kube_apiserver_and_everything_else_stays() -> None:
    found = patch(deployment())
    containers = [one["name"] for one in pod(found)["containers"]]
    assert containers == ["kube-apiserver", "apply-bootstrap", "konnectivity-server"]
    assert container(found, "konnectivity-server") == server_container(hosted_spec())
    assert {"name": "certs", "secret": {"secretName": "kas-server-crt"}} in pod(found)["volumes"]
    assert container(found)["image"] == "registry.example/kube-apiserver:1"


def test_kube_apiserver_asks_for_the_cluster_through_the_tunnel_and_routes_for_aggregated_apis() -> None:
    added = [EGRESS, "--enable-aggregator-routing=true", "--kubelet-preferred-address-types=InternalIP"]
    assert container(patch(deployment()))["args"] == [*container(deployment())["args"], *added]
    assert EGRESS in container(patch(static_pod(), STATIC))["command"]
    without = container(patch(deployment(), hosted_spec(aggregated_apis=())))
    assert "--enable-aggregator-routing=true" not in without["args"]


def test_doing_it_twice_is_the_same_as_once_and_what_was_given_is_not_changed() -> None:
    for document, spec in ((deployment(), hosted_spec()), (static_pod(), STATIC)):
        manifest = read_manifest(as_bytes(document), spec)
        once = patched(manifest, spec)
        assert manifest.document == document
        assert patch(once, spec) == once


def test_the_pod_gets_time_to_drain_and_keeps_a_longer_one() -> None:
    assert pod(patch(deployment()))["terminationGracePeriodSeconds"] == 135
    assert pod(patch(deployment(terminationGracePeriodSeconds=300)))["terminationGracePeriodSeconds"] == 300


def test_a_flag_that_cannot_work_is_refused_and_somebodys_own_order_of_addresses_kept() -> None:
    for flag in ("--egress-selector-config-file=/etc/other.yaml", "--enable-aggregator-routing=false"):
        document = deployment()
        container(document)["args"].append(flag)
        with pytest.raises(RenderError, match=r"UMB552(?s:.*)and the tunnel needs"):
            patch(document)
    document = deployment()
    container(document)["args"].append("--kubelet-preferred-address-types=ExternalIP")
    assert "--kubelet-preferred-address-types=InternalIP" not in container(patch(document))["args"]


def test_something_of_somebody_else_in_the_place_of_a_volume_or_mount_is_refused() -> None:
    theirs = {"name": "konnectivity-ca", "secret": {"secretName": "mine"}}
    for volumes in ([theirs], [{"name": "certs"}, "x"]):
        with pytest.raises(RenderError, match=r"UMB55[12]"):
            patch(deployment(volumes=volumes))
    document = deployment()
    container(document)["volumeMounts"].append({"name": "certs", "mountPath": "/etc/kubernetes/egress-selector/"})
    with pytest.raises(RenderError, match="UMB552"):
        patch(document)


def test_a_proxy_of_the_management_cluster_is_not_asked_for_machines_pods_and_services() -> None:
    document = deployment()
    container(document)["env"] = [
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "NO_PROXY", "value": "etcd-client,10.0.0.0/8"},
    ]
    found = set(environment(patch(document))["NO_PROXY"].split(","))
    assert {"etcd-client", "10.0.0.0/8", "konnectivity-server-local"} <= found
    assert {"10.132.0.0/14", "172.31.0.0/16", "192.168.10.0/24"} <= found


def test_no_proxy_is_made_where_a_proxy_stands_alone_and_left_out_where_there_is_none() -> None:
    document = deployment()
    assert environment(patch(document)) == {}
    container(document)["env"] = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    assert "192.168.10.0/24" in environment(patch(document))["NO_PROXY"]


def test_a_static_pod_takes_files_of_its_node_since_it_gets_no_secrets() -> None:
    found = patch(static_pod(), STATIC)
    kinds = {kind for volume in pod(found)["volumes"] for kind in volume if kind != "name"}
    assert kinds == {"hostPath", "emptyDir"}
    containers = [container(found, name) for name in ("kube-apiserver", "konnectivity-server")]
    mounted = {mount["name"] for one in containers for mount in one["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(found)["volumes"]}
    # Only root may read these keys; a Secret's keys are readable for the pod's group.
    assert containers[1]["securityContext"]["runAsUser"] == 0
    assert "runAsUser" not in container(patch(deployment()), "konnectivity-server")["securityContext"]


def test_without_a_manifest_there_is_a_patch_that_keeps_every_list_of_its_own() -> None:
    found = strategic_patch(hosted_spec())
    assert "env" not in container(found)
    assert [one["name"] for one in pod(found)["containers"]] == ["kube-apiserver", "konnectivity-server"]
    assert "args" not in container(found)
    assert found["metadata"] == {"name": "kube-apiserver", "namespace": "clusters-guest"}


def test_flags_are_added_to_the_container_that_is_looked_at_first_whatever_the_addresses() -> None:
    look, *added = flag_patch(hosted_spec())
    assert look == {"op": "test", "path": "/spec/template/spec/containers/0/name", "value": "kube-apiserver"}
    assert added[0] == {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": EGRESS}
    assert flag_patch(hosted_spec(kube_apiserver=KubeApiserver(has_egress_flag=False))) == []
    later = hosted_spec().with_addresses({"openshift-apiserver": (ipaddress.ip_address("172.30.9.9"),)})
    assert flag_patch(later) == flag_patch(hosted_spec())


def test_a_patch_keeps_the_management_cluster_s_proxy_from_answering_for_kubelets() -> None:
    proxy = ManagementProxy("http://proxy:3128", (".mgmt.example",))
    main = container(strategic_patch(hosted_spec(management_proxy=proxy)))
    ((name, value),) = [(one["name"], one["value"]) for one in main["env"]]
    assert name == "NO_PROXY"
    assert {".mgmt.example", "192.168.10.0/24", "konnectivity-server-local"} <= set(value.split(","))
