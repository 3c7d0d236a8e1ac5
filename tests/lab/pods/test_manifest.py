"""Manifests as they are rendered, and as no API would let them through."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import MINIMAL, changed, json_values

from umbilical.assets.names import OWN
from umbilical.assets.render import render
from umbilical.assets.spec import Shape, for_shape
from umbilical.lab.pods.errors import PodError
from umbilical.lab.pods.manifest import pod, read_static_pod
from umbilical.lab.pods.spec import HostPath, PathType, Pod, RestartPolicy
from umbilical.lab.tunnel_parts import issue
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import DAY, create_authority


def rendered_server_pod(shape: Shape) -> bytes:
    now = datetime.now(UTC)
    certificates = issue(create_authority(Authority, now, DAY, KeyType.ECDSA_P256), "10.91.0.10", now)
    return render(for_shape(shape, image="localhost/umbilical:lab"), certificates=certificates)[OWN.server_pod].content


@pytest.mark.parametrize("shape", [Shape.OPENSHIFT, Shape.SEED])
def test_the_rendered_server_is_read_whole(shape: Shape) -> None:
    found = read_static_pod(rendered_server_pod(shape), "server")
    assert found.title == "kube-system/konnectivity-server"
    assert found.uses_node_network
    container = found.containers[0]
    assert container.command == ("proxy-server",)
    assert "--delete-existing-uds-file=true" in container.arguments
    assert container.security.user == 0
    assert container.security.root_is_read_only
    assert container.security.dropped == ("ALL",)
    assert not container.security.may_gain_privileges
    assert container.liveness is not None
    assert container.liveness.initial_delay_seconds == 10
    assert [mount.is_read_only for mount in container.mounts] == [False, True]
    volumes = {volume.name: volume.content for volume in found.volumes}
    assert volumes["socket"] == HostPath("/etc/kubernetes/bootstrap-configs", PathType.DIRECTORY_OR_CREATE)


def test_what_is_not_said_is_the_apis_default() -> None:
    found = pod(MINIMAL)
    assert found.namespace == "default"
    assert found.restart_policy is RestartPolicy.ALWAYS
    assert found.grace_seconds == 30
    assert found.containers[0].working_directory == "/"
    assert not found.uses_node_network


def test_null_is_the_same_as_not_there() -> None:
    found = changed(MINIMAL, "spec", volumes=None, initContainers=None, securityContext=None, hostNetwork=None)
    assert pod(found) == pod(MINIMAL)


def test_a_container_that_mounts_an_unknown_volume_is_refused() -> None:
    document = copy.deepcopy(MINIMAL)
    document["spec"]["containers"][0]["volumeMounts"] = [{"name": "nowhere", "mountPath": "/x"}]
    with pytest.raises(PodError, match="mounts 'nowhere'"):
        pod(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("containers", []),
        ("containers", None),
        ("containers", {"name": "a"}),
        ("restartPolicy", "Sometimes"),
        ("hostNetwork", "yes"),
        ("terminationGracePeriodSeconds", -1),
        ("terminationGracePeriodSeconds", True),
        ("volumes", [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(key: str, value: object) -> None:
    with pytest.raises(PodError, match=f"UMB831 pod.spec.{key}"):
        pod(changed(MINIMAL, "spec", **{key: value}))


def test_two_containers_of_one_name_are_refused() -> None:
    container = MINIMAL["spec"]["containers"][0]
    with pytest.raises(PodError, match="same name"):
        pod(changed(MINIMAL, "spec", initContainers=[container]))


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", 7, None])
def test_a_name_that_could_lead_elsewhere_is_refused(name: object) -> None:
    with pytest.raises(PodError, match="UMB831"):
        pod(changed(MINIMAL, "metadata", name=name))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n---\n",
        "kind: Pod",
        "apiVersion: v1\nkind: ConfigMap",
        "[1, 2]",
        "just words",
        "a: &x [*x]",
        "{" * 300,
        "a: b: c",
        "\x00",
        "? [a]\n: b",
        "2001-99-99",
        "!!python/object:os.system {}",
        yaml.safe_dump_all([MINIMAL, MINIMAL]),
    ],
)
def test_a_file_that_is_no_static_pod_is_told_of(text: str) -> None:
    with pytest.raises(PodError, match=r"UMB83[01]"):
        read_static_pod(text.encode(), "file.yaml")


def test_a_file_of_megabytes_is_not_even_parsed() -> None:
    with pytest.raises(PodError, match="UMB830"):
        read_static_pod(b"a" * (2 << 20), "file.yaml")


@given(st.binary(max_size=400))
def test_any_bytes_are_a_pod_or_an_error(content: bytes) -> None:
    read_or_refuse(content)


@given(json_values())
def test_any_value_is_a_pod_or_an_error(value: Any) -> None:
    read_or_refuse(yaml.safe_dump(value).encode())


@given(st.data())
def test_a_pod_with_anything_anywhere_is_a_pod_or_an_error(data: st.DataObject) -> None:
    document = yaml.safe_load(rendered_server_pod_once())
    place: Any = document
    for _ in range(data.draw(st.integers(1, 8))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key]:
            break
        place = place[key]
    else:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
    place[key] = data.draw(json_values())
    read_or_refuse(yaml.safe_dump(document).encode())


_RENDERED: list[bytes] = []


def rendered_server_pod_once() -> bytes:
    if not _RENDERED:
        _RENDERED.append(rendered_server_pod(Shape.OPENSHIFT))
    return _RENDERED[0]


def read_or_refuse(content: bytes) -> None:
    try:
        found = read_static_pod(content, "file.yaml")
    except PodError as error:
        outcome: object = error.code
    else:
        outcome = isinstance(found, Pod) and bool(found.containers)
    assert outcome in (True, "UMB830", "UMB831")
