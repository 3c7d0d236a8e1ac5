"""What goes again, and how."""

import json

import pytest
from hypothesis import given as drawn
from hypothesis import strategies
from tests.support import hardway
from tests.support.hardway_pods import inputs

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.static_pods.removals import read_removals, removals, write_removals


@pytest.mark.parametrize("profile", Profile)
def test_what_is_written_is_what_is_read(profile: Profile) -> None:
    steps = removals(inputs(profile))
    assert read_removals(write_removals(steps)) == steps


def test_the_tunnel_goes_at_the_pivot_with_its_namespace() -> None:
    [tunnel] = removals(inputs(Profile.KUBERNETES))
    assert (tunnel.what, tunnel.stage, tunnel.namespace) == ("konnectivity", 13, "bootstrap-konnectivity")
    assert tunnel.files == (("bootstrap", "/etc/kubernetes/manifests/konnectivity-server-pod.yaml"),)


def test_openshifts_kube_proxy_goes_from_every_node_with_its_rules() -> None:
    [_, proxy] = removals(inputs(Profile.OPENSHIFT))
    assert [node for node, _ in proxy.files] == ["master-0", "master-1", "master-2", "worker-0", "worker-1"]
    assert [node for node, _ in proxy.commands] == [node for node, _ in proxy.files]
    assert {words[-1] for _, words in proxy.commands} == {"--cleanup"}


def test_what_is_not_there_is_not_removed() -> None:
    off = hardway.inputs(Profile.OPENSHIFT, konnectivity=Switch.OFF)
    assert removals(off) == []


@pytest.mark.parametrize("content", [b"", b"{}x", b"[1]", b'[{"what": "one"}]', b"\xff", b"7"])
def test_something_else_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_removals(content)


_JSON = strategies.recursive(
    strategies.none() | strategies.integers() | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
)


@drawn(_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    content = json.dumps(value).encode()
    try:
        steps = read_removals(content)
    except ValueError:
        return
    assert read_removals(write_removals(steps)) == steps
