"""Flags in, spec out."""

import ipaddress
from typing import Any

import click
import pytest
from tests.cli.native import options_of

from umbilical.assets.errors import AssetError
from umbilical.assets.spec import Mode, Resources, Shape, TunnelSpec, for_shape
from umbilical.cli.bootstrap_options import INSTALLER_NODE_IP, spec_from, spec_options


@click.command()
@spec_options
def command(**options: Any) -> None:
    """Carry the options."""


def spec(*arguments: str) -> TunnelSpec:
    return spec_from(options_of(command, arguments))


@pytest.fixture(autouse=True)
def _no_address_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSTALLER_NODE_IP, raising=False)


@pytest.mark.parametrize("shape", list(Shape))
def test_a_shape_alone_gives_its_defaults(shape: Shape) -> None:
    assert spec("--shape", shape.value) == for_shape(shape)


def test_every_flag_reaches_its_field() -> None:
    arguments = "--shape=seed --mode=grpc --image=registry.example/own:1 --namespace=tunnel --node-ip=fd00::9"
    arguments += " --machine-network=fd00::/64 --machine-network=10.0.0.0/16 --agent-port=9091 --health-port=9092"
    arguments += " --strategies=default,destHost --cpu=1m --memory=2Mi --certificate-hours=3 --no-host-network"
    arguments += " --socket-dir=/etc/kubernetes/bootstrap-configs/tunnel"
    assert spec(*arguments.split()) == for_shape(
        Shape.SEED,
        mode=Mode.GRPC,
        image="registry.example/own:1",
        namespace="tunnel",
        node_ip=ipaddress.ip_address("fd00::9"),
        use_ipv6=True,
        machine_networks=(ipaddress.ip_network("fd00::/64"), ipaddress.ip_network("10.0.0.0/16")),
        agent_port=9091,
        health_port=9092,
        strategies=("default", "destHost"),
        resources=Resources("1m", "2Mi"),
        certificate_hours=3,
        host_network=False,
        socket_directory="/etc/kubernetes/bootstrap-configs/tunnel",
    )


def test_the_installers_own_variable_gives_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSTALLER_NODE_IP, "10.0.0.9")
    assert spec().node_ip == ipaddress.ip_address("10.0.0.9")
    assert spec("--node-ip=10.0.0.8").node_ip == ipaddress.ip_address("10.0.0.8")
    assert spec("--node-ip=auto").node_ip is None


def test_a_variable_that_holds_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSTALLER_NODE_IP, "bootstrap.example")
    with pytest.raises(click.UsageError, match=INSTALLER_NODE_IP):
        spec()


@pytest.mark.parametrize(
    "address",
    ["", "null", "[fd00::1]", "10.0.0.5:8091", "host.example", "0.0.0.0", "ff02::1", "fe80::1", "fd00::1%eth0"],
)
def test_what_no_agent_can_dial_is_refused(address: str) -> None:
    with pytest.raises(click.BadParameter):
        spec("--node-ip", address)


@pytest.mark.parametrize("network", ["10.0.0.5/16", "10.0.0.0/33", "lan", "fd00::1%a/128"])
def test_what_is_no_network_is_refused(network: str) -> None:
    with pytest.raises(click.BadParameter):
        spec("--machine-network", network)


@pytest.mark.parametrize("flag", ["--strategies=", "--image=", "--agent-port=80", "--namespace=A", "--socket-dir=/tmp"])
def test_values_that_the_spec_refuses_are_told_in_three_lines(flag: str) -> None:
    with pytest.raises(AssetError) as fault:
        spec(flag)
    assert fault.value.code == "UMB110"
