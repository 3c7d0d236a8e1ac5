"""Which machine is asked, as whom, with which key."""

from pathlib import Path

import pytest
from tests.support.install_directories import Directory, encoded

from umbilical.bootstrap.errors import BootstrapError
from umbilical.bootstrap.install_dir import InstallDir
from umbilical.bootstrap.node_access import NodeAccess, node_runner

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nonly a test\n"


def test_nothing_named_is_no_runner() -> None:
    with node_runner(NodeAccess()) as runner:
        assert runner is None


def test_a_named_host_is_asked_with_the_users_own_keys() -> None:
    with node_runner(NodeAccess("192.0.2.7")) as runner:
        assert runner is not None
        assert runner.host == "192.0.2.7"
        assert runner.key is None


def test_an_install_directory_gives_address_and_key(tmp_path: Path) -> None:
    made = Directory(tmp_path).metadata().machine(("ExternalIP", "192.0.2.7"))
    made.state(tls_BootstrapSSHKeyPair={"Priv": encoded(KEY)})
    with node_runner(NodeAccess(), InstallDir(tmp_path)) as runner:
        assert runner is not None
        assert runner.host == "192.0.2.7"
        assert runner.key is not None
        assert runner.key.read_bytes() == KEY
    assert not runner.key.exists()


def test_what_is_named_comes_before_what_the_directory_knows(tmp_path: Path) -> None:
    with node_runner(NodeAccess("192.0.2.8", key=tmp_path / "mine"), InstallDir(tmp_path)) as runner:
        assert runner is not None
        assert (runner.host, runner.key) == ("192.0.2.8", tmp_path / "mine")


def test_a_directory_without_a_key_leaves_it_to_ssh(tmp_path: Path) -> None:
    with node_runner(NodeAccess("192.0.2.8"), InstallDir(tmp_path)) as runner:
        assert runner is not None
        assert runner.key is None


def test_a_directory_that_knows_no_machine_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError) as caught, node_runner(NodeAccess(), InstallDir(tmp_path)):
        pass
    assert caught.value.code == "UMB172"


def test_a_broken_state_file_is_a_fault_and_no_missing_key(tmp_path: Path) -> None:
    (tmp_path / ".openshift_install_state.json").write_text("no JSON")
    with pytest.raises(BootstrapError) as caught, node_runner(NodeAccess("192.0.2.8"), InstallDir(tmp_path)):
        pass
    assert caught.value.code == "UMB171"


@pytest.mark.parametrize(("user", "sudo"), [("core", True), ("root", False)])
def test_everyone_but_root_asks_by_sudo(user: str, sudo: bool) -> None:
    with node_runner(NodeAccess("192.0.2.8", user)) as runner:
        assert runner is not None
        assert runner.uses_sudo is sudo
