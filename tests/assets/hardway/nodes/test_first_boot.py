"""What the machine-config server would have added."""

import json

from tests.support.hardway_nodes import machine_config_base

from umbilical.assets.hardway.cluster import Role
from umbilical.assets.hardway.nodes.first_boot import (
    CONTENT,
    ENCAPSULATED,
    NODE_ANNOTATIONS,
    add_first_boot,
    encapsulated,
)
from umbilical.assets.hardway.nodes.parts import Parts

BASE = machine_config_base(Role.MASTER)


def test_all_three_speak_of_the_same_rendered_config() -> None:
    parts = Parts()
    add_first_boot(parts, BASE)
    annotations = json.loads(parts.files[NODE_ANNOTATIONS].content)
    assert annotations == {
        "machineconfiguration.openshift.io/currentConfig": BASE.name,
        "machineconfiguration.openshift.io/desiredConfig": BASE.name,
        "machineconfiguration.openshift.io/firstPivotConfig": BASE.name,
        "machineconfiguration.openshift.io/state": "Done",
    }
    assert parts.files[CONTENT].content == BASE.machine_config
    assert json.loads(parts.last[ENCAPSULATED].content)["metadata"]["name"] == BASE.name


def test_the_encapsulated_one_keeps_what_ignition_cannot_do() -> None:
    spec = encapsulated(BASE)["spec"]
    assert spec["config"] == {"ignition": {"version": "3.5.0"}}
    assert spec["kernelArguments"] == ["quiet"]
    assert spec["osImageURL"].startswith("quay.io/os@sha256:")


def test_the_one_with_the_pull_secret_in_it_is_roots_alone() -> None:
    parts = Parts()
    add_first_boot(parts, BASE)
    assert (parts.files[CONTENT].mode, parts.last[ENCAPSULATED].mode) == (0o600, 0o644)
