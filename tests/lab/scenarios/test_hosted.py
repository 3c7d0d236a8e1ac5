"""A hosted control plane told with the real programs: apart from its nodes, under calls, and with a server killed."""

from pathlib import Path

import pytest
from tests.support.lab_stories import KUBERNETES, SECONDS, evidence, tell

from umbilical.lab.hosted_parts import CLIENT_NODE, SERVER_NODES, topology
from umbilical.lab.scenarios.hosted_losses import HELD_EACH
from umbilical.lab.story import Call

# What the kernel and Python need on a machine with eight times as many programs as cores; it is 0.02 s on a quiet one.
GENEROUS_SECONDS = 20.0


@pytest.mark.timeout(SECONDS)
@pytest.mark.real(*KUBERNETES, "nft", "curl")
def test_a_killed_server_costs_what_went_through_it_and_nothing_else_is_lost(tmp_path: Path) -> None:
    story = tell("hosted", tmp_path)
    text = evidence(story)
    assert "control plane: 192.168.91.0/24; nodes: 10.91.0.0/24, 10.92.0.0/16, 10.93.0.0/16" in text
    assert f"{CLIENT_NODE} to the pod: <urlopen error [Errno 101] Network is unreachable>" in text
    assert f"each connected to {len(SERVER_NODES)} servers" in text
    assert "it was asked from nowhere alone, 0 times" in text
    assert f"it was asked from {topology().node(CLIENT_NODE).address} alone" in text
    assert text.count(": 200 from 127.0.0.1") == 3
    assert "UMB504 no connection to missing." in text
    assert "it left with exit code 0" in text
    assert story.figures["calls that failed"] == "0"
    assert int(story.figures["calls of kube-apiserver"]) > 0
    assert int(story.figures["calls through proxies"]) > 0
    assert story.figures["streams that ended"] == f"{2 * HELD_EACH} of {3 * HELD_EACH}"
    assert 0.0 < float(story.figures["last of them after"].removesuffix(" s")) < GENEROUS_SECONDS
    cause = "Refused: 502 Bad Gateway: UMB513 the way to lab-service.lab.svc.cluster.local:8080 broke"
    assert cause in text, "a request without an answer gets one from the proxy, and it tells the cause"
    assert f"the tunnel broke: server {topology().node(SERVER_NODES[0]).address}:8090: " in text
    assert int(story.figures["calls after the kill"]) > 0
    assert f"{HELD_EACH} streams were heard to the end" in text
    assert story.picture.call is Call.UNREACHABLE
