"""A kube-apiserver static pod with and without the tunnel."""

from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tunnel_specs import tunnel_specs

from umbilical.bootstrap.render.kube_apiserver import (
    EGRESS_DIRECTORY,
    EGRESS_PATH,
    read_static_pod,
    with_egress_selector,
)
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.fault import RenderError

MANIFEST: Final = """
apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: null
  annotations: {kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: "192.0.2.1:6443"}
  name: kube-apiserver
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=192.0.2.1
    - --etcd-servers=https://127.0.0.1:2379
    image: registry.example/kube-apiserver:v1.34.0
    name: kube-apiserver
    volumeMounts:
    - {mountPath: /etc/kubernetes/pki, name: k8s-certs, readOnly: true}
  hostNetwork: true
  volumes:
  - hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}
    name: k8s-certs
"""
SPEC: Final = for_shape(Shape.KUBERNETES)
FLAG: Final = f"--egress-selector-config-file={EGRESS_PATH}"


def pod(**container: Any) -> dict[str, Any]:
    value = yaml.safe_load(MANIFEST)
    assert isinstance(value, dict)
    value["spec"]["containers"][0].update(container)
    return value


def dumped(value: object) -> bytes:
    return yaml.safe_dump(value).encode()


def test_the_flag_and_two_mounts_come_in_and_all_else_stays() -> None:
    changed = with_egress_selector(read_static_pod(MANIFEST.encode()), SPEC)
    original = pod()
    container, was = changed["spec"]["containers"][0], original["spec"]["containers"][0]
    assert container["command"] == [*was["command"], FLAG]
    assert container["volumeMounts"][:-2] == was["volumeMounts"]
    assert [mount["mountPath"] for mount in container["volumeMounts"][-2:]] == [EGRESS_DIRECTORY, SPEC.socket_directory]
    mounted = [volume["hostPath"]["path"] for volume in changed["spec"]["volumes"]]
    assert mounted[1:] == [EGRESS_DIRECTORY, SPEC.socket_directory]
    del container["command"], container["volumeMounts"], changed["spec"]["volumes"]
    del was["command"], was["volumeMounts"], original["spec"]["volumes"]
    assert changed == original


@given(tunnel_specs(Shape.KUBERNETES))
def test_doing_it_twice_is_doing_it_once(spec: TunnelSpec) -> None:
    once = with_egress_selector(pod(), spec)
    assert with_egress_selector(once, spec) == once


def test_what_was_given_is_not_changed() -> None:
    given_pod = pod()
    with_egress_selector(given_pod, SPEC)
    assert given_pod == pod()


def test_flags_in_args_are_continued_there_and_one_that_says_the_same_is_left_alone() -> None:
    changed = with_egress_selector(pod(command=["kube-apiserver"], args=["--v=2"]), SPEC)
    container = changed["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["kube-apiserver"], ["--v=2", FLAG])
    for words in ([FLAG], FLAG.split("=")):
        command = ["kube-apiserver", *words]
        assert with_egress_selector(pod(command=command), SPEC)["spec"]["containers"][0]["command"] == command


def test_a_pod_without_volumes_gets_them_and_a_mount_of_the_same_directory_is_used() -> None:
    bare = pod(volumeMounts=None)
    del bare["spec"]["volumes"]
    changed = with_egress_selector(bare, SPEC)
    assert len(changed["spec"]["volumes"]) == len(changed["spec"]["containers"][0]["volumeMounts"]) == 2
    shared = pod(volumeMounts=[{"name": "theirs", "mountPath": f"{SPEC.socket_directory}/"}])
    shared["spec"]["volumes"] = [{"name": "theirs", "hostPath": {"path": SPEC.socket_directory}}]
    changed = with_egress_selector(shared, SPEC)
    assert [volume["name"] for volume in changed["spec"]["volumes"]] == ["theirs", "konnectivity-egress"]


def test_a_manifest_that_means_something_else_is_refused() -> None:
    another_volume = pod()
    another_volume["spec"]["volumes"].append({"name": "konnectivity-socket", "emptyDir": {}})
    another_mount = pod(volumeMounts=[{"name": "k8s-certs", "mountPath": EGRESS_DIRECTORY}])
    another_file = pod(command=["kube-apiserver", "--egress-selector-config-file=/other"])
    for contradicting in (another_file, another_mount, another_volume):
        with pytest.raises(RenderError, match="UMB115"):
            with_egress_selector(contradicting, SPEC)


def test_what_is_no_kube_apiserver_is_refused() -> None:
    for content in (
        b"",
        b"- a list",
        b"kind: [",
        b"\xff\xfe\x00",
        b"a: &a [*a]",
        b"[" * 100_000,
        b" " * (1 << 20) + b"a",
        dumped({"apiVersion": "v1", "kind": "Secret"}),
        dumped({"apiVersion": "v1", "kind": "Pod", "spec": None}),
        dumped(pod(command=["etcd"])),
        dumped(pod(command=["/bin/sh", "-c", "kube-apiserver --v=2"])),
        MANIFEST.encode() + b"---\n" + MANIFEST.encode(),
    ):
        with pytest.raises(RenderError, match="UMB114"):
            read_static_pod(content)


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_ANYTHING = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@given(st.sampled_from(["volumes", "volumeMounts", "command", "args"]), _ANYTHING)
def test_whatever_stands_in_a_field_the_answer_is_a_manifest_or_a_fault(field: str, value: object) -> None:
    strange = pod()
    target = strange["spec"] if field == "volumes" else strange["spec"]["containers"][0]
    target[field] = value
    try:
        changed = with_egress_selector(read_static_pod(dumped(strange)), SPEC)
    except RenderError:
        return
    assert with_egress_selector(changed, SPEC) == changed


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(RenderError):
        read_static_pod(content)
