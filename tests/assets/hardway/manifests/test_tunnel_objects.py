"""The tunnel's objects in the cluster."""

import pytest
from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile, Switch
from umbilical.assets.hardway.manifests.tunnel_objects import tunnel_objects


@pytest.mark.parametrize("profile", Profile)
def test_agents_run_on_every_node_whatever_its_state_and_dial_the_bootstrap_node(profile: Profile) -> None:
    namespace, agents = tunnel_objects(hardway.inputs(profile))
    pod = agents["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "--proxy-server-host=192.168.126.100" in pod["containers"][0]["args"]
    assert pod["containers"][0]["image"] == hardway.payload(profile).images["apiserver-network-proxy"]
    assert agents["metadata"]["namespace"] == namespace["metadata"]["name"]


def test_only_in_openshift_do_constraints_give_agents_their_user() -> None:
    users = {}
    for profile in Profile:
        _, agents = tunnel_objects(hardway.inputs(profile))
        users[profile] = agents["spec"]["template"]["spec"]["securityContext"].get("runAsUser")
    assert users == {Profile.OPENSHIFT: None, Profile.KUBERNETES: 65532}


@pytest.mark.parametrize("profile", Profile)
def test_switched_off_there_is_nothing(profile: Profile) -> None:
    assert tunnel_objects(hardway.inputs(profile, konnectivity=Switch.OFF)) == []
