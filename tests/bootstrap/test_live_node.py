"""The way to a bootstrap machine, and its answers, as recorded and as hostile as can be."""

import json
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.install_directories import Directory, encoded

from umbilical.bootstrap import live_facts
from umbilical.bootstrap.install_dir import InstallDir
from umbilical.bootstrap.live_facts import NodePaths, NodePorts, query_node
from umbilical.bootstrap.node_access import NodeAccess, node_runner
from umbilical.fault import BootstrapError, HostError
from umbilical.host.commands import CommandResult, LocalRunner
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
# As `ss -Hltn` of iproute2 6.1 prints them.
LISTENERS = """\
LISTEN 0      4096       127.0.0.1:8095       0.0.0.0:*
LISTEN 0      128          0.0.0.0:22         0.0.0.0:*
LISTEN 0      4096           *:8091             *:*
LISTEN 0      4096   [::1]%lo:9978          [::]:*
LISTEN 0      4096            [::]:2041          [::]:*
"""
METRICS = """\
# HELP konnectivity_network_proxy_server_ready_backends Number of konnectivity agents connected to the proxy server
konnectivity_network_proxy_server_ready_backends{proxy_strategy="destHost"} 0
konnectivity_network_proxy_server_ready_backends{proxy_strategy="defaultRoute"} 3
konnectivity_network_proxy_server_ready_backend_connections 0
"""


def said(text: str, exit_code: int = 0) -> CommandResult:
    return CommandResult(exit_code, text, "")


class Unreachable:
    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        raise HostError("UMB175", "no way", "Connection refused", "walk")


def test_a_machine_that_does_not_answer_is_asked_once() -> None:
    with pytest.raises(HostError):
        query_node(Unreachable(), NodePaths(), NodePorts())


@pytest.mark.real("openssl", "ss", "curl")
def test_questions_are_answered_by_a_machine_below_any_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = NodePaths().under(str(tmp_path))
    for path in (paths.socket, paths.own_certificate, paths.node_ip, paths.service_record):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(Path(paths.socket).parent)  # a socket's path has 107 bytes at most, and pytest's are long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(Path(paths.socket).name)
    authority = Authority.create("ca", NOW, timedelta(days=1), KeyType.ECDSA_P256)
    pair = authority.issue(server_profile("s", ["10.0.0.9"], KeyType.ECDSA_P256), NOW, timedelta(hours=1))
    Path(paths.own_certificate).write_bytes(pair.key + pair.certificate)
    Path(paths.node_ip).write_text("10.0.0.9\n")
    answers = query_node(LocalRunner(), paths, NodePorts(1, 2, 3))
    assert answers.socket.stdout == "socket\n"
    assert answers.listeners.succeeded
    assert live_facts.server_certificate(answers.certificate) is not None
    assert "PRIVATE" not in answers.certificate.stdout
    assert live_facts.found_node_ip(answers.node_ip) == ip_address("10.0.0.9")
    assert "Connection refused" in live_facts.trouble(answers.health) or "connect" in live_facts.trouble(answers.health)
    assert "No such file" in live_facts.trouble(answers.service_record)


@pytest.mark.parametrize(
    ("port", "addresses"), [(8091, ["*"]), (8095, ["127.0.0.1"]), (2041, ["[::]"]), (9978, ["[::1]%lo"]), (80, [])]
)
def test_listeners_are_found_by_their_port(port: int, addresses: list[str]) -> None:
    assert live_facts.listening_addresses(said(LISTENERS), port) == addresses


def test_loopback_is_told_from_the_rest() -> None:
    addresses = ("127.0.0.1", "[::1]%lo", "*", "[::]", "10.0.0.9")
    assert [address for address in addresses if live_facts.is_loopback(address)] == ["127.0.0.1", "[::1]%lo"]


def test_backends_are_counted_under_both_names() -> None:
    for text, count in (
        ("konnectivity_network_proxy_server_ready_backend_connections 2\n", 2),
        (METRICS, 3),
        ("konnectivity_network_proxy_server_ready_backends 0\n", 0),
        ("other 7\n", None),
        ("", None),
    ):
        assert live_facts.ready_backends(said(text)) == count


def test_the_egress_argument_is_found() -> None:
    for text, path in (
        ('{"apiServerArguments": {"egress-selector-config-file": ["/etc/e.yaml"]}}', "/etc/e.yaml"),
        ("apiServerArguments:\n  egress-selector-config-file: /etc/e.yaml\n", "/etc/e.yaml"),
        ('{"apiServerArguments": {"egress-selector-config-file": []}}', None),
        ('{"egressSelectorConfiguration": {}}', None),
        ("[", None),
        ("", None),
    ):
        assert live_facts.egress_file(said(text)) == path


def test_a_certificate_tells_addresses_and_end() -> None:
    authority = Authority.create("ca", NOW, timedelta(days=1), KeyType.ECDSA_P256)
    profile = server_profile("s", ["10.0.0.9", "fd00::9", "name"], KeyType.ECDSA_P256)
    found = live_facts.server_certificate(said(authority.issue(profile, NOW, timedelta(hours=1)).certificate.decode()))
    assert found is not None
    assert found.addresses == (ip_address("10.0.0.9"), ip_address("fd00::9"))
    assert found.ends == NOW + timedelta(hours=1)
    nameless = authority.issue(client_profile("a", key_type=KeyType.ECDSA_P256), NOW, timedelta(hours=1))
    without = live_facts.server_certificate(said(nameless.certificate.decode()))
    assert without is not None
    assert without.addresses == ()


def test_containers_are_counted_and_trouble_is_the_last_thing_that_was_said() -> None:
    for text, count in (('{"containers": [{}]}', 1), ('{"containers": []}', 0), ("[]", None), ("x", None)):
        assert live_facts.running_containers(said(text)) == count
    assert live_facts.trouble(CommandResult(1, "", "a\nb\n")) == "b"
    assert live_facts.trouble(CommandResult(7, "", "")) == "exit status 7"


def test_the_last_end_of_a_stage_counts() -> None:
    entries = [
        {"phase": "service start"},
        {"phase": "stage start", "stage": "certs"},
        {"phase": "stage end", "stage": "certs", "result": "failure", "errorMessage": "one\ntwo"},
        {"phase": "stage start", "stage": "pod"},
        {"phase": "stage end", "stage": "pod", "result": "success"},
        {"phase": "stage start", "stage": "cleanup"},
        {"phase": "stage end", "stage": "foreign", "result": "failure"},
    ]
    stages = ("certs", "pod", "cleanup")
    results = live_facts.stage_results(said(json.dumps(entries)), stages)
    assert results == {"certs": "failure: two", "pod": "success", "cleanup": "open"}
    again = {"phase": "stage end", "stage": "certs", "result": "success"}
    assert (live_facts.stage_results(said(json.dumps([*entries, again])), stages) or {})["certs"] == "success"
    assert live_facts.stage_results(said("{}"), stages) is None


@given(st.text())
def test_no_answer_however_odd_is_a_crash(text: str) -> None:
    answer = said(text)
    live_facts.listening_addresses(answer, 8091)
    live_facts.ready_backends(answer)
    live_facts.egress_file(answer)
    live_facts.server_certificate(answer)
    live_facts.running_containers(answer)
    live_facts.stage_results(answer, ("a",))
    live_facts.found_node_ip(answer)
    assert live_facts.trouble(answer)


KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nonly a test\n"


def test_a_named_host_is_asked_with_the_users_own_keys_and_nothing_named_is_no_runner(tmp_path: Path) -> None:
    with node_runner(NodeAccess()) as runner:
        assert runner is None
    for install_dir in (None, InstallDir(tmp_path)):
        with node_runner(NodeAccess("192.0.2.7"), install_dir) as runner:
            assert runner is not None
            assert (runner.host, runner.key) == ("192.0.2.7", None)


def test_an_install_directory_gives_address_and_key_and_what_is_named_comes_before(tmp_path: Path) -> None:
    made = Directory(tmp_path).metadata().machine(("ExternalIP", "192.0.2.7"))
    made.state(tls_BootstrapSSHKeyPair={"Priv": encoded(KEY)})
    with node_runner(NodeAccess(), InstallDir(tmp_path)) as runner:
        assert runner is not None
        assert runner.host == "192.0.2.7"
        assert runner.key is not None
        assert runner.key.read_bytes() == KEY
    assert not runner.key.exists()
    with node_runner(NodeAccess("192.0.2.8", key=tmp_path / "mine"), InstallDir(tmp_path)) as runner:
        assert runner is not None
        assert (runner.host, runner.key) == ("192.0.2.8", tmp_path / "mine")


def test_a_directory_that_knows_no_machine_is_a_fault_and_so_is_a_broken_state_file(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match="UMB172"), node_runner(NodeAccess(), InstallDir(tmp_path)):
        pass
    (tmp_path / ".openshift_install_state.json").write_text("no JSON")
    with pytest.raises(BootstrapError, match="UMB171"), node_runner(NodeAccess("192.0.2.8"), InstallDir(tmp_path)):
        pass


def test_everyone_but_root_asks_by_sudo() -> None:
    for user, sudo in (("core", True), ("root", False)):
        with node_runner(NodeAccess("192.0.2.8", user)) as runner:
            assert runner is not None
            assert runner.uses_sudo is sudo
