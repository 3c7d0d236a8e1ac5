"""Converted letters through the tunnel, told with the real programs."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.lab.story import Call


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft")
def test_a_letter_cannot_be_read_without_the_tunnel_and_can_through_it(tmp_path: Path) -> None:
    story = tell("conversion-webhook", tmp_path)
    text = evidence(story)
    assert "conversion webhook for post.umbilical.dev/v1, Kind=Letter failed" in text
    assert "network is unreachable" in text
    assert "umbilical.dev/converted-by: worker-0" in text
    assert "good night, moon" in text
    assert int(story.figures["calls"]) > 0
    assert story.picture.call is Call.ALLOWED
