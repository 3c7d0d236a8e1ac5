"""The tunnel's one input in both profiles."""

import pytest
from tests.support import hardway

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.inputs import Inputs, Payload
from umbilical.assets.hardway.tunnel import tunnel_spec
from umbilical.assets.spec import Shape
from umbilical.pki.hardway_set import HardwaySet


def inputs(profile: Profile, payload: Payload | None = None) -> Inputs:
    cluster = hardway.cluster(profile, konnectivity=Switch.ON)
    return Inputs(cluster, HardwaySet({}), payload or hardway.payload(profile), hardway.identity())


@pytest.mark.parametrize("profile", Profile)
def test_agents_dial_the_bootstrap_node_and_have_a_namespace_of_their_own(profile: Profile) -> None:
    spec = tunnel_spec(inputs(profile))
    assert str(spec.node_ip) == "192.168.126.100"
    assert spec.owns_namespace
    assert spec.image == hardway.payload(profile).images["apiserver-network-proxy"]


def test_only_openshift_puts_agents_into_the_pod_network() -> None:
    assert [tunnel_spec(inputs(one)).shape for one in Profile] == [Shape.OPENSHIFT, Shape.KUBERNETES]
    assert [tunnel_spec(inputs(one)).host_network for one in Profile] == [False, True]


def test_a_tunnel_that_is_wished_for_needs_an_image() -> None:
    with pytest.raises(AssetError) as caught:
        tunnel_spec(inputs(Profile.OPENSHIFT, Payload("4.18.0", "", {})))
    assert caught.value.code == "UMB716"
    assert "konnectivity: off" in caught.value.remedy
