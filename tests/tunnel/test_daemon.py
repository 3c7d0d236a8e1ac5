"""What both processes share: an HTTP port that opens or says why not, and tasks that end with their owner."""

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest
from tests.support.daemons import get, play

from umbilical.tunnel.admin import AgentHealthRoutes
from umbilical.tunnel.daemon import end_task, open_http, own_task
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import ListenAddress


def _routes() -> AgentHealthRoutes:
    return AgentHealthRoutes(lambda: True, lambda: b"")


def test_a_port_serves_until_its_owner_leaves() -> None:
    async def script() -> None:
        async with AsyncExitStack() as stack:
            listener = await open_http(stack, ListenAddress("127.0.0.1", 0), _routes(), "health")
            address = ListenAddress("127.0.0.1", listener.port)
            assert await get(address, "/healthz") == (200, "ok")
        assert await get(address, "/healthz") == (0, "")

    play(script())


def test_a_port_that_is_taken_says_who_to_ask() -> None:
    async def script() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with AsyncExitStack() as stack:
                with pytest.raises(StartupError) as caught:
                    await open_http(stack, ListenAddress("127.0.0.1", port), _routes(), "health")
        error = caught.value
        assert (error.code, error.what) == ("UMB023", f"cannot listen on 127.0.0.1:{port} for health")
        assert error.why.startswith("Address already in use")
        assert error.next == f"see who holds the port: ss -ltnp 'sport = :{port}'"

    play(script())


def test_ending_a_task_waits_for_its_end_and_hides_its_failure() -> None:
    async def stubborn(story: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            story.append("cleaned up")

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("too late to matter") from None

    async def script() -> None:
        story: list[str] = []
        first, second = own_task(stubborn(story)), own_task(failing())
        await asyncio.sleep(0)
        await end_task(first)
        assert story == ["cleaned up"]
        await end_task(second)
        assert isinstance(second.exception(), OSError)

    play(script())
