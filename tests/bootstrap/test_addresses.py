"""The address rule: by which address SSH goes, and which one agents dial."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.install_directories import config

from umbilical.bootstrap.addresses import addresses_of
from umbilical.bootstrap.errors import BootstrapError

ORIGIN = Path("Machine.yaml")
BOTH = (("InternalIP", "10.0.0.9"), ("ExternalIP", "192.0.2.7"))


def machine(*addresses: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]}}


@pytest.mark.parametrize("platform", ["aws", "gcp", "openstack", "nutanix"])
def test_ssh_prefers_the_external_address(platform: str) -> None:
    found = addresses_of(machine(*BOTH), ORIGIN, platform, config())
    assert found.ssh == "192.0.2.7"
    assert found.internal == (ip_address("10.0.0.9"),)


@pytest.mark.parametrize("platform", ["openstack", "vsphere", "powervs", "ibmcloud"])
def test_ssh_takes_the_internal_address_where_there_is_no_other(platform: str) -> None:
    assert addresses_of(machine(("InternalIP", "10.0.0.9")), ORIGIN, platform, config()).ssh == "10.0.0.9"


@pytest.mark.parametrize("platform", ["aws", "gcp"])
def test_a_public_installation_without_an_external_address_is_told(platform: str) -> None:
    with pytest.raises(BootstrapError, match="ExternalIP") as caught:
        addresses_of(machine(("InternalIP", "10.0.0.9")), ORIGIN, platform, config())
    assert caught.value.code == "UMB172"
    assert "--ssh-host" in caught.value.remedy


@pytest.mark.parametrize("platform", ["aws", "gcp", "azure"])
def test_a_private_installation_is_reached_by_the_internal_address(platform: str) -> None:
    private = {**config(), "publish": "Internal"}
    assert addresses_of(machine(("InternalIP", "10.0.0.9")), ORIGIN, platform, private).ssh == "10.0.0.9"


def test_azure_goes_by_the_name_of_the_api() -> None:
    found = addresses_of(machine(("InternalIP", "10.0.0.9")), ORIGIN, "azure", config())
    assert found.ssh == "api.toy.example.test"
    assert found.internal == (ip_address("10.0.0.9"),)


@pytest.mark.parametrize("domain", [None, "", "-oProxyCommand=x", "a b", "x\n"])
def test_a_name_that_ssh_could_misread_is_refused(domain: str | None) -> None:
    with pytest.raises(BootstrapError, match="no usable one"):
        addresses_of(machine(), ORIGIN, "azure", {**config(), "baseDomain": domain})


def test_vsphere_takes_the_first_ipv4_address() -> None:
    listed = (("InternalIP", "fd00::9"), ("InternalIP", "10.0.0.9"))
    assert addresses_of(machine(*listed), ORIGIN, "vsphere", config()).ssh == "10.0.0.9"
    assert addresses_of(machine(listed[0]), ORIGIN, "vsphere", config()).ssh == "fd00::9"
    assert addresses_of(machine(*listed), ORIGIN, "openstack", config()).ssh == "fd00::9"


def test_agents_dial_an_internal_address_of_the_family_of_the_nodes() -> None:
    listed = (("ExternalIP", "192.0.2.7"), ("InternalIP", "10.0.0.9"), ("InternalIP", "fd00::9"))
    found = addresses_of(machine(*listed), ORIGIN, "aws", config())
    assert found.node_ip(use_ipv6=False) == ip_address("10.0.0.9")
    assert found.node_ip(use_ipv6=True) == ip_address("fd00::9")
    assert addresses_of(machine(*BOTH), ORIGIN, "aws", config()).node_ip(use_ipv6=True) is None


@pytest.mark.parametrize("value", [{}, {"status": None}, {"status": {}}, {"status": {"addresses": None}}])
def test_a_machine_without_addresses_is_told(value: dict[str, Any]) -> None:
    with pytest.raises(BootstrapError, match="lists no"):
        addresses_of(value, ORIGIN, "openstack", None)


@given(st.dictionaries(st.text(), st.none() | st.text() | st.lists(st.dictionaries(st.text(), st.text()))))
def test_hostile_status_is_an_address_or_a_fault(status: dict[str, Any]) -> None:
    hostile = {"status": {"addresses": [{"type": "InternalIP", "address": "-oX"}], **status}}
    with pytest.raises(BootstrapError):
        addresses_of(hostile, ORIGIN, "openstack", None)
