"""What every scene can do: lay files, count bytes, see what is left, and be taken up by another terminal."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.labs import running

from umbilical.assets.names import OWN, STATIC_POD
from umbilical.lab.cast import Cast
from umbilical.lab.errors import LabError
from umbilical.lab.lab import Lab
from umbilical.lab.scene import BOOTSTRAP, COUNTER, counting_rules
from umbilical.lab.scenes import load_scene, make_scene
from umbilical.lab.story import Story

pytestmark = pytest.mark.real("unshare", "nsenter", "nft", "ss")
_TALK = """
import socket, threading
server = socket.create_server(("10.91.0.10", 8091))
def answer():
    peer, _ = server.accept()
    while peer.recv(65536): pass
    peer.sendall(b"x" * 20000)
    peer.close()
thread = threading.Thread(target=answer); thread.start()
client = socket.create_connection(("10.91.0.10", 8091), 5)
client.sendall(b"y" * 10000); client.shutdown(socket.SHUT_WR)
while client.recv(65536): pass
thread.join(5)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("scene") / "lab") as lab:
        yield lab


@pytest.fixture(autouse=True)
def _clean(lab: Lab) -> Iterator[None]:
    yield
    lab.directory.scene_file.unlink(missing_ok=True)
    for path in (STATIC_POD, OWN.pki_directory):
        if lab.exists(BOOTSTRAP, path):
            lab.remove(BOOTSTRAP, path)


def test_a_tunnel_is_taken_up_by_another_terminal(lab: Lab) -> None:
    parts = make_scene(lab, Cast(is_stand_in=True), Story("first")).make_tunnel()
    again = load_scene(lab, Story("second"))
    assert again.tunnel.certificates == parts.certificates
    assert again.cast == Cast(is_stand_in=True)


def test_the_tunnels_keys_are_written_down_for_their_owner_alone(lab: Lab) -> None:
    make_scene(lab, Cast(is_stand_in=True), Story("first")).make_tunnel()
    assert stat.S_IMODE(lab.directory.scene_file.stat().st_mode) == 0o600


def test_where_nothing_was_played_there_is_nothing_to_take_up(lab: Lab) -> None:
    with pytest.raises(LabError) as caught:
        load_scene(lab, Story("second"))
    assert caught.value.code == "UMB851"


def test_what_lies_on_the_bootstrap_node_is_named_as_left_over(lab: Lab) -> None:
    scene = make_scene(lab, Cast(is_stand_in=True), Story("first"))
    scene.lay_files(BOOTSTRAP, scene.make_tunnel().files)
    assert scene.node_leftovers() == [STATIC_POD, OWN.pki_directory]
    for path in (STATIC_POD, OWN.pki_directory):
        lab.remove(BOOTSTRAP, path)
    assert scene.node_leftovers() == []


def test_bytes_on_the_agents_port_are_counted_in_both_directions(lab: Lab) -> None:
    scene = make_scene(lab, Cast(is_stand_in=True), Story("first"))
    lab.add_rules(BOOTSTRAP, COUNTER, counting_rules(8091))
    try:
        assert scene.tunnel_bytes() == 0
        lab.exec(BOOTSTRAP, [sys.executable, "-c", _TALK]).check()
        # Headers come on top; on loopback both chains see a packet, each in one direction.
        assert 30_000 < scene.tunnel_bytes() < 40_000
    finally:
        lab.remove_rules(BOOTSTRAP, COUNTER)


def test_no_agent_runs_where_none_was_started(lab: Lab, tmp_path: Path) -> None:
    scene = make_scene(lab, Cast(is_stand_in=True), Story("first"))
    scene.make_tunnel()
    assert scene.connected_agents() == []
