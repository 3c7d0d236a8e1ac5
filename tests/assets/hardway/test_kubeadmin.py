"""The first administrator's password."""

import pytest
from tests.support import hardway

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.hardway.kubeadmin import render_kubeadmin
from umbilical.assets.tree import AssetTree
from umbilical.pki.hardway_set import HardwaySet


def inputs(profile: Profile) -> Inputs:
    return Inputs(hardway.cluster(profile), HardwaySet({}), hardway.payload(profile), hardway.identity())


def test_the_password_is_for_its_owner_alone() -> None:
    (asset,) = render_kubeadmin(inputs(Profile.OPENSHIFT), AssetTree())
    assert (asset.path, asset.mode) == ("auth/kubeadmin-password", 0o600)
    assert asset.content == hardway.identity().kubeadmin_password.encode()


@pytest.mark.parametrize("profile", [Profile.KUBERNETES])
def test_upstream_knows_no_such_user(profile: Profile) -> None:
    assert len(render_kubeadmin(inputs(profile), AssetTree())) == 0
