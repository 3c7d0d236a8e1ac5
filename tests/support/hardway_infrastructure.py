"""Load balancers and resolvers of the hard way, run for real on loopback addresses of this process alone."""

import http.server
import ipaddress
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support.hardway import cluster, identity, payload
from tests.support.joined_server import HttpServer

from umbilical.hardway.artifacts.infrastructure.render import render_infrastructure
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import API_PORT, AddressRange, Cluster, ClusterProfile
from umbilical.hardway.pki.certificate_set import SIGNERS, Bundle, HardwaySet
from umbilical.manifests.tree import AssetTree
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, server_profile

_LIFE: Final = timedelta(days=1)


@cache
def signers() -> dict[str, Authority]:
    """The few signers that the infrastructure's files name."""
    now = datetime.now(UTC)
    names = (*SIGNERS[Bundle.SERVER_CA], "root-ca")
    return {name: Authority.create(name, now, _LIFE, KeyType.ECDSA_P256) for name in names}


def inputs(of: Cluster) -> Inputs:
    certificates = HardwaySet({name: signer.pair for name, signer in signers().items()})
    return Inputs(of, certificates, payload(of.profile), identity())


def infrastructure(of: Cluster) -> AssetTree:
    return render_infrastructure(inputs(of), AssetTree())


def loopback_cluster(profile: ClusterProfile, **changes: Any) -> Cluster:
    """A cluster whose machine network is a piece of 127/8 that no other process takes."""
    number = os.getpid()
    machine = ipaddress.ip_network(f"127.{100 + number % 100}.{number // 100 % 250}.0/24")
    usual = cluster(profile, **changes)
    nodes = tuple(replace(node, address=machine[int(node.address) & 0xFF]) for node in usual.nodes)
    networks = replace(
        usual.networks,
        machine=machine,
        gateway=machine[1],
        dns=machine[1],
        api_vip=machine[10],
        ingress_vip=machine[11],
        dhcp=AddressRange(machine[200], machine[254]),
    )
    return replace(usual, networks=networks, nodes=nodes)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        is_ready = self.server.owner.is_ready or self.path != "/readyz"
        body = self.server.owner.name.encode()
        self.send_response(200 if is_ready else 500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(HttpServer):
    daemon_threads = True
    owner: "ApiServer"

    def handle_error(self, request: object, client_address: object) -> None:
        """Checks and probes may hang up at any moment."""


@dataclass
class ApiServer:
    """What answers like a kube-apiserver: /readyz as it is told, anything else with its own name."""

    name: str
    is_ready: bool = True


@contextmanager
def api_server(name: str, address: str, folder: Path) -> Iterator[ApiServer]:
    """Serve HTTPS on the API's port of a loopback address, with a certificate of the service network's signer."""
    signer = signers()["kube-apiserver-service-network-signer"]
    pair = signer.issue(server_profile(name, (address,), KeyType.ECDSA_P256), datetime.now(UTC), _LIFE)
    file = folder / f"{name}.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    owner = ApiServer(name)
    with _Server((address, API_PORT), _Handler) as server:
        server.owner = owner
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, name=name, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield owner
        finally:
            server.shutdown()
            thread.join(20)
