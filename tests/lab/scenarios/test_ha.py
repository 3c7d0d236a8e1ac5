"""Three servers replaced under calls, told with the real programs."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.lab.scenarios.ha import SERVER_NODES
from umbilical.lab.story import Call


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft")
def test_no_call_fails_while_every_server_is_replaced(tmp_path: Path) -> None:
    story = tell("ha", tmp_path)
    text = evidence(story)
    assert "network is unreachable" in text
    for number, node in enumerate(SERVER_NODES):
        assert f"konnectivity-proxy-server-{node}: 10.91.0.{11 + number}:8091" in text
    assert text.count("it left with exit code 0, and 2 leases are there") == len(SERVER_NODES)
    assert story.figures["agents"] == "5"
    assert int(story.figures["calls"]) > 0
    assert story.figures["calls that failed"] == "0"
    assert text.count("its successor has every agent, and carries calls again") == len(SERVER_NODES)
    assert story.picture.call is Call.ALLOWED
