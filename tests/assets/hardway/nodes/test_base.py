"""The base of a member: a role's own, or the built-in one."""

import json

import pytest
from tests.support.hardway_nodes import content, inputs

from umbilical.assets.hardway.cluster import Profile, Role
from umbilical.assets.hardway.nodes.base import API_SERVER_ENV, VERSION, base_of, builtin_base
from umbilical.ignition.config import read_config


def test_a_given_base_is_taken() -> None:
    given = inputs(Profile.OPENSHIFT, is_based=True)
    node = given.cluster.node("worker-0")
    assert base_of(given, node) is given.bases[Role.WORKER]
    assert base_of(inputs(Profile.OPENSHIFT), node).name == builtin_base(inputs(Profile.OPENSHIFT), node).name


def test_in_openshift_the_built_in_base_is_of_a_role() -> None:
    given = inputs(Profile.OPENSHIFT)
    first, second, worker = (
        builtin_base(given, given.cluster.node(one)) for one in ("master-0", "master-1", "worker-0")
    )
    assert first == second
    assert first.name.startswith("rendered-master-")
    assert worker.name.startswith("rendered-worker-")
    machine_config = json.loads(first.machine_config)
    assert machine_config["metadata"]["name"] == first.name
    assert machine_config["spec"]["config"] == json.loads(first.config)


@pytest.mark.parametrize("profile", list(Profile), ids=lambda one: one.value)
def test_it_has_a_kubelet_with_its_configuration(profile: Profile) -> None:
    given = inputs(profile)
    config = read_config(builtin_base(given, given.cluster.node("master-0")).config)
    assert config.version == VERSION == "3.4.0"
    assert [(unit.name, unit.enabled) for unit in config.units] == [("kubelet.service", True)]
    assert config.file("/etc/kubernetes/kubelet.conf") is not None


def test_in_openshift_it_says_where_the_api_is() -> None:
    given = inputs(Profile.OPENSHIFT)
    config = read_config(builtin_base(given, given.cluster.node("worker-1")).config)
    assert content(config, API_SERVER_ENV).splitlines() == [
        "KUBERNETES_SERVICE_HOST='api-int.ocp4.example.com'",
        "KUBERNETES_SERVICE_PORT='6443'",
    ]
