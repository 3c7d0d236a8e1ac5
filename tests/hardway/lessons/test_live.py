"""Lessons on running machines: their commands, their repair, and a real load balancer."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from tests.support import hardway
from tests.support.hardway_lab import PROGRAMS, built, small_cluster
from tests.support.hardway_sites import make_site
from tests.support.labs import wait_until
from tests.support.live_site import live_site, machines_of

from umbilical.fault import HardwayError
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.artifacts.infrastructure.render import render_infrastructure
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.doctor import are_up, balancer_signal
from umbilical.hardway.lessons import active_lesson, lesson
from umbilical.hardway.lessons.active_lesson import find_lesson
from umbilical.hardway.lessons.lesson import ASIDE
from umbilical.hardway.machines.interface import BackendServer, Done
from umbilical.hardway.site import Site
from umbilical.hardway.state import RunState
from umbilical.lab.hardway.machines import LabMachines
from umbilical.lab.hardway.names import HOST
from umbilical.lab.lab import Lab
from umbilical.manifests.tree import AssetTree
from umbilical.pki.pem import KeyPair

WATCHED = "/etc/kubernetes/manifests/kube-proxy.yaml"
MOVED = lesson.moved_away("kube-proxy.yaml", lambda cluster: [cluster.members[-1].id], "gone")
API_PAIR: Final = "kube-apiserver-service-network-server"
# Speaks TLS at the bootstrap node's address, and is always ready.
API: Final = """
import http.server, ssl, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 6443), Ready)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/etc/api.crt", "/etc/api.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


def test_checks_lose_their_tls_and_nothing_else(site: Site) -> None:
    right = site.content(HAPROXY_BOOTSTRAP)
    wrong = lesson.without_tls(right)
    assert b"check-ssl" in right.replace(b"# Without check-ssl", b"")
    assert b" check check-ssl" not in wrong
    assert b"option httpchk GET /readyz" in wrong
    assert len(wrong.splitlines()) == len(right.splitlines())


def test_the_configuration_is_the_one_that_the_balancer_has(site: Site) -> None:
    machines = machines_of(site)
    machines.servers = [BackendServer("api", site.cluster.bootstrap.name, True, "L7OK")]
    lesson.plain_checks().spoil(site)
    assert machines.balancer_config == lesson.without_tls(site.content(HAPROXY_BOOTSTRAP))
    machines.servers = [BackendServer("api", site.cluster.masters[0].name, True, "L7OK")]
    lesson.plain_checks().mend(site)
    assert machines.balancer_config == site.content(HAPROXY_FINAL)


def test_a_static_pod_is_moved_away_and_back(site: Site) -> None:
    machines, node = machines_of(site), site.cluster.members[-1].id
    machines.files[node, WATCHED] = b"pod"
    commands = [("mkdir", "-p", ASIDE), ("mv", WATCHED, f"{ASIDE}/kube-proxy.yaml")]
    for command in (*commands, ("mv", f"{ASIDE}/kube-proxy.yaml", WATCHED)):
        machines.answers[(node, *command)] = Done(0, b"", b"")
    MOVED.spoil(site)
    assert machines.calls == [f"run {node} {' '.join(command)}" for command in commands]
    machines.calls.clear()
    machines.files = {(node, f"{ASIDE}/kube-proxy.yaml"): b"pod"}
    MOVED.mend(site)
    assert machines.calls == [f"run {node} mv {ASIDE}/kube-proxy.yaml {WATCHED}"]


def test_doing_it_twice_moves_nothing(site: Site) -> None:
    machines, node = machines_of(site), site.cluster.members[-1].id
    machines.answers[node, "mkdir", "-p", ASIDE] = Done(0, b"", b"")
    MOVED.spoil(site)
    MOVED.mend(site)
    assert machines.calls == [f"run {node} mkdir -p {ASIDE}"]


def test_a_node_that_refuses_is_told_of(site: Site) -> None:
    with pytest.raises(HardwayError) as caught:
        MOVED.spoil(site)
    assert caught.value.code == "UMB734"
    assert "no such program" in caught.value.why


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cluster = small_cluster()
    folder = tmp_path_factory.mktemp("lesson")
    with built(folder / "lab", cluster) as machines:
        # HAProxy looks at the clock of this machine.
        valid_now = hardway.certificates(cluster, datetime.now(UTC))
        inputs = Inputs(cluster, valid_now, hardway.payload(ClusterProfile.KUBERNETES), hardway.identity())
        assets = {asset.path: asset for asset in render_infrastructure(inputs, AssetTree())}
        machines.build(cluster, {path: asset.content for path, asset in assets.items()})
        _serve(Lab.open(folder / "lab"), str(cluster.bootstrap.address), valid_now[API_PAIR])
        machines.set_balancer(assets[HAPROXY_BOOTSTRAP].content)
        yield replace(live_site(folder), cluster=cluster, machines=machines, assets=assets)


def _serve(lab: Lab, address: str, pair: KeyPair) -> None:
    lab.write(HOST, "/etc/api.crt", pair.certificate, 0o600)
    lab.write(HOST, "/etc/api.key", pair.key, 0o600)
    lab.exec(HOST, ["ip", "address", "add", f"{address}/32", "dev", "lo"]).check()
    lab.start(HOST, "api", ["python3", "-c", API, address])


def seen(balanced: Site) -> tuple[bool, str]:
    name = balanced.cluster.bootstrap.name
    return next((one.is_up, one.check) for one in balanced.machines.balancer() if one.server == name)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_one_missing_word_takes_the_api_down_and_the_doctor_names_it(balanced: Site, tmp_path: Path) -> None:
    assert isinstance(balanced.machines, LabMachines)
    balanced = replace(balanced, folder=tmp_path)
    assert are_up(balanced)
    wait_until(lambda: seen(balanced) == (True, "L7OK"))
    assert list(balancer_signal(balanced, RunState())) == []

    active_lesson.spoil_machines(balanced, find_lesson("httpchk"))
    wait_until(lambda: seen(balanced) == (False, "L7RSP"))
    found = list(balancer_signal(balanced, RunState()))
    assert [one.lesson for one in found] == ["httpchk"]
    assert "check-ssl is missing" in found[0].remedy

    active = active_lesson.current(tmp_path)
    assert active is not None
    active_lesson.mend_machines(balanced, active)
    wait_until(lambda: seen(balanced) == (True, "L7OK"))
    assert list(balancer_signal(balanced, RunState())) == []
