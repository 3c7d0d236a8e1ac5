import logging
import socket
from pathlib import Path

import pytest
from tests.support.dialling import ScriptedResolver, ask, failure, listening

from umbilical.fault import StartupError
from umbilical.tunnel.destinations import DestinationGate, is_of_this_machine
from umbilical.tunnel.dialing import EndpointDialer
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.settings import DestinationSettings

V4, V6 = socket.AF_INET, socket.AF_INET6
NATIVE = DestinationSettings(denied=("local",))


def gated(plane: Loop, settings: DestinationSettings, resolver: ScriptedResolver | None = None) -> EndpointDialer:
    gate = DestinationGate(settings, frozenset({8093}))
    return EndpointDialer(plane, resolver or ScriptedResolver(), 10.0, 10, gate=gate)


def test_a_denied_address_is_answered_at_once_and_never_connected_to(plane: Loop) -> None:
    listener, port = listening()
    where = gated(plane, NATIVE)
    text = failure(plane, where, f"127.0.0.1:{port}")
    why = "destination denied by the agent: the agent's loopback is denied by default"
    assert text == f"dial tcp 127.0.0.1:{port}: {why}"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert where.gate is not None
    assert where.gate.denied == {"loopback": 1}


@pytest.mark.parametrize(
    "shown", ["127.0.0.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", ""]
)
def test_every_way_to_write_the_loopback_is_denied(plane: Loop, shown: str) -> None:
    assert "destination denied by the agent" in failure(plane, gated(plane, NATIVE), f"{shown}:2379")


def test_a_name_is_judged_by_the_addresses_that_it_has(plane: Loop) -> None:
    """Its owner may point it anywhere after the rules were written."""
    names = ScriptedResolver({"harmless.example.com": [(V4, "169.254.169.254", 80)]})
    text = failure(plane, gated(plane, NATIVE, names), "harmless.example.com:80")
    assert text.endswith("denied by the agent: link-local addresses are denied by default")


def test_of_several_addresses_only_the_allowed_ones_are_tried(plane: Loop) -> None:
    _, port = listening("127.0.0.1")
    names = ScriptedResolver({"two.example.com": [(V6, "fe80::1", port), (V4, "127.0.0.1", port)]})
    settings = DestinationSettings(allowed=(f"127.0.0.1:{port}",), denied=("local",))
    caller = ask(plane, gated(plane, settings, names), f"two.example.com:{port}")
    assert caller.sock is not None


def test_a_denied_name_is_not_looked_up(plane: Loop) -> None:
    names = ScriptedResolver()
    text = failure(plane, gated(plane, DestinationSettings(denied=(".example.com",)), names), "db.example.com:443")
    assert text == "dial tcp db.example.com:443: destination denied by the agent: rule: deny .example.com"
    assert names.asked == []


def test_the_agents_own_ports_are_known_by_the_machines_addresses() -> None:
    assert is_of_this_machine(V4, "127.0.0.1")
    assert is_of_this_machine(V4, "127.200.0.1")
    assert is_of_this_machine(V6, "::1")
    assert not is_of_this_machine(V4, "192.0.2.1")  # for documentation only (RFC 5737)
    assert not is_of_this_machine(V6, "2001:db8::1")


def test_the_agents_own_ports_are_denied_at_its_machines_addresses_and_nowhere_else() -> None:
    gate = DestinationGate(NATIVE, frozenset({8093}), lambda _, address: address == "10.0.0.7")
    assert gate.refusal("", V4, "10.0.0.7", 8093) == "the agent's health and admin ports are denied by default"
    assert gate.refusal("", V4, "10.0.0.7", 8094) == ""
    assert gate.refusal("", V4, "10.0.0.8", 8093) == ""
    assert gate.denied == {"own-port": 1}


def test_a_changed_file_applies_to_new_dials_and_a_bad_one_changes_nothing(
    plane: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "destinations"
    path.write_text("deny 127.0.0.9\n")
    gate = DestinationGate(DestinationSettings(path=path), frozenset())
    assert gate.refusal("", V4, "127.0.0.9", 80) == "rule: deny 127.0.0.9"
    path.write_text("deny 127.0.0.10/32\n")
    assert not gate.is_open(plane.now)
    assert gate.refusal("", V4, "127.0.0.9", 80) == ""
    path.write_text("deny nonsense/32\n")
    gate.look()
    assert gate.refusal("", V4, "127.0.0.10", 80) == "rule: deny 127.0.0.10/32"
    path.unlink()
    gate.look()
    assert gate.refusal("", V4, "127.0.0.10", 80) == "rule: deny 127.0.0.10/32"
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == f"destination rules reloaded file={path}"
    assert messages[1].startswith("UMB348 changed destination rules cannot be used, the previous ones stay in use")
    assert "line 1: 'nonsense/32' is neither an address nor a network" in messages[1]
    assert messages[2].endswith("No such file or directory")


def test_rules_that_cannot_be_used_at_the_start_are_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "destinations"
    path.write_text("forbid 10.0.0.0/8\n")
    with pytest.raises(StartupError) as caught:
        DestinationGate(DestinationSettings(path=path), frozenset())
    assert caught.value.code == "UMB348"
    assert str(path) in caught.value.what


def test_without_rules_nothing_is_judged(plane: Loop) -> None:
    assert DestinationGate(DestinationSettings(), frozenset()).is_open(plane.now)
