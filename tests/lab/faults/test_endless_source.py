import socket
import threading

import pytest

from umbilical.lab.faults.endless_source import Source


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_it_sends_without_end_to_everybody(address: str) -> None:
    with Source(address, 0) as source:
        threading.Thread(target=source.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        place = (address, source.server_address[1])
        with socket.create_connection(place, timeout=10) as one, socket.create_connection(place, timeout=10) as two:
            for connection in (one, two):
                received = 0
                while received < 1 << 20:
                    piece = connection.recv(1 << 16)
                    assert piece == bytes(len(piece)) != b""
                    received += len(piece)
        source.shutdown()
