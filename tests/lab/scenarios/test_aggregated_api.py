"""An aggregated API through the tunnel, told with the real programs."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.lab.story import Call


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft")
def test_it_is_unavailable_without_the_tunnel_and_answers_through_it(tmp_path: Path) -> None:
    story = tell("aggregated-api", tmp_path)
    text = evidence(story)
    assert "Available=False, FailedDiscoveryCheck" in text
    assert "network is unreachable" in text
    assert "Available=True, Passed" in text
    assert "hello world, says worker-0" in text
    assert "system:admin" in text
    assert int(story.figures["calls"]) > 0
    assert story.figures["agents"] == "5"
    assert story.picture.call is Call.ALLOWED
