"""The tunnel server's flags in words: of all that its pod has, in their order."""

import pytest
from tests.support.hardway_pods import document, seat

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.static_pods.tunnel_flags import KONNECTIVITY_SERVER


@pytest.mark.parametrize("profile", Profile)
def test_every_flag_of_the_pod_is_told_about(profile: Profile) -> None:
    pod = document(profile, "static-pods/bootstrap/konnectivity-server-pod.yaml")
    assert list(KONNECTIVITY_SERVER.command_line(seat(profile))) == pod["spec"]["containers"][0]["args"]
