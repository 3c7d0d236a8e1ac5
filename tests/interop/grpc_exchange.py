"""A gRPC server and client of grpcio's, in a process of their own, with a SOCKS5 proxy between them.

`python grpc_exchange.py PROXY_PORT` prints what the client heard. grpcio knows no SOCKS, so a local port carries it.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
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


def _join(one: socket.socket, other: socket.socket) -> None:
    for pair in ((one, other), (other, one)):
        threading.Thread(target=_carry, args=pair, daemon=True).start()


def _forward(listening: socket.socket, proxy_port: int, target: tuple[str, int]) -> None:
    """The client's end: grpcio connects here."""
    while True:
        near, _ = listening.accept()
        proxy = {"proxy_type": socks.SOCKS5, "proxy_addr": "127.0.0.1", "proxy_port": proxy_port}
        _join(near, socks.create_connection(target, 60, **proxy))


def _answer(listening: socket.socket, port: int) -> None:
    """The endpoint: a gRPC server speaks first, and upstream's server may pass that on before its own 200."""
    while True:
        near, _ = listening.accept()
        first = near.recv(1 << 16)
        far = socket.create_connection(("127.0.0.1", port), 60)
        far.sendall(first)
        _join(near, far)


def _listen(work: Callable[..., None], *arguments: object) -> int:
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=work, args=(listening, *arguments), daemon=True).start()
    port: int = listening.getsockname()[1]
    return port


def main(proxy_port: int) -> None:
    server, port = _serve()
    endpoint = _listen(_answer, port)
    local = _listen(_forward, proxy_port, ("127.0.0.1", endpoint))
    with grpc.insecure_channel(f"127.0.0.1:{local}") as channel:
        print(channel.unary_unary("/Town/Shout")(b"hello", timeout=60, wait_for_ready=True).decode())
        heard = list(channel.stream_stream("/Town/ShoutEach")(iter(WORDS), timeout=60))
    print("every word came back" if heard == [word.upper() for word in WORDS] else "words were lost")
    server.stop(None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
