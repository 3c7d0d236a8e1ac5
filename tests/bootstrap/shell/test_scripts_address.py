"""Which address the node takes, by the real `ip` in networks that are laid out for it."""

import ipaddress
from typing import Any, Final

import pytest
from tests.bootstrap.shell.conftest import Machine

from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape

pytestmark = [pytest.mark.root, pytest.mark.real("ip", "jq", "openssl")]
SERVER_CERTIFICATE: Final = f"{OWN.pki_directory}/server/tls.crt"


def spec(*networks: str, **changes: Any) -> TunnelSpec:
    parsed = tuple(ipaddress.ip_network(text) for text in networks)
    return for_shape(Shape.OPENSHIFT, machine_networks=parsed, **changes)


def found(machine: Machine, wish: TunnelSpec) -> str:
    return told(machine, wish)[0]


def told(machine: Machine, wish: TunnelSpec) -> tuple[str, str]:
    """The address, and what the journal says of it."""
    machine.prepare(wish)
    ended = machine.call(OWN.setup_function)
    assert ended.exit_code == 0, ended.stderr
    return machine.address, ended.stdout.splitlines()[0]


def refusal(machine: Machine, wish: TunnelSpec) -> list[str]:
    machine.prepare(wish)
    ended = machine.call(OWN.setup_function)
    assert ended.exit_code != 0
    assert machine.node.calls("stage-failure") == ["stage-failure konnectivity-certs"]
    assert not machine.node.path("/opt/openshift/umbilical/node-ip").exists()
    assert not machine.node.path(OWN.pki_directory).exists()
    assert not machine.node.path(STATIC_POD).exists()
    return ended.stderr.splitlines()


def test_the_only_address_is_taken_without_any_route(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    assert found(machine, spec()) == "10.0.0.5"


def test_of_two_cards_the_one_of_the_default_route_is_taken(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.nic("10.0.1.5/24", "10.0.1.1/24")
    machine.route("10.0.1.1")
    line = "Detected bootstrap node IP: 10.0.1.5 (source address of the route to 1.1.1.1)"
    assert told(machine, spec()) == ("10.0.1.5", line)


def test_the_machine_network_beats_the_default_route(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.nic("10.0.1.5/24", "10.0.1.1/24")
    machine.route("10.0.1.1")
    line = "Detected bootstrap node IP: 10.0.0.5 (source address of the route to 10.0.0.1)"
    assert told(machine, spec("10.0.0.0/24")) == ("10.0.0.5", line)


def test_the_second_machine_network_counts_where_the_first_is_elsewhere(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.route("10.0.0.1")
    assert found(machine, spec("192.168.7.0/24", "10.0.0.0/24")) == "10.0.0.5"


def test_a_floating_address_is_not_taken(machine: Machine) -> None:
    card = machine.nic("10.0.0.5/24", "10.0.0.1/24")
    for floating in ("10.0.0.2/32", "10.0.0.3/24"):
        machine.ip("address", "add", floating, "dev", card)
    assert found(machine, spec("10.0.0.0/24")) == "10.0.0.5"


def test_a_machine_that_is_the_first_of_its_network_takes_its_own_address(machine: Machine) -> None:
    machine.nic("10.0.0.1/24", "10.0.0.9/24")
    assert found(machine, spec("10.0.0.0/24")) == "10.0.0.1"


def test_an_address_that_is_given_is_not_looked_for(machine: Machine) -> None:
    line = "Using bootstrap node IP: 192.0.2.7 (given with the patch, not detected)"
    assert told(machine, spec(node_ip=ipaddress.ip_address("192.0.2.7"))) == ("192.0.2.7", line)


def test_ipv6_takes_the_lasting_global_address(machine: Machine) -> None:
    card = machine.nic("fd00:1::5/64", "fd00:1::1/64")
    machine.ip("address", "add", "fd00:1::6/64", "dev", card, "nodad", "preferred_lft", "0")
    machine.ip("address", "add", "10.0.0.5/24", "dev", card)
    assert found(machine, spec("fd00:1::/64", use_ipv6=True)) == "fd00:1::5"


def test_ipv6_follows_the_default_route_of_its_own_family(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.nic("fd00:1::5/64", "fd00:1::1/64")
    machine.nic("fd00:2::5/64", "fd00:2::1/64")
    machine.route("10.0.0.1")
    machine.route("fd00:2::1")
    assert found(machine, spec(use_ipv6=True)) == "fd00:2::5"


def test_two_addresses_and_no_route_are_told_in_three_lines(machine: Machine) -> None:
    first = machine.nic("10.0.0.5/24", "10.0.0.1/24")
    second = machine.nic("10.0.1.5/24", "10.0.1.1/24")
    what, why, remedy = refusal(machine, spec())
    assert what == "UMB112 could not find the bootstrap node IP"
    assert f"{first} 10.0.0.5/24, {second} 10.0.1.5/24" in why
    assert "--node-ip" in remedy


def test_no_address_in_the_machine_network_is_told(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.route("10.0.0.1")
    _, why, _ = refusal(machine, spec("192.168.7.0/24"))
    assert "none in 192.168.7.0/24" in why


def test_no_address_at_all_is_told(machine: Machine) -> None:
    assert "none" in refusal(machine, spec())[1]


@pytest.mark.parametrize("program", ["ip", "jq"])
def test_a_tool_that_fails_is_not_mistaken_for_an_answer(machine: Machine, program: str) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.route("10.0.0.1")
    machine.node.write(f"/usr/local/bin/{program}", "#!/bin/sh\nexit 5\n", 0o555)
    assert not any("10.0.0.5" in line for line in refusal(machine, spec()))


def test_an_address_that_left_before_agents_were_told_is_replaced(machine: Machine) -> None:
    card = machine.nic("10.0.0.5/24", "10.0.0.1/24")
    assert found(machine, spec()) == "10.0.0.5"
    pod = machine.node.read(STATIC_POD)
    machine.ip("address", "del", "10.0.0.5/24", "dev", card)
    machine.ip("address", "add", "10.0.0.8/24", "dev", card)
    assert machine.call(OWN.setup_function).exit_code == 0
    assert machine.address == "10.0.0.8"
    # The kubelet restarts the server only if its manifest is another one.
    assert machine.node.read(STATIC_POD) != pod


def test_an_address_that_left_later_is_only_warned_of(machine: Machine) -> None:
    card = machine.nic("10.0.0.5/24", "10.0.0.1/24")
    machine.prepare(spec())
    assert machine.call(OWN.setup_function, OWN.manifests_function).exit_code == 0
    before = machine.node.read(SERVER_CERTIFICATE)
    machine.ip("address", "del", "10.0.0.5/24", "dev", card)
    machine.ip("address", "add", "10.0.0.8/24", "dev", card)
    ended = machine.call(OWN.setup_function, OWN.manifests_function)
    assert ended.exit_code == 0
    assert "10.0.0.5 is no longer on this machine" in ended.stderr
    assert machine.node.read(SERVER_CERTIFICATE) == before


def test_a_restart_with_the_same_address_keeps_everything(machine: Machine) -> None:
    machine.nic("10.0.0.5/24", "10.0.0.1/24")
    found(machine, spec())
    before = machine.node.read(SERVER_CERTIFICATE), machine.node.read(STATIC_POD)
    machine.node.forget_calls()
    assert machine.call(OWN.setup_function).exit_code == 0
    assert machine.node.calls("stage-start", "image_for") == []
    assert (machine.node.read(SERVER_CERTIFICATE), machine.node.read(STATIC_POD)) == before
