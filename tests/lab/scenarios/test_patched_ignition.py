"""A patched bootstrap.ign, told with the real programs: from the installer's file to a tunnel that was cut."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.assets.names import STAGES
from umbilical.lab.cast import UPSTREAM
from umbilical.lab.patched_scene import NEEDED
from umbilical.lab.scenarios.patched_ignition import SCENARIOS
from umbilical.lab.story import Call


def test_the_payload_s_own_programs_play() -> None:
    (scenario,) = SCENARIOS
    assert (scenario.cast.server_image, scenario.cast.agent_image) == (UPSTREAM, UPSTREAM)
    assert scenario.programs == ("proxy-server", "proxy-agent")
    assert not scenario.has_stand_in


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, *NEEDED, "nft", "proxy-server", "proxy-agent")
def test_the_story_from_the_installer_s_file_to_the_cut(tmp_path: Path) -> None:
    story = tell("patched-ignition", tmp_path)
    text = evidence(story)

    assert "bootkube.sh of 4.18 recognised" in text
    assert "stands in for podman" in text
    assert "konnectivity-signer" in text
    assert "IP Address:10.91.0.10" in text
    assert "--egress-selector-config-file=/etc/kubernetes/config/egress-selector-config.yaml" in text
    assert "the webhook in the cluster says no" in text
    assert [f"{stage}: success" in text for stage in STAGES] == [True] * len(STAGES)
    assert story.figures["agents"] == "3"
    assert not story.picture.server
    assert story.picture.production_call is Call.DENIED
