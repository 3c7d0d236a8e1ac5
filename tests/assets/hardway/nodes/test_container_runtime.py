"""What the container runtime is told."""

import ipaddress
import json
import tomllib
from dataclasses import replace

import pytest
from tests.support import hardway
from tests.support.hardway_nodes import inputs

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.nodes.container_runtime import (
    CONFLIST,
    PAUSE_DROP_IN,
    add_pause_image,
    add_pod_network,
    add_pull_secret,
)
from umbilical.assets.hardway.nodes.parts import Parts
from umbilical.assets.hardway.static_pods.seat import Seat


def test_the_pause_image_is_the_releases_with_its_own_program_and_credentials() -> None:
    parts = Parts()
    given = inputs(Profile.OPENSHIFT)
    add_pause_image(parts, Seat(given, given.cluster.bootstrap))
    assert tomllib.loads(parts.files[PAUSE_DROP_IN].content.decode())["crio"]["image"] == {
        "pause_image": hardway.payload().images["pod"],
        "pause_image_auth_file": "/var/lib/kubelet/config.json",
        "pause_command": "/usr/bin/pod",
    }


def test_a_release_without_one_is_refused() -> None:
    given = inputs(Profile.OPENSHIFT)
    poor = replace(given, payload=replace(given.payload, images={}))
    with pytest.raises(AssetError, match="pod"):
        add_pause_image(Parts(), Seat(poor, poor.cluster.bootstrap))


def test_the_pull_secret_is_roots_alone() -> None:
    parts = Parts()
    add_pull_secret(parts, inputs(Profile.OPENSHIFT))
    (secret,) = parts.files
    assert (secret.content, secret.mode) == (hardway.PULL_SECRET, 0o600)


def test_pods_get_addresses_of_the_nodes_own_piece() -> None:
    parts = Parts()
    add_pod_network(parts, hardway.cluster(Profile.KUBERNETES).node("master-1"))
    (bridge,) = json.loads(parts.files[CONFLIST].content)["plugins"]
    assert bridge["bridge"] == "pods0"
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.128.2.0/23", "gateway": "10.128.2.1"}]]


def test_a_node_without_a_piece_gets_no_network_from_us() -> None:
    parts = Parts()
    add_pod_network(parts, hardway.cluster(Profile.OPENSHIFT).node("master-1"))
    assert len(parts.files) == 0
    given = replace(
        hardway.cluster(Profile.OPENSHIFT).node("master-1"), pod_network=ipaddress.ip_network("10.1.0.0/24")
    )
    add_pod_network(parts, given)
    assert CONFLIST in parts.files
