"""A gRPC server and client of grpcio's, in a process of their own, with a SOCKS5 proxy between them.

`python grpc_exchange.py PROXY_PORT` prints what the client heard. grpcio knows no SOCKS, so a local port carries it.
"""

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc  # type: ignore[import-untyped]
import socks  # type: ignore[import-untyped]

WORDS = [b"word %d " % number * 5_000 for number in range(20)]


def _shout(request: bytes, _: grpc.ServicerContext) -> bytes:
    return request.upper()


def _shout_each(requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
    for request in requests:
        yield request.upper()


def _serve() -> tuple[grpc.Server, int]:
    methods = {
        "Shout": grpc.unary_unary_rpc_method_handler(_shout),
        "ShoutEach": grpc.stream_stream_rpc_method_handler(_shout_each),
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Town", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def _carry(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _forward(listening: socket.socket, proxy_port: int, target: tuple[str, int]) -> None:
    while True:
        near, _ = listening.accept()
        far = socks.create_connection(
            target, 60, proxy_type=socks.SOCKS5, proxy_addr="127.0.0.1", proxy_port=proxy_port
        )
        for pair in ((near, far), (far, near)):
            threading.Thread(target=_carry, args=pair, daemon=True).start()


def main(proxy_port: int) -> None:
    server, port = _serve()
    listening = socket.create_server(("127.0.0.1", 0))
    arguments = (listening, proxy_port, ("127.0.0.1", port))
    threading.Thread(target=_forward, args=arguments, daemon=True).start()
    with grpc.insecure_channel(f"127.0.0.1:{listening.getsockname()[1]}") as channel:
        print(channel.unary_unary("/Town/Shout")(b"hello", timeout=60, wait_for_ready=True).decode())
        heard = list(channel.stream_stream("/Town/ShoutEach")(iter(WORDS), timeout=60))
    print("every word came back" if heard == [word.upper() for word in WORDS] else "words were lost")
    server.stop(None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
