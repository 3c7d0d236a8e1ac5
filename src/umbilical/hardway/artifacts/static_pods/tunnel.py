"""The tunnel's end on the bootstrap node: its server, and how kube-apiserver is told of it."""

import posixpath
from typing import Any, Final

from umbilical.bootstrap.names import EGRESS_FILE
from umbilical.bootstrap.render.kube_apiserver import egress_selector
from umbilical.bootstrap.render.objects import server_pod
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.artifacts.tunnel import tunnel_spec
from umbilical.manifests.static_pod import HostFile

SERVER_PKI: Final = posixpath.join(layout.TUNNEL_PKI, "server")
AGENT_PKI: Final = posixpath.join(layout.TUNNEL_PKI, "agent")
"""Both hold ca.crt, tls.crt and tls.key, once the certificate script has run with TUNNEL_PKI as its directory."""
EGRESS_IN_POD: Final = posixpath.join(layout.POD_CONFIGS, EGRESS_FILE)


def konnectivity_server_pod(seat: Seat) -> dict[str, Any]:
    return server_pod(tunnel_spec(seat.inputs), SERVER_PKI, is_made_once=True)


def egress_selector_config(seat: Seat) -> dict[str, Any]:
    return egress_selector(tunnel_spec(seat.inputs))


def config_files(seat: Seat) -> tuple[HostFile, ...]:
    """Where kube-apiserver finds egress selector and socket; it connects to the socket, and writes nothing."""
    config = HostFile("config", layout.NODE_CONFIGS, "DirectoryOrCreate", mount_path=layout.POD_CONFIGS)
    spec = tunnel_spec(seat.inputs)
    if spec.socket_directory == layout.NODE_CONFIGS:
        return (config,)
    socket = HostFile(
        "socket", spec.socket_directory, "DirectoryOrCreate", mount_path=spec.socket_directory_in_kube_apiserver
    )
    return (config, socket)
