"""Where kube-apiserver's egress argument is found, on OpenShift and elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.object_store import ObjectStore, with_client
from tests.support.scripted_api import status_answer

from umbilical.bootstrap.egress_left import EgressLeft, egress_left

OPERATOR = "/apis/operator.openshift.io/v1/kubeapiservers/cluster"
CONFIG_MAPS = "/api/v1/namespaces/openshift-kube-apiserver/configmaps"
PODS = "/api/v1/namespaces/kube-system/pods"
OPENSHIFT_PODS = "/api/v1/namespaces/openshift-kube-apiserver/pods"
ARGUMENTS = {"apiServerArguments": {"egress-selector-config-file": ["/etc/e.yaml"]}}


def left(store: ObjectStore, folder: Path) -> EgressLeft:
    return with_client(store, folder, egress_left)


def pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "kas"}, "spec": {"containers": [{"name": "x"}, container]}}


def test_a_cluster_without_it_has_nothing_left(tmp_path: Path) -> None:
    store = ObjectStore({f"{PODS}/kas": pod(command=["kube-apiserver", "--v=2"])})
    assert left(store, tmp_path) == EgressLeft()


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["kube-apiserver", "--egress-selector-config-file=/e"]},
        {"args": ["--egress-selector-config-file", "/e"]},
        {"args": ["exec kube-apiserver --v=2 --egress-selector-config-file=/e"]},
    ],
)
def test_a_command_line_is_read_word_by_word(container: dict[str, Any], tmp_path: Path) -> None:
    store = ObjectStore({f"{PODS}/kas": pod(**container), f"{OPENSHIFT_PODS}/kas": pod(args=None)})
    assert left(store, tmp_path).places == ["Pod kube-system/kas"]


def test_pods_are_found_by_their_labels(tmp_path: Path) -> None:
    store = ObjectStore()
    left(store, tmp_path)
    selectors = {request.query["labelSelector"] for request in store.requests if request.path.endswith("/pods")}
    assert selectors == {"component=kube-apiserver", "app=openshift-kube-apiserver"}


@pytest.mark.parametrize("part", ["observedConfig", "unsupportedConfigOverrides"])
def test_the_operators_object_is_looked_at(part: str, tmp_path: Path) -> None:
    store = ObjectStore({OPERATOR: {"spec": {part: ARGUMENTS}}})
    assert left(store, tmp_path).places == [f"kubeapiservers.operator.openshift.io/cluster spec.{part}"]


def test_the_configurations_of_running_kube_apiservers_are_looked_at(tmp_path: Path) -> None:
    store = ObjectStore(
        {
            OPERATOR: {"status": {"nodeStatuses": [{"currentRevision": 7}, {"currentRevision": 8}, {}]}},
            f"{CONFIG_MAPS}/config": {"data": {"config.yaml": "{}"}},
            f"{CONFIG_MAPS}/config-7": {"data": {"config.yaml": json.dumps(ARGUMENTS)}},
            f"{CONFIG_MAPS}/config-8": {"data": {"config.yaml": "apiServerArguments: [\x00"}},
        }
    )
    assert left(store, tmp_path).places == ["ConfigMap openshift-kube-apiserver/config-7"]
    yaml_text = "apiServerArguments:\n  egress-selector-config-file: [/e]\n"
    store.objects[f"{CONFIG_MAPS}/config-8"] = {"data": {"config.yaml": yaml_text}}
    assert len(left(store, tmp_path).places) == 2


def test_what_may_not_be_looked_at_is_told_and_the_rest_is(tmp_path: Path) -> None:
    store = ObjectStore(
        {f"{PODS}/kas": pod(args=["--egress-selector-config-file=/e"])},
        {("GET", OPERATOR): status_answer(403, "Forbidden", "no operators for you")},
    )
    result = left(store, tmp_path)
    assert result.places == ["Pod kube-system/kas"]
    assert set(result.refusals) == {"no operators for you"}
