"""What renderers are given: whether there is a tunnel, and nothing secret in what is printed of it."""

from dataclasses import replace

import pytest
from tests.support.hardway import PULL_SECRET, cluster, identity, inputs

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.inputs import TUNNEL_IMAGE, NodeBase, Payload


@pytest.mark.parametrize(
    ("wish", "has_image", "expected"),
    [
        (Switch.AUTO, True, True),
        (Switch.AUTO, False, False),
        (Switch.ON, False, True),
        (Switch.OFF, True, False),
    ],
)
def test_there_is_a_tunnel_where_it_is_wanted_or_the_release_brings_it(
    wish: Switch, has_image: bool, expected: bool
) -> None:
    images = {TUNNEL_IMAGE: "localhost/tunnel:lab"} if has_image else {}
    given = inputs(Profile.KUBERNETES, 1, 0)
    given = replace(given, cluster=cluster(Profile.KUBERNETES, 1, 0, konnectivity=wish))
    assert replace(given, payload=Payload("v1", "", images)).has_tunnel is expected


def test_secrets_are_not_printed() -> None:
    shown = repr(inputs(Profile.KUBERNETES, 1, 0)) + repr(NodeBase(b"the config", b"the machine config", "rendered-x"))
    for secret in (PULL_SECRET.decode(), identity().kubeadmin_password, identity().kubeadmin_hash, "the config"):
        assert secret not in shown
    assert "PRIVATE KEY" not in shown
