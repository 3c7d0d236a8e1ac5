"""Manifests as they are rendered, and as no API would let them through."""

import copy
import functools
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import MINIMAL, changed, json_values, with_container

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.render.render import render
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.fault import PodError
from umbilical.lab.pods import spec
from umbilical.lab.pods.fields import MAX_DEPTH, MAX_DOCUMENTS, Fields, read_documents
from umbilical.lab.pods.manifest import pod, read_static_pod
from umbilical.lab.tunnel_parts import issue
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType
from umbilical.pki.tunnel_set import DAY, create_authority


def test_every_document_is_read_and_empty_ones_count_for_nothing() -> None:
    assert read_documents(b"---\na: 1\n---\n---\nb: 2\n", "file") == [{"a": 1}, {"b": 2}]
    assert read_documents(b'{"a": [1, "x"]}', "file") == [{"a": [1, "x"]}]


def test_what_is_not_plain_objects_is_refused_with_the_files_name() -> None:
    for content in (
        b"a: *b",
        b"a: &b {c: *b}",
        b"[" * (MAX_DEPTH + 1),
        b"---\na: 1\n" * (MAX_DOCUMENTS + 1),
        b"- a\n",
        b"text",
        b"\xff\xfe\x00",
        b"a: !!timestamp nonsense",
        b"a: !!python/name:os.system",
    ):
        with pytest.raises(PodError, match="UMB830 could not read file"):
            read_documents(content, "file")


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_nothing_but_objects_or_one_kind_of_error_comes_out(content: bytes) -> None:
    try:
        documents = read_documents(content, "file")
    except PodError as error:
        outcome: object = error.code
    else:
        outcome = all(isinstance(document, dict) for document in documents)
    assert outcome in (True, "UMB830")


def test_a_wrong_field_is_told_with_the_way_to_it() -> None:
    fields = Fields({"containers": [{"env": [{"name": 7}]}]}, "pod.spec")
    variable = fields.children("containers")[0].children("env")[0]
    with pytest.raises(PodError, match=r"pod\.spec\.containers\[0\]\.env\[0\]\.name"):
        variable.text("name")


def test_missing_fields_have_defaults_and_zero_and_false_are_values() -> None:
    fields = Fields({"nothing": None}, "x")
    assert fields.text("nothing", "default") == "default"
    assert fields.number("nothing", 5) == 5
    assert fields.optional_number("nothing") is None
    assert fields.flag("nothing", default=True)
    assert fields.child("nothing") is None
    assert fields.children("nothing") == []
    assert fields.texts("nothing") == ()
    assert fields.table("nothing") == {}
    assert "nothing" not in fields
    fields = Fields({"number": 0, "flag": False, "text": ""}, "x")
    assert fields.optional_number("number") == 0
    assert fields.flag("flag", default=True) is False
    assert fields.text("text", "default") == ""
    with pytest.raises(PodError, match="an integer"):
        Fields({"port": True}, "x").number("port", 1)


@given(st.dictionaries(st.sampled_from("ab"), json_values()))
def test_whatever_is_there_is_typed_or_refused(value: dict[str, object]) -> None:
    fields = Fields(value, "x")
    for read in (
        lambda: fields.text("a", ""),
        lambda: fields.name("a"),
        lambda: fields.number("a", 0),
        lambda: fields.flag("a"),
        lambda: fields.child("a"),
        lambda: fields.children("a"),
        lambda: fields.texts("a"),
        lambda: fields.numbers("a"),
        lambda: fields.table("a"),
    ):
        try:
            outcome: object = type(read()).__name__
        except PodError as error:
            outcome = error.code
        assert outcome in ("str", "int", "bool", "Fields", "NoneType", "list", "tuple", "dict", "UMB831")


@functools.cache
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
    assert volumes["socket"] == spec.HostPath("/etc/kubernetes/bootstrap-configs", spec.PathType.DIRECTORY_OR_CREATE)


def test_what_is_not_said_or_null_is_the_apis_default() -> None:
    found = pod(MINIMAL)
    assert found.namespace == "default"
    assert found.restart_policy is spec.RestartPolicy.ALWAYS
    assert found.grace_seconds == 30
    assert found.containers[0].working_directory == "/"
    assert not found.uses_node_network
    nulls = changed(MINIMAL, "spec", volumes=None, initContainers=None, securityContext=None, hostNetwork=None)
    assert pod(nulls) == found


def test_a_field_or_name_of_the_wrong_kind_is_named() -> None:
    for key, value in (
        ("containers", []),
        ("containers", None),
        ("containers", {"name": "a"}),
        ("restartPolicy", "Sometimes"),
        ("hostNetwork", "yes"),
        ("terminationGracePeriodSeconds", -1),
        ("terminationGracePeriodSeconds", True),
        ("volumes", [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
    ):
        with pytest.raises(PodError, match=f"UMB831 the pod runner rejected pod.spec.{key}"):
            pod(changed(MINIMAL, "spec", **{key: value}))
    for name in ("", "a/b", "..", ".", 7, None):
        with pytest.raises(PodError, match="UMB831"):
            pod(changed(MINIMAL, "metadata", name=name))
    document = copy.deepcopy(MINIMAL)
    document["spec"]["containers"][0]["volumeMounts"] = [{"name": "nowhere", "mountPath": "/x"}]
    with pytest.raises(PodError, match="mounts 'nowhere'"):
        pod(document)
    container = MINIMAL["spec"]["containers"][0]
    with pytest.raises(PodError, match="same name"):
        pod(changed(MINIMAL, "spec", initContainers=[container]))


def test_a_file_that_is_no_static_pod_is_told_of() -> None:
    for text in (
        "",
        "kind: Pod",
        "apiVersion: v1\nkind: ConfigMap",
        "? [a]\n: b",
        yaml.safe_dump_all([MINIMAL, MINIMAL]),
    ):
        with pytest.raises(PodError, match=r"UMB83[01]"):
            read_static_pod(text.encode(), "file.yaml")


@given(json_values())
def test_any_value_is_a_pod_or_an_error(value: Any) -> None:
    read_or_refuse(yaml.safe_dump(value).encode())


@given(st.data())
def test_a_pod_with_anything_anywhere_is_a_pod_or_an_error(data: st.DataObject) -> None:
    document = yaml.safe_load(rendered_server_pod(Shape.OPENSHIFT))
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


def read_or_refuse(content: bytes) -> None:
    try:
        found = read_static_pod(content, "file.yaml")
    except PodError as error:
        outcome: object = error.code
    else:
        outcome = isinstance(found, spec.LabPod) and bool(found.containers)
    assert outcome in (True, "UMB830", "UMB831")


def container(**fields: object) -> spec.Container:
    return pod(with_container(MINIMAL, **fields)).containers[0]


def probe(**fields: object) -> spec.PodProbe:
    found = container(livenessProbe=fields).liveness
    assert found is not None
    return found


def test_probes_are_read_with_the_apis_defaults_or_refused() -> None:
    assert probe(httpGet={"port": 2041}) == spec.PodProbe(spec.HttpGet(2041, "/"), 0, 10, 1, 1, 3)
    headers = [{"name": "X-Who", "value": "me"}]
    action = {"port": "https", "path": "livez", "scheme": "HTTPS", "host": "127.0.0.1", "httpHeaders": headers}
    assert probe(httpGet=action).action == spec.HttpGet("https", "/livez", "127.0.0.1", True, (("X-Who", "me"),))
    assert probe(tcpSocket={"port": 80}).action == spec.TcpSocket(80)
    assert probe(exec={"command": ["true"]}).action == spec.Execute(("true",))
    fields: dict[str, Any]
    for fields in (
        {},
        {"grpc": {"port": 1}},
        {"httpGet": {}},
        {"httpGet": {"port": 0}},
        {"httpGet": {"port": 70000}},
        {"httpGet": {"port": 1, "path": "/a b"}},
        {"httpGet": {"port": 1, "path": "/a\r\nHost: x"}},
        {"httpGet": {"port": 1, "httpHeaders": [{"name": "a:b", "value": ""}]}},
        {"httpGet": {"port": 1, "httpHeaders": [{"name": "a", "value": "x\r\ny: z"}]}},
        {"httpGet": {"port": 1}, "periodSeconds": "often"},
    ):
        with pytest.raises(PodError, match="UMB831"):
            probe(**fields)


def test_variables_come_from_values_objects_and_the_pod_itself() -> None:
    found = container(
        env=[
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "D"},
        ],
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "c"}}],
    )
    values = {variable.name: variable.value for variable in found.variables}
    assert values == {
        "A": "1",
        "B": spec.KeyOf(spec.SourceKind.SECRET, "s", "k", True),
        "C": spec.FieldOf("status.podIP"),
        "D": "",
    }
    assert found.variables_from == (spec.AllOf(spec.SourceKind.CONFIG_MAP, "c", "P_"),)


def test_what_the_process_runner_cannot_give_is_refused_by_name() -> None:
    fields: dict[str, Any]
    for fields in (
        {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
        {"env": [{"name": "A=B", "value": ""}]},
        {"env": [{"name": "A", "value": "x\0y"}]},
        {"command": ["a\0b"]},
        {"restartPolicy": "Always"},
        {"lifecycle": {"preStop": {}}},
        {"workingDir": "relative"},
        {"volumeMounts": [{"name": "v", "mountPath": "a"}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/a/../b"}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "../b"}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a/"}]},
    ):
        with pytest.raises(PodError, match="UMB831"):
            container(**fields)


def test_the_containers_word_counts_before_the_pods_and_only_named_ports_are_kept() -> None:
    document = changed(MINIMAL, "spec", securityContext={"runAsUser": 5, "runAsGroup": 6, "runAsNonRoot": True})
    own = with_container(document, securityContext={"runAsUser": 0, "runAsNonRoot": False})
    assert pod(document).containers[0].security.user == 5
    security = pod(own).containers[0].security
    assert (security.user, security.group, security.refuses_root) == (0, 6, False)
    found = container(ports=[{"containerPort": 1}, {"name": "http", "containerPort": 8080}])
    assert found.ports == (("http", 8080),)


def volume(**fields: object) -> spec.HostPath | spec.EmptyDirectory | spec.ProjectedFiles:
    return pod(changed(MINIMAL, "spec", volumes=[{"name": "v", **fields}])).volumes[0].content


def test_volumes_of_every_kind_are_read_or_refused() -> None:
    assert volume(hostPath={"path": "/a"}) == spec.HostPath("/a", spec.PathType.ANY)
    assert volume(hostPath={"path": "/a", "type": "Socket"}) == spec.HostPath("/a", spec.PathType.SOCKET)
    expected = spec.ProjectedFiles((spec.KeysOf(spec.SourceKind.SECRET, "s"),), 0o440)
    assert volume(secret={"secretName": "s", "defaultMode": 0o440}) == expected
    items = [{"key": "k", "path": "a/b", "mode": 0o400}, {"key": "l", "path": "l"}]
    found = volume(configMap={"name": "c", "items": items, "optional": True})
    assert found == spec.ProjectedFiles(
        (spec.KeysOf(spec.SourceKind.CONFIG_MAP, "c", (spec.Item("k", "a/b", 0o400), spec.Item("l", "l")), True),)
    )
    assert volume(emptyDir={}) == spec.EmptyDirectory()
    assert volume(emptyDir={"medium": "Memory"}) == spec.EmptyDirectory(is_in_memory=True)
    fields: dict[str, Any]
    for fields in (
        {},
        {"nfs": {"server": "a", "path": "/b"}},
        {"hostPath": {"path": "a"}},
        {"hostPath": {"path": "/a/../b"}},
        {"hostPath": {"path": "/a", "type": "Something"}},
        {"secret": {}},
        {"secret": {"secretName": "a/b"}},
        {"secret": {"secretName": "a", "defaultMode": 0o1777}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "/a"}]}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "a/../../b"}]}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "..data"}]}},
        {"projected": {"sources": [{"clusterTrustBundle": {}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}},
    ):
        with pytest.raises(PodError, match="UMB831"):
            volume(**fields)


def test_the_volume_that_the_api_gives_every_pod_is_read() -> None:
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    found = volume(projected={"defaultMode": 420, "sources": sources})
    assert found == spec.ProjectedFiles(
        (
            spec.ServiceAccountToken("token", "", 3607),
            spec.KeysOf(spec.SourceKind.CONFIG_MAP, "kube-root-ca.crt", (spec.Item("ca.crt", "ca.crt"),)),
            spec.FieldFile(spec.FieldOf("metadata.namespace"), "namespace"),
        )
    )
