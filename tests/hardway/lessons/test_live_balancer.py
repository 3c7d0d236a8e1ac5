"""A live lesson against a real load balancer: servers go DOWN for one missing word, and the doctor says which."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from tests.support import hardway
from tests.support.hardway_lab import PROGRAMS, built, small_cluster
from tests.support.labs import wait_until
from tests.support.live_site import live_site

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.infrastructure.places import HAPROXY_BOOTSTRAP
from umbilical.assets.hardway.infrastructure.render import render_infrastructure
from umbilical.assets.hardway.inputs import Inputs
from umbilical.assets.tree import AssetTree
from umbilical.hardway.doctor.machines import are_up, balancer_signal
from umbilical.hardway.lessons import sitting
from umbilical.hardway.lessons.sitting import find_lesson
from umbilical.hardway.site import Site
from umbilical.hardway.state import State
from umbilical.lab.hardway_machines import LabMachines
from umbilical.lab.hardway_topology import HOST
from umbilical.lab.lab import Lab
from umbilical.pki.pem import KeyPair

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    cluster = small_cluster()
    folder = tmp_path_factory.mktemp("lesson")
    with built(folder / "lab", cluster) as machines:
        # HAProxy looks at the clock of this machine.
        valid_now = hardway.certificates(cluster, datetime.now(UTC))
        inputs = Inputs(cluster, valid_now, hardway.payload(Profile.KUBERNETES), hardway.identity())
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


def seen(site: Site) -> tuple[bool, str]:
    name = site.cluster.bootstrap.name
    return next((one.is_up, one.check) for one in site.machines.balancer() if one.server == name)


@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.real(*PROGRAMS)
def test_one_missing_word_takes_the_api_down_and_the_doctor_names_it(site: Site, tmp_path: Path) -> None:
    assert isinstance(site.machines, LabMachines)
    site = replace(site, folder=tmp_path)
    assert are_up(site)
    wait_until(lambda: seen(site) == (True, "L7OK"))
    assert list(balancer_signal(site, State())) == []

    sitting.spoil_machines(site, find_lesson("httpchk"))
    wait_until(lambda: seen(site) == (False, "L7RSP"))
    found = list(balancer_signal(site, State()))
    assert [one.lesson for one in found] == ["httpchk"]
    assert "check-ssl is missing" in found[0].remedy

    under_way = sitting.current(tmp_path)
    assert under_way is not None
    sitting.mend_machines(site, under_way)
    wait_until(lambda: seen(site) == (True, "L7OK"))
    assert list(balancer_signal(site, State())) == []
