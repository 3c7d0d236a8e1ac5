"""HAProxy's two configurations: who is in which, how servers are asked, and that the real program takes them."""

import ipaddress
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hardway import cluster
from tests.support.hardway_infrastructure import infrastructure

from umbilical.assets.hardway.cluster import MachinesKind, Profile
from umbilical.assets.hardway.infrastructure.haproxy import haproxy_bootstrap, haproxy_final, socket_address
from umbilical.assets.hardway.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL, OWN_PLACES
from umbilical.assets.tree import Asset


def _servers(config: bytes, backend: str) -> list[list[str]]:
    section = config.decode().split(f"backend {backend}\n")[-1].split("\n\n")[0]
    return [line.split() for line in section.splitlines() if line.split()[:1] == ["server"]]


def test_before_the_pivot_the_bootstrap_node_serves_and_the_masters_stand_by() -> None:
    of = cluster()
    for backend in ("api", "machine-config"):
        servers = _servers(haproxy_bootstrap(of), backend)
        assert [words[1] for words in servers] == [of.bootstrap.name, *(node.name for node in of.masters)]
        assert ["backup" in words for words in servers] == [False, True, True, True]


def test_after_the_pivot_there_is_no_bootstrap_node_anywhere() -> None:
    of = cluster()
    final = haproxy_final(of).decode()
    assert of.bootstrap.name not in final
    assert str(of.bootstrap.address) not in final
    assert "backup" not in final
    assert [words[1] for words in _servers(final.encode(), "api")] == [node.name for node in of.masters]


def test_every_server_that_speaks_tls_is_asked_over_tls_and_its_signer_is_known() -> None:
    for backend in ("api", "machine-config"):
        for words in _servers(haproxy_bootstrap(cluster()), backend):
            assert words[3:7] == ["check", "check-ssl", "verify", "required"]
            assert words[7] == "ca-file"


def test_routers_are_asked_on_their_own_plain_port() -> None:
    servers = _servers(haproxy_final(cluster()), "ingress-https")
    assert [words[3:6] for words in servers] == [["check", "port", "1936"]] * 2


def test_without_workers_the_masters_carry_the_routers() -> None:
    of = cluster(masters=3, workers=0)
    assert [words[1] for words in _servers(haproxy_final(of), "ingress-http")] == [node.name for node in of.masters]


def test_the_kubernetes_profile_has_the_api_alone() -> None:
    text = haproxy_bootstrap(cluster(Profile.KUBERNETES)).decode()
    assert [line for line in text.splitlines() if line.startswith("backend")] == ["backend api"]


def test_addresses_of_the_sixth_version_stand_in_brackets() -> None:
    assert socket_address(ipaddress.ip_address("fd00::10"), 6443) == "[fd00::10]:6443"
    assert socket_address(ipaddress.ip_address("10.0.0.1"), 6443) == "10.0.0.1:6443"


@pytest.mark.real("haproxy")
@pytest.mark.parametrize("machines", list(MachinesKind))
def test_haproxy_takes_both_files_without_a_warning(machines: MachinesKind, tmp_path: Path) -> None:
    for of in (cluster(Profile.OPENSHIFT), cluster(Profile.KUBERNETES), cluster(Profile.KUBERNETES, 1, 0)):
        tree = infrastructure(replace(of, machines=machines))
        for asset in tree:
            if asset.path.endswith(".crt"):
                (tmp_path / Path(asset.path).name).write_bytes(asset.content)
        assert [_complaint(tree[path], tmp_path) for path in (HAPROXY_BOOTSTRAP, HAPROXY_FINAL)] == ["", ""]


@pytest.mark.real("haproxy")
def test_haproxy_warns_of_an_expectation_without_a_check(tmp_path: Path) -> None:
    """What somebody kept in a configuration of his own; and that our test would see a warning."""
    tree = infrastructure(cluster(Profile.KUBERNETES))
    (tmp_path / "haproxy-server-ca.crt").write_bytes(tree["infrastructure/haproxy-server-ca.crt"].content)
    path = HAPROXY_FINAL
    content = tree[path].content.replace(b"    option httpchk GET /readyz\n", b"")
    assert "WARNING" in _complaint(Asset(path, content, 0o644), tmp_path)


def _complaint(asset: Asset, folder: Path) -> str:
    (folder / OWN_PLACES.config).write_bytes(asset.content.replace(b"/etc/haproxy/", f"{folder}/".encode()))
    command = ["haproxy", "-c", "-C", str(folder), "-f", OWN_PLACES.config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 or done.stderr
    return done.stderr
