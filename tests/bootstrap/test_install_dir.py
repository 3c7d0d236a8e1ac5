"""An install directory at each step of the installer, whole and broken."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.install_directories import Directory, config, encoded

from umbilical.bootstrap import install_files
from umbilical.bootstrap.install_dir import STATE, InstallDir
from umbilical.bootstrap.install_files import (
    addresses_of,
    parse_yaml,
    read_bytes,
    read_json,
    read_yaml,
    root_authority_from_state,
)
from umbilical.fault import BootstrapError, PkiError

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
KEY = b"-----BEGIN RSA PRIVATE KEY-----\nonly a test\n-----END RSA PRIVATE KEY-----\n"


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="UMB170"):
        InstallDir(tmp_path / "nowhere")


def test_an_empty_directory_knows_nothing_and_says_so(tmp_path: Path) -> None:
    empty = InstallDir(tmp_path)
    assert (empty.install_config, empty.infra_id, empty.machine_networks) == (None, None, ())
    assert (empty.use_ipv6, empty.has_ignition_configs) == (False, False)
    assert empty.warnings(NOW) == []
    for ask in (lambda: empty.platform, lambda: empty.bootstrap_ignition, empty.bootstrap_addresses):
        with pytest.raises(BootstrapError):
            ask()


def test_bootstrap_ignition_is_found_and_one_that_was_used_up_is_remembered(tmp_path: Path) -> None:
    Directory(tmp_path).state(bootstrap_Bootstrap={"Config": {}})
    assert InstallDir(tmp_path).has_ignition_configs
    with pytest.raises(BootstrapError, match="has deleted the file"):
        _ = InstallDir(tmp_path).bootstrap_ignition
    Directory(tmp_path).ignition()
    assert InstallDir(tmp_path).bootstrap_ignition == tmp_path / "bootstrap.ign"
    assert InstallDir(tmp_path).has_ignition_configs


def test_install_config_comes_from_its_file_and_once_consumed_from_the_state(tmp_path: Path) -> None:
    for asset in ({"config": config()}, {"file": {"Data": encoded(yaml.safe_dump(config()).encode())}}):
        Directory(tmp_path).state(installconfig_InstallConfig=asset)
        assert InstallDir(tmp_path).install_config == config()
    Directory(tmp_path).install_config().state(installconfig_InstallConfig={"config": {"platform": {"gcp": {}}}})
    assert InstallDir(tmp_path).install_config == config()
    assert InstallDir(tmp_path).platform == "aws"


def test_the_platform_is_the_key_of_the_metadata_that_is_not_null_or_the_install_configs(tmp_path: Path) -> None:
    for name in ("aws", "azure", "gcp", "vsphere", "powervs", "baremetal"):
        Directory(tmp_path).metadata(**{"aws": None, name: {}})
        assert InstallDir(tmp_path).platform == name
    for name in ("none", "external"):
        Directory(tmp_path).metadata(aws=None).install_config(platform={name: {}})
        assert InstallDir(tmp_path).platform == name


def test_a_platform_that_nobody_tells_is_a_fault(tmp_path: Path) -> None:
    unclear: list[Any] = [None, {}, "aws", {"aws": {}, "gcp": {}}, {1: {}}]
    for chosen in unclear:
        Directory(tmp_path).install_config(platform=chosen)
        with pytest.raises(BootstrapError, match="UMB173"):
            _ = InstallDir(tmp_path).platform


def test_the_infra_id_comes_from_metadata_or_the_state(tmp_path: Path) -> None:
    Directory(tmp_path).state(installconfig_ClusterID={"UUID": "1", "InfraID": "toy-state"})
    assert InstallDir(tmp_path).infra_id == "toy-state"
    Directory(tmp_path).metadata()
    assert InstallDir(tmp_path).infra_id == "toy-x7k2p"


@pytest.mark.parametrize(
    ("networking", "networks", "use_ipv6"),
    [
        ({"machineNetwork": [{"cidr": "10.1.0.0/16"}, {"cidr": "fd00::/48"}]}, ("10.1.0.0/16", "fd00::/48"), False),
        ({"machineCIDR": "10.2.0.0/16"}, ("10.2.0.0/16",), False),
        ({"serviceNetwork": ["172.30.0.0/16", "fd02::/112"]}, (), False),
        ({"serviceNetwork": ["fd02::/112", "172.30.0.0/16"]}, (), True),
        ({"serviceCIDR": "fd02::/112"}, (), True),
        ({}, (), False),
    ],
)
def test_machine_networks_are_as_configured_and_the_first_service_network_tells_the_family(
    networking: Any, networks: tuple[str, ...], use_ipv6: bool, tmp_path: Path
) -> None:
    Directory(tmp_path).install_config(networking=networking)
    assert InstallDir(tmp_path).machine_networks == tuple(ip_network(network) for network in networks)
    assert InstallDir(tmp_path).use_ipv6 is use_ipv6


def test_a_network_that_is_none_is_told(tmp_path: Path) -> None:
    Directory(tmp_path).install_config(networking={"machineNetwork": [{"cidr": "home"}], "serviceNetwork": [7.5]})
    with pytest.raises(BootstrapError, match="'home'"):
        _ = InstallDir(tmp_path).machine_networks
    with pytest.raises(BootstrapError, match="serviceNetwork"):
        _ = InstallDir(tmp_path).use_ipv6


def test_addresses_come_from_the_machine_of_this_cluster(tmp_path: Path) -> None:
    made = Directory(tmp_path).metadata().install_config()
    made.machine(("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1"), infra_id="another")
    made.machine(("ExternalIP", "192.0.2.7"), ("InternalIP", "10.0.0.9"))
    found = InstallDir(tmp_path).bootstrap_addresses()
    assert (found.ssh, found.internal) == ("192.0.2.7", (ip_address("10.0.0.9"),))


def test_without_an_infra_id_the_only_machine_counts_and_two_are_a_fault(tmp_path: Path) -> None:
    made = Directory(tmp_path).install_config().machine(("ExternalIP", "192.0.2.7"))
    assert InstallDir(tmp_path).bootstrap_addresses().ssh == "192.0.2.7"
    made.machine(("ExternalIP", "192.0.2.8"), infra_id="another")
    with pytest.raises(BootstrapError, match="2 bootstrap machines"):
        InstallDir(tmp_path).bootstrap_addresses()


def test_an_installer_that_leaves_no_machine_is_told(tmp_path: Path) -> None:
    Directory(tmp_path).metadata()
    with pytest.raises(BootstrapError, match="does not exist") as caught:
        InstallDir(tmp_path).bootstrap_addresses()
    assert caught.value.code == "UMB172"


def test_the_ssh_key_lies_in_a_private_file_that_goes_away_after_a_failure_too(tmp_path: Path) -> None:
    Directory(tmp_path).state(tls_BootstrapSSHKeyPair={"Priv": encoded(KEY), "Pub": ""})
    with InstallDir(tmp_path).ssh_key() as path:
        assert path.read_bytes() == KEY
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()
    with pytest.raises(ZeroDivisionError), InstallDir(tmp_path).ssh_key() as path:
        raise ZeroDivisionError
    assert not path.exists()


def test_a_missing_or_broken_ssh_key_is_told_without_showing_what_is_there(tmp_path: Path) -> None:
    missing: list[Any] = [None, {}, {"Priv": ""}, {"Priv": encoded(b"secret words")}, {"Priv": 7}, []]
    for pair, code in [*((pair, "UMB174") for pair in missing), ({"Priv": "secret!"}, "UMB171")]:
        Directory(tmp_path).state(tls_BootstrapSSHKeyPair=pair)
        with pytest.raises(BootstrapError) as caught, InstallDir(tmp_path).ssh_key():
            pass
        assert caught.value.code == code
        assert "secret" not in str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(networking=VALUES, platform=VALUES, metadata=VALUES, asset=VALUES)
def test_hostile_documents_give_values_or_faults(
    networking: Any, platform: Any, metadata: Any, asset: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("hostile")
    made = Directory(path).install_config(networking=networking, platform=platform, metadata=metadata)
    made.metadata(infraID=asset, aws=None).state(tls_RootCA=asset, installconfig_ClusterID=asset)
    found = InstallDir(path)
    asks = (
        lambda: found.platform,
        lambda: found.machine_networks,
        lambda: found.use_ipv6,
        lambda: found.infra_id,
        lambda: root_authority_from_state((path / STATE).read_bytes()),
        found.bootstrap_addresses,
    )
    for ask in asks:
        assert len(fault_of(ask).splitlines()) in (0, 3)


def fault_of(ask: Callable[[], object]) -> str:
    try:
        ask()
    except (BootstrapError, PkiError) as fault:
        return str(fault)
    return ""


def test_whole_files_are_read_and_a_missing_one_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a": 1}')
    assert read_json(tmp_path / "a") == read_yaml(tmp_path / "a") == {"a": 1}
    assert read_json(tmp_path / "b") is None
    assert read_yaml(tmp_path / "a" / "b") is None


@pytest.mark.parametrize("content", ["", "[1]", '"secret"', "{secret: [", "\x00secret", "a: &b *b *c\n- d"])
def test_a_broken_file_is_told_in_three_lines_without_its_content(content: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    for read in (read_json, read_yaml):
        with pytest.raises(BootstrapError) as caught:
            read(tmp_path / "a")
        assert caught.value.code == "UMB171"
        assert "secret" not in str(caught.value)


def test_a_fault_has_its_line_and_nesting_without_end_is_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"a":\n nope}')
    with pytest.raises(BootstrapError, match="line 2"):
        read_json(tmp_path / "a")
    (tmp_path / "b").write_text("a: 1\nb: secret: x\n")
    with pytest.raises(BootstrapError, match="line 2") as caught:
        read_yaml(tmp_path / "b")
    assert "secret" not in str(caught.value)
    (tmp_path / "a").write_text('{"a":' + "[" * 100_000)
    with pytest.raises(BootstrapError):
        read_json(tmp_path / "a")
    with pytest.raises(BootstrapError):
        parse_yaml(b"[" * 20_000, tmp_path / "a")


def test_a_pipe_and_a_file_past_the_bound_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BootstrapError, match="not a regular file"):
        read_bytes(tmp_path / "pipe")
    monkeypatch.setattr(install_files, "MAX_BYTES", 3)
    (tmp_path / "a").write_text("{}  ")
    with pytest.raises(BootstrapError, match="4 bytes"):
        read_bytes(tmp_path / "a")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_mapping_or_a_fault(content: bytes) -> None:
    with suppress(BootstrapError):
        assert isinstance(parse_yaml(content, Path("x")), dict)


ORIGIN = Path("Machine.yaml")
BOTH = (("InternalIP", "10.0.0.9"), ("ExternalIP", "192.0.2.7"))


def machine(*addresses: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]}}


def test_ssh_prefers_the_external_address_and_on_azure_the_name_of_the_api() -> None:
    named = {**dict.fromkeys(("aws", "gcp", "openstack", "nutanix"), "192.0.2.7"), "azure": "api.toy.example.test"}
    for platform, host in named.items():
        found = addresses_of(machine(*BOTH), ORIGIN, platform, config())
        assert (found.ssh, found.internal) == (host, (ip_address("10.0.0.9"),))


def test_ssh_takes_the_internal_address_where_there_is_no_other_or_the_installation_is_private() -> None:
    private = {**config(), "publish": "Internal"}
    for platforms, installation in (
        (("openstack", "vsphere", "powervs", "ibmcloud"), config()),
        (("aws", "gcp", "azure"), private),
    ):
        for platform in platforms:
            assert addresses_of(machine(("InternalIP", "10.0.0.9")), ORIGIN, platform, installation).ssh == "10.0.0.9"


def test_an_address_that_is_missing_or_that_ssh_could_misread_is_told() -> None:
    for platform in ("aws", "gcp"):
        with pytest.raises(BootstrapError, match="ExternalIP") as caught:
            addresses_of(machine(("InternalIP", "10.0.0.9")), ORIGIN, platform, config())
        assert caught.value.code == "UMB172"
        assert "--ssh-host" in caught.value.remedy
    for domain in (None, "", "-oProxyCommand=x", "a b", "x\n"):
        with pytest.raises(BootstrapError, match="no valid name"):
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
    with pytest.raises(BootstrapError, match="has no"):
        addresses_of(value, ORIGIN, "openstack", None)


@given(st.dictionaries(st.text(), st.none() | st.text() | st.lists(st.dictionaries(st.text(), st.text()))))
def test_hostile_status_is_an_address_or_a_fault(status: dict[str, Any]) -> None:
    hostile = {"status": {"addresses": [{"type": "InternalIP", "address": "-oX"}], **status}}
    with pytest.raises(BootstrapError):
        addresses_of(hostile, ORIGIN, "openstack", None)
