from tests.support.fault_scene import MemoryScene

from umbilical.assets.names import STATIC_POD
from umbilical.lab.faults import registry
from umbilical.lab.scene import Verdict
from umbilical.lab.story import Call


def test_a_dead_socket_lies_there_while_the_server_is_away_and_the_server_comes_back() -> None:
    scene = MemoryScene().lay()
    scene.verdict = Verdict(Call.UNREACHABLE, "connection refused")
    path, manifest = scene.tunnel.spec.socket_on_host, scene.memory.files[STATIC_POD]
    assert registry.find("stale-socket").break_(scene) == {"seen": "connection refused"}
    did = [line for line in scene.memory.did if "python" not in line]
    assert did == [f"remove bootstrap:{STATIC_POD}", f"bootstrap$ rm -f {path}", f"write bootstrap:{STATIC_POD}"]
    assert scene.memory.files[STATIC_POD] == manifest


def test_a_break_that_was_interrupted_is_mended_by_the_manifest() -> None:
    scene = MemoryScene().lay()
    manifest = scene.memory.files.pop(STATIC_POD)
    fault = registry.find("stale-socket")
    fault.mend(scene, {})
    assert scene.memory.files[STATIC_POD] == manifest
    scene.memory.did.clear()
    fault.mend(scene, {})
    assert scene.memory.did == []


def test_a_reader_that_never_reads_is_started_and_ended_with_its_source() -> None:
    scene = MemoryScene().lay()
    fault = registry.find("slow-reader")
    memory = fault.break_(scene)
    source, reader = scene.memory.did
    assert source.startswith("worker-0& ")
    assert source.endswith("umbilical.lab.faults.endless_source 10.91.0.21 7777")
    assert reader.endswith(f"lab_slow_reader grpc {scene.tunnel.spec.socket_on_host} 10.91.0.21:7777")
    fault.mend(scene, memory)
    assert scene.memory.did[2:] == ["stop worker-0/endless-source", "stop bootstrap/slow-reader"]
    fault.mend(scene, memory)
    assert len(scene.memory.did) == 4, "twice is fine"
