"""Ours and upstream's count each other's leases, on one real API server."""

import asyncio
import random
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.lease_samples import LABELS, SELECTOR
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import run_async
from tests.support.tunnel_pki import FolderAuthority

import peers
from umbilical.cluster.client import make_client
from umbilical.cluster.leases import LeaseCounter, LeasePublisher
from umbilical.host.processes import start

pytestmark = pytest.mark.real(*PROGRAMS, "proxy-server", "proxy-agent")
READY_SECONDS = 30.0


def _free_port() -> int:
    """Find a port below the ephemeral range, where upstream's server allows none."""
    while True:
        port = random.randrange(20000, 30000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        text: bytes = answer.read()
    return text.decode()


@contextmanager
def _upstream(name: str, folder: Path, health_flag: str, arguments: list[str]) -> Iterator[int]:
    """Run one of upstream's programs; give the port of its health listener."""
    port = _free_port()
    program = peers.binary(name)
    assert program is not None
    with start([str(program), *arguments, f"--{health_flag}={port}"], folder / f"{name}.log") as child:
        child.wait_ready(lambda: _get(port, "/healthz") == "ok", READY_SECONDS)
        try:
            yield port
        finally:
            # Upstream's agent drains for ever after a polite signal.
            if name == "proxy-agent":
                child.kill()


def _server_arguments(folder: Path, kubeconfig: Path) -> list[str]:
    serving = FolderAuthority(folder).serving("server")
    return [
        *(f"--uds-name={folder / 'frontend.sock'}", "--server-port=0", f"--cluster-cert={serving.certificate}"),
        *(f"--cluster-key={serving.key}", "--agent-bind-address=127.0.0.1", f"--agent-port={_free_port()}"),
        *("--health-bind-address=127.0.0.1", f"--admin-port={_free_port()}", "--server-id=upstream"),
        *("--enable-lease-controller", f"--kubeconfig={kubeconfig}"),
    ]


async def test_our_counter_counts_upstreams_server_beside_ours(plane: ControlPlane, tmp_path: Path) -> None:
    with _upstream("proxy-server", tmp_path, "health-port", _server_arguments(tmp_path, plane.kubeconfig)):
        async with make_client(plane.kubeconfig) as client:
            ours = LeasePublisher(client, "ours", "kube-system", LABELS)
            await ours.renew()
            counter = LeaseCounter(client, "kube-system", SELECTOR)
            async with asyncio.TaskGroup() as tasks:
                counting = tasks.create_task(counter.run())
                while counter.server_count() != 2:
                    await asyncio.sleep(0.02)
                counting.cancel()
            await ours.withdraw()


def test_upstreams_agent_counts_our_servers(plane: ControlPlane, tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    arguments = [
        *(f"--ca-cert={authority.certificate_file}", "--proxy-server-host=127.0.0.1"),
        *(f"--proxy-server-port={_free_port()}", "--health-server-host=127.0.0.1"),
        *(f"--admin-server-port={_free_port()}", "--count-server-leases", "--sync-interval=100ms"),
        *("--sync-interval-cap=100ms", f"--kubeconfig={plane.kubeconfig}"),
    ]

    async def scenario(port: int) -> None:
        async with make_client(plane.kubeconfig) as client:
            publishers = [LeasePublisher(client, name, "kube-system", LABELS) for name in ("o1", "o2", "o3")]
            for publisher in publishers:
                await publisher.renew()
            while "konnectivity_network_proxy_agent_known_server_count 3" not in _get(port, "/metrics"):
                await asyncio.sleep(0.1)
            for publisher in publishers:
                await publisher.withdraw()

    with _upstream("proxy-agent", tmp_path, "health-server-port", arguments) as port:
        run_async(scenario(port))
