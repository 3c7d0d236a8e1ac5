"""Probes against real listeners: good, bad, silent, and not there."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.tunnel_pki import FolderAuthority

from umbilical.lab.pods.probes import Answer, Target, ask
from umbilical.lab.pods.spec import Execute, HttpGet, Probe, TcpSocket

Reply = Callable[[bytes], bytes]
HERE = Target("127.0.0.1", {"named": 0})
PATIENT = 60


@asynccontextmanager
async def listening(reply: Reply | None, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if reply is not None:
                said = reply(head)
                writer.write(said)
                await writer.drain()
                if said:  # else it closes
                    await reader.read()
            else:
                await asyncio.sleep(30)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def answer_to(
    reply: Reply | None, *, path: str = "/healthz", tls: ssl.SSLContext | None = None, seconds: int = PATIENT
) -> Answer:
    async def run() -> Answer:
        async with listening(reply, tls) as port:
            return await ask(Probe(HttpGet(port, path, is_tls=tls is not None), timeout_seconds=seconds), HERE)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("line", "is_good"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.0 204 No Content", True),
        (b"HTTP/1.1 302 Found", True),
        (b"HTTP/1.1 400 Bad Request", False),
        (b"HTTP/1.1 500 Internal Server Error", False),
        (b"HTTP/1.1 100 Continue", False),
        (b"SSH-2.0-OpenSSH", False),
        (b"HTTP/1.1", False),
        (b"HTTP/1.1 many OK", False),
    ],
)
def test_a_status_from_200_up_to_399_is_good(line: bytes, is_good: bool) -> None:
    assert answer_to(lambda _: line + b"\r\n\r\n").is_good is is_good


def test_the_request_is_what_a_kubelet_sends() -> None:
    heads: list[bytes] = []

    def reply(head: bytes) -> bytes:
        heads.append(head)
        return b"HTTP/1.1 200 OK\r\n\r\n"

    assert answer_to(reply, path="/livez?verbose").is_good
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "GET /livez?verbose HTTP/1.1"
    assert any(line.startswith("User-Agent: kube-probe/") for line in lines)
    assert "Connection: close" in lines


def test_a_certificate_of_nobody_we_trust_is_good_enough(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    context = authority.server_context(authority.serving("somebody", ["elsewhere.example"]))
    assert answer_to(lambda _: b"HTTP/1.1 200 OK\r\n\r\n", tls=context).is_good


def test_silence_is_a_failure_after_the_time_limit() -> None:
    answer = answer_to(None, seconds=1)
    assert not answer.is_good
    assert "within 1 s" in answer.text


def test_a_peer_that_closes_or_talks_without_end_is_a_failure() -> None:
    assert not answer_to(lambda _: b"").is_good
    assert not answer_to(lambda _: b"x" * 200_000).is_good


def test_nobody_there_is_a_failure() -> None:
    async def run() -> list[Answer]:
        async with listening(None) as port:
            pass
        actions = (HttpGet(port), TcpSocket(port))
        return [await ask(Probe(action), HERE) for action in actions]

    assert [answer.is_good for answer in asyncio.run(run())] == [False, False]


def test_a_connection_is_enough_for_a_tcp_probe() -> None:
    async def run() -> Answer:
        async with listening(None) as port:
            probe = Probe(TcpSocket("named"), timeout_seconds=PATIENT)
            return await ask(probe, Target("127.0.0.1", {"named": port}))

    assert asyncio.run(run()).is_good


def test_a_port_that_has_no_such_name_is_told_of() -> None:
    answer = asyncio.run(ask(Probe(TcpSocket("other")), HERE))
    assert not answer.is_good
    assert "'other'" in answer.text


@pytest.mark.parametrize(
    ("command", "is_good"), [(("true",), True), (("false",), False), (("no-such-program",), False)]
)
def test_a_command_is_judged_by_its_exit_code(command: tuple[str, ...], is_good: bool) -> None:
    assert asyncio.run(ask(Probe(Execute(command), timeout_seconds=PATIENT), HERE)).is_good is is_good


def test_a_command_that_hangs_is_a_failure_and_ends() -> None:
    answer = asyncio.run(ask(Probe(Execute(("sh", "-c", "sleep 1000; true"))), HERE))
    assert not answer.is_good
