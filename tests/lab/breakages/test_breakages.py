"""Each breakage: what it breaks, by which code it is recognised, and that mending brings everything back."""

import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.support.breakage_testbed import MemoryLab, MemoryTestbed
from tests.support.fixture_types import Captured
from tests.support.in_process import PATIENCE_SECONDS, Stage, source
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.fault import LabError
from umbilical.lab.breakages import registry
from umbilical.lab.breakages.certificates import restart_server
from umbilical.lab.breakages.networks import refuse_new_connections
from umbilical.lab.breakages.registry import Speaker
from umbilical.lab.breakages.slow_reader import EndlessSource, main, read_nothing
from umbilical.lab.testbed import WebhookVerdict
from umbilical.lab.topology import Family, plan_topology
from umbilical.lab.transcript import CallResult
from umbilical.pki.certificate import Certificate, read_certificates
from umbilical.tunnel.settings import UnixFrontend


def test_a_breakage_says_what_it_is_what_is_seen_and_by_which_code_of_its_own(repository: Path) -> None:
    documented = (repository / "docs" / "errors.md").read_text()
    breakages = {name: registry.find(name) for name in registry.names()}
    assert [name for name, breakage in breakages.items() if breakage.name != name or not breakage.seen] == []
    assert [breakage.summary for breakage in breakages.values() if len(breakage.summary) >= 90] == []
    assert [breakage.code for breakage in breakages.values() if f"| {breakage.code} |" not in documented] == []
    assert len({breakage.code for breakage in breakages.values()}) == len(breakages)
    told = {name for name, breakage in breakages.items() if breakage.ask is not None}
    assert told == {name for name, breakage in breakages.items() if breakage.speaker is Speaker.COMMAND}


def test_an_unknown_breakage_is_answered_with_the_nearest_or_all() -> None:
    for name, hint in (("agent-kil", "did you mean agent-kill?"), ("zzz", "known names: agent")):
        with pytest.raises(LabError, match="UMB860") as caught:
            registry.find(name)
        assert caught.value.why.startswith(hint)


def test_agents_and_the_server_get_their_signals() -> None:
    for name, number in (("agent-kill", "SIGKILL"), ("agent-freeze", "SIGSTOP")):
        testbed = MemoryTestbed()
        assert registry.find(name).break_(testbed) == {"nodes": ["master-0", "worker-0"]}
        assert testbed.scripted.signals == [
            f"{number} {node}/konnectivity-agent-x7/konnectivity-agent" for node in ("master-0", "worker-0")
        ]
    testbed = MemoryTestbed()
    registry.find("server-kill").break_(testbed)
    assert testbed.scripted.signals == ["SIGKILL bootstrap/konnectivity-server/konnectivity-server"]
    testbed.scripted.agents_run = False
    with pytest.raises(LabError, match="UMB862"):
        registry.find("agent-kill").break_(testbed)


def test_frozen_agents_go_on_and_killed_ones_are_the_runners_business() -> None:
    testbed = MemoryTestbed()
    registry.find("agent-freeze").mend(testbed, {})
    assert [line.split()[0] for line in testbed.scripted.signals] == ["SIGCONT"] * 2
    testbed.scripted.signals.clear()
    registry.find("agent-kill").mend(testbed, {})
    registry.find("server-kill").mend(testbed, {})
    assert testbed.scripted.signals == []


def test_links_and_packets_are_mended() -> None:
    testbed = MemoryTestbed()
    breakage = registry.find("link-cut")
    breakage.mend(testbed, breakage.break_(testbed))
    assert testbed.memory.did == ["link of bootstrap down", "link of bootstrap up"]
    testbed.memory.did.clear()
    breakage = registry.find("packet-loss")
    breakage.mend(testbed, breakage.break_(testbed))
    assert testbed.memory.did == ["rules packet_loss on bootstrap", "no rules packet_loss on bootstrap"]


def test_a_blocked_port_is_met_by_agents_that_come_anew() -> None:
    testbed = MemoryTestbed().lay()
    before = testbed.scripted.server_pid
    breakage = registry.find("port-8091-blocked")
    memory = breakage.break_(testbed)
    assert testbed.memory.did[0] == "rules port_blocked on bootstrap"
    assert testbed.scripted.server_pid != before
    breakage.mend(testbed, memory)
    assert testbed.memory.did[-1] == "no rules port_blocked on bootstrap"
    assert "tcp dport 8091 tcp flags & (syn | ack) == syn drop" in refuse_new_connections(8091)


@pytest.mark.parametrize(("family", "second"), [(Family.IPV4, "192.0.2.10/24"), (Family.IPV6, "2001:db8::10/64")])
def test_without_a_route_the_nodes_own_script_is_asked(family: Family, second: str) -> None:
    testbed = MemoryTestbed(MemoryLab(plan_topology(masters=1, workers=0, family=family)))
    breakage = registry.find("no-default-route")
    breakage.break_(testbed)
    assert testbed.memory.did == [
        f"bootstrap$ ip addr replace {second} dev machine0",
        "default route of bootstrap gone",
    ]
    testbed.memory.answers["bash"] = (1, b"", b"UMB112 cannot find the bootstrap node IP\n  why: two\n")
    assert breakage.ask is not None
    assert "UMB112" in breakage.ask(testbed)
    assert "/tmp/umbilical-address.sh" not in testbed.memory.files


def test_the_route_comes_back_and_the_script_finds_the_address_again() -> None:
    testbed = MemoryTestbed()
    breakage = registry.find("no-default-route")
    testbed.memory.answers |= {"ip": (0, b"inet 192.0.2.10/24", b""), "bash": (0, b"10.91.0.10\n", b"")}
    breakage.mend(testbed, {})
    assert "bootstrap$ ip addr del 192.0.2.10/24 dev machine0" in testbed.memory.did
    assert "default route of bootstrap there" in testbed.memory.did
    testbed.memory.answers["ip"] = (0, b"", b"")
    testbed.memory.did.clear()
    breakage.mend(testbed, {})
    assert not any("addr del" in line for line in testbed.memory.did), "twice is fine"
    testbed.memory.answers["bash"] = (1, b"", b"UMB112 cannot find it\n")
    with pytest.raises(LabError, match="UMB864"):
        breakage.mend(testbed, {})


SERVER = f"{OWN.pki_directory}/server/tls.crt"


def broken(testbed: MemoryTestbed, name: str) -> Certificate:
    registry.find(name).break_(testbed)
    (certificate,) = read_certificates(testbed.memory.files[SERVER])
    return certificate


def test_a_wrong_certificate_is_wrong_in_just_its_own_way() -> None:
    certificate = broken(MemoryTestbed().lay(), "certificate-expired")
    assert timedelta(hours=1) < datetime.now(UTC) - certificate.not_after < timedelta(hours=3)
    certificate = broken(MemoryTestbed().lay(), "certificate-from-tomorrow")
    assert timedelta(hours=22) < certificate.not_before - datetime.now(UTC) < timedelta(hours=24)
    certificate = broken(MemoryTestbed().lay(), "wrong-san")
    assert [str(address) for address in certificate.ip_addresses] == ["192.0.2.10"]
    testbed = MemoryTestbed().lay()
    (right,) = read_certificates(testbed.memory.files[SERVER])
    wrong = broken(testbed, "wrong-ca")
    assert (wrong.subject, wrong.ip_addresses) == (right.subject, right.ip_addresses)
    assert wrong.issuer == right.issuer
    assert wrong.authority_identifier != right.authority_identifier


@pytest.mark.parametrize("name", ["certificate-expired", "certificate-from-tomorrow", "wrong-san", "wrong-ca"])
def test_the_manifest_is_written_last_and_everything_comes_back(name: str) -> None:
    testbed = MemoryTestbed().lay()
    before, pid = dict(testbed.memory.files), testbed.scripted.server_pid
    breakage = registry.find(name)
    memory = breakage.break_(testbed)
    assert testbed.memory.did[-1] == f"write bootstrap:{STATIC_POD}"
    assert testbed.scripted.server_pid != pid
    assert memory == {}, "no key may get into the state file"
    breakage.mend(testbed, memory)
    assert testbed.memory.files == before
    pid = testbed.scripted.server_pid
    breakage.mend(testbed, memory)
    assert testbed.memory.files == before, "twice is fine"


def test_a_restart_is_a_change_that_a_kubelet_sees() -> None:
    testbed = MemoryTestbed().lay()
    before, pid = yaml.safe_load(testbed.memory.files[STATIC_POD]), testbed.scripted.server_pid
    restart_server(testbed)
    after = yaml.safe_load(testbed.memory.files[STATIC_POD])
    assert after["metadata"]["annotations"].pop("umbilical.dev/restarted")
    assert after == before
    assert testbed.scripted.server_pid != pid


def test_a_dead_socket_lies_there_while_the_server_is_away_and_the_server_comes_back() -> None:
    testbed = MemoryTestbed().lay()
    testbed.verdict = WebhookVerdict(CallResult.UNREACHABLE, "connection refused")
    path, manifest = testbed.tunnel.spec.socket_on_host, testbed.memory.files[STATIC_POD]
    assert registry.find("stale-socket").break_(testbed) == {"seen": "connection refused"}
    did = [line for line in testbed.memory.did if "python" not in line]
    assert did == [f"remove bootstrap:{STATIC_POD}", f"bootstrap$ rm -f {path}", f"write bootstrap:{STATIC_POD}"]
    assert testbed.memory.files[STATIC_POD] == manifest


def test_a_break_that_was_interrupted_is_mended_by_the_manifest() -> None:
    testbed = MemoryTestbed().lay()
    manifest = testbed.memory.files.pop(STATIC_POD)
    breakage = registry.find("stale-socket")
    breakage.mend(testbed, {})
    assert testbed.memory.files[STATIC_POD] == manifest
    testbed.memory.did.clear()
    breakage.mend(testbed, {})
    assert testbed.memory.did == []


def test_a_reader_that_never_reads_is_started_and_ended_with_its_source() -> None:
    testbed = MemoryTestbed().lay()
    breakage = registry.find("slow-reader")
    memory = breakage.break_(testbed)
    source, reader = testbed.memory.did
    assert source.startswith("worker-0& ")
    assert source.endswith("umbilical.lab.breakages.slow_reader source 10.91.0.21 7777")
    assert reader.endswith(f"breakages.slow_reader grpc {testbed.tunnel.spec.socket_on_host} 10.91.0.21:7777")
    breakage.mend(testbed, memory)
    assert testbed.memory.did[2:] == ["stop worker-0/endless-source", "stop bootstrap/slow-reader"]
    breakage.mend(testbed, memory)
    assert len(testbed.memory.did) == 4, "twice is fine"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_endless_source_sends_without_end_to_everybody(address: str) -> None:
    with EndlessSource(address, 0) as source:
        thread = threading.Thread(target=source.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        place = (address, source.server_address[1])
        with socket.create_connection(place, timeout=10) as one, socket.create_connection(place, timeout=10) as two:
            for connection in (one, two):
                received = 0
                while received < 1 << 20:
                    piece = connection.recv(1 << 16)
                    assert piece == bytes(len(piece)) != b""
                    received += len(piece)
        source.shutdown()
        thread.join(10)


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_a_tunnel_is_opened_and_nothing_is_read_from_it(mode: str, tmp_path: Path, capsys: Captured) -> None:
    stage = Stage(make_tunnel_pki(tmp_path), tmp_path)
    try:
        server, _ = stage.start_pair(mode)
        assert isinstance(server.settings.frontend, UnixFrontend)
        path = str(server.settings.frontend.path)
        endpoint = stage.endpoint().serve(source(64 << 20))
        hold, statuses = threading.Event(), list[int]()
        arguments = (mode, path, endpoint.address)
        reader = threading.Thread(target=lambda: statuses.append(read_nothing(*arguments, hold)))
        reader.start()
        stage.eventually(lambda: server.server.core.registry.established_count() == 1)
        hold.set()
        reader.join(PATIENCE_SECONDS)
        assert statuses == [0]
        assert "not reading" in capsys.readouterr().out
        server.wait_until_quiet()
    finally:
        stage.stop()


def test_a_dial_that_fails_is_told(tmp_path: Path, capsys: Captured) -> None:
    assert main(["grpc", str(tmp_path / "gone.sock"), "10.0.0.5:443"]) == 1
    assert "no tunnel to 10.0.0.5:443: " in capsys.readouterr().err
