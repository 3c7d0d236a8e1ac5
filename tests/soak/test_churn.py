"""Minutes of tunnels that end in every way: afterwards descriptors, tables and memory are what they were.

UMBILICAL_SOAK_SECONDS sets the length of one run (120).
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.interop.endpoints import echo, endpoint, refused_address
from tests.support.tunnel_client import DialRefused, Frontend, close_leftovers, receive_exactly
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import make_tunnel_pki

pytestmark = pytest.mark.soak

SECONDS: Final = float(os.environ.get("UMBILICAL_SOAK_SECONDS", "120"))
WARM_UP_TUNNELS: Final = 500
# The allocator keeps arenas of the busiest moment; a leak of a few hundred bytes per tunnel is far more than this.
GROWTH_KIB: Final = 8 * 1024


def _orderly(frontend: Frontend, address: str) -> None:
    tunnel = frontend.open(address)
    payload = random.randbytes(random.choice((1, 128, 20_000)))
    tunnel.send(payload)
    assert receive_exactly(tunnel, len(payload)) == payload
    tunnel.close()


def _aborted(frontend: Frontend, address: str) -> None:
    tunnel = frontend.open(address)
    tunnel.send(b"never read")
    tunnel.abort()


def _refused(frontend: Frontend, address: str) -> None:
    with pytest.raises(DialRefused):
        frontend.open(refused_address())


def _abandoned(frontend: Frontend, address: str) -> None:
    frontend.dial(address).abandon()


WAYS: Final[tuple[Callable[[Frontend, str], None], ...]] = (_orderly, _orderly, _aborted, _refused, _abandoned)


@pytest.fixture(params=["http-connect", "grpc"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TunnelPair]:
    pair = TunnelPair(Shape(mode=request.param), make_tunnel_pki(tmp_path), tmp_path)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        close_leftovers()


def _churn(pair: TunnelPair, address: str, count: int) -> None:
    frontend = pair.frontend()
    for _ in range(count):
        random.choice(WAYS)(frontend, address)
    close_leftovers()


def _pids(pair: TunnelPair) -> list[int]:
    return [pair.server.pid, *(pair.worker_pids() if pair.shape.has_workers else ()), pair.agent.pid]


def _open_files(pair: TunnelPair) -> list[int]:
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in _pids(pair)]


def _settled(pair: TunnelPair, before: list[int]) -> bool:
    return all(now <= then for now, then in zip(_open_files(pair), before, strict=True))


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def test_nothing_grows_while_tunnels_come_and_go(pair: TunnelPair) -> None:
    servers = pair.shape.workers
    wait_until(lambda: pair.agent_metric("open_server_connections") == servers, "the agent holds every worker")
    with endpoint(echo) as address:
        before_files = _open_files(pair)
        _churn(pair, address, WARM_UP_TUNNELS)
        wait_until(lambda: _settled(pair, before_files), "descriptors are closed after the warm-up")
        before_kib = [_resident_kib(pid) for pid in _pids(pair)]
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            _churn(pair, address, 100)
        wait_until(lambda: _settled(pair, before_files), "descriptors are closed after the churn")
        after_kib = [_resident_kib(pid) for pid in _pids(pair)]
    growth = [after - before for before, after in zip(before_kib, after_kib, strict=True)]
    assert max(growth) <= GROWTH_KIB, f"server, workers and agent grew by {growth} KiB"
    assert pair.server_metric("established_connections") == 0
    assert pair.server_metric("pending_backend_dials") == 0
    assert pair.agent_metric("open_endpoint_connections") == 0
