"""`python -m umbilical.cli.lab.slow_reader grpc|http-connect SOCKET ADDRESS`: opens a tunnel and never reads from it.

A fault of the lab. It stands here because only this room may import the tunnel.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Final

from umbilical.tunnel.blocking_dial import Deadline, DialRefused, dial_connect
from umbilical.tunnel.blocking_grpc import dial_grpc

DIAL_SECONDS: Final = 30.0


def main(arguments: Sequence[str], hold: threading.Event | None = None) -> int:
    """Hold the tunnel until somebody ends this process, or sets `hold`."""
    mode, socket_path, address = arguments
    dial = dial_grpc if mode == "grpc" else dial_connect
    try:
        stream = dial(socket_path, address, Deadline(DIAL_SECONDS))
    except DialRefused as refused:
        print(f"no tunnel to {address}: {refused}", file=sys.stderr)
        return 1
    print(f"a tunnel to {address} is open, and nobody reads it", flush=True)
    (hold or threading.Event()).wait()
    stream.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
