"""The kernel's table of sockets, read on this machine."""

import socket
import subprocess

import pytest

from umbilical.lab import listeners

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F9B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 6519 1 0 100 0 0 10 0
   1: 0100007F:1F9B 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 6520 1 0 100 0 0 10 0
"""


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_socket_that_listens_is_found_by_its_port_and_no_longer_when_it_is_closed(
    family: socket.AddressFamily, host: str
) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        assert listeners.on_ports(_tables(), [port]) == [shown]
        # A connection has the same local port, and does not listen.
        with socket.create_connection((host, port), 5):
            assert listeners.on_ports(_tables(), [port]) == [shown]
    assert listeners.on_ports(_tables(), [port]) == []


def test_connections_are_left_out_and_the_head_too() -> None:
    assert listeners.listeners(TABLE) == [("127.0.0.1", 8091)]
    assert listeners.listeners("") == []


def _tables() -> str:
    return subprocess.run(listeners.COMMAND, capture_output=True, text=True, check=False, timeout=30).stdout
