"""An HTTP server on loopback that answers as a test tells it: for faults that a real kube-apiserver does not make."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

Json = dict[str, Any]
ResultT = TypeVar("ResultT")

SECONDS: Final = 60.0


def run_async(scenario: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a scenario to its end, which comes within the time limit or is a failure."""
    return asyncio.run(asyncio.wait_for(scenario, SECONDS))


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Json:
        content = json.loads(self.content)
        assert isinstance(content, dict)
        return content


@dataclass(frozen=True)
class Answer:
    content: bytes = b"{}"
    status: int = 200
    stays_open: bool = False
    """After the content the answer neither ends nor goes on."""


def json_answer(content: Json, status: int = 200) -> Answer:
    return Answer(json.dumps(content).encode(), status)


def status_answer(status: int, reason: str, message: str = "told so") -> Answer:
    """An error as Kubernetes writes it."""
    return json_answer({"kind": "Status", "code": status, "reason": reason, "message": message}, status)


def watch_answer(*events: Json, stays_open: bool = False) -> Answer:
    return Answer(b"".join(json.dumps(event).encode() + b"\n" for event in events), stays_open=stays_open)


@dataclass
class ScriptedApi:
    """Serves inside the test's own loop. `requests` is what came in, in order."""

    answer: Callable[[Request], Answer]
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    async def __aenter__(self) -> "ScriptedApi":
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    def write_kubeconfig(self, folder: Path) -> Path:
        path = folder / "scripted.kubeconfig"
        content = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "current-context": "c",
        }
        path.write_text(json.dumps(content))
        return path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                request = await _read_request(reader)
                self.requests.append(request)
                await self._reply(self.answer(request), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _reply(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {answer.status} Told\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        chunk = b"%x\r\n%b\r\n" % (len(answer.content), answer.content) if answer.content else b""
        writer.write(head.encode() + chunk)
        if answer.stays_open:
            await reader.read()
            raise ConnectionResetError
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request_line, *lines = head.strip().split("\r\n")
    method, target, _version = request_line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, content)
