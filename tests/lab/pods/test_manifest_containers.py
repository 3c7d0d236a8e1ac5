"""Containers: commands, variables, mounts, privileges and probes as the API has them."""

from typing import Any

import pytest
from tests.support.manifests import MINIMAL, changed, with_container

from umbilical.lab.pods.errors import PodError
from umbilical.lab.pods.manifest import pod
from umbilical.lab.pods.spec import AllOf, Container, Execute, FieldOf, HttpGet, KeyOf, Kind, Probe, TcpSocket


def container(**fields: object) -> Container:
    return pod(with_container(MINIMAL, **fields)).containers[0]


def probe(**fields: object) -> Probe:
    found = container(livenessProbe=fields).liveness
    assert found is not None
    return found


def test_probes_have_the_apis_defaults() -> None:
    found = probe(httpGet={"port": 2041})
    assert found == Probe(HttpGet(2041, "/"), 0, 10, 1, 1, 3)


def test_an_https_probe_with_headers_is_read() -> None:
    headers = [{"name": "X-Who", "value": "me"}]
    action = {"port": "https", "path": "livez", "scheme": "HTTPS", "host": "127.0.0.1", "httpHeaders": headers}
    assert probe(httpGet=action).action == HttpGet("https", "/livez", "127.0.0.1", True, (("X-Who", "me"),))


def test_probes_by_connection_and_by_command_are_read() -> None:
    assert probe(tcpSocket={"port": 80}).action == TcpSocket(80)
    assert probe(exec={"command": ["true"]}).action == Execute(("true",))


@pytest.mark.parametrize(
    "fields",
    [
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
    ],
)
def test_a_probe_that_cannot_be_asked_is_refused(fields: dict[str, Any]) -> None:
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
    assert values == {"A": "1", "B": KeyOf(Kind.SECRET, "s", "k", True), "C": FieldOf("status.podIP"), "D": ""}
    assert found.variables_from == (AllOf(Kind.CONFIG_MAP, "c", "P_"),)


@pytest.mark.parametrize(
    "fields",
    [
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
    ],
)
def test_what_the_process_runner_cannot_give_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(PodError, match="UMB831"):
        container(**fields)


def test_the_containers_word_counts_before_the_pods() -> None:
    document = changed(MINIMAL, "spec", securityContext={"runAsUser": 5, "runAsGroup": 6, "runAsNonRoot": True})
    own = with_container(document, securityContext={"runAsUser": 0, "runAsNonRoot": False})
    assert pod(document).containers[0].security.user == 5
    security = pod(own).containers[0].security
    assert (security.user, security.group, security.refuses_root) == (0, 6, False)


def test_only_named_ports_are_kept() -> None:
    found = container(ports=[{"containerPort": 1}, {"name": "http", "containerPort": 8080}])
    assert found.ports == (("http", 8080),)
