"""Namespaces of OpenShift."""

from tests.support import hardway

from umbilical.assets.hardway.manifests.namespaces import OTHERS, STATIC_PODS, namespaces


def test_namespaces_of_static_pods_are_privileged_and_judged_by_nobody() -> None:
    found = {one["metadata"]["name"]: one["metadata"] for one in namespaces(hardway.inputs())}
    for name in STATIC_PODS:
        assert found[name]["labels"]["openshift.io/run-level"] == "0"
        assert found[name]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert not [name for name in OTHERS if "labels" in found[name]]


def test_no_default_node_selector_keeps_pods_off_masters() -> None:
    for one in namespaces(hardway.inputs()):
        assert one["metadata"]["annotations"] == {
            "openshift.io/node-selector": "",
            "workload.openshift.io/allowed": "management",
        }
