import asyncio
import json
import time

import bench_fleet
import transfers
from bench_agents import settings_for
from bench_fleet import FleetFigures, FleetSize
from umbilical.cluster.review_cache import expiry


async def _ask(port: int, request: bytes) -> dict[str, object]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    writer.close()
    assert isinstance(body, dict)
    return body


async def test_the_api_of_the_fleet_says_yes_to_every_token_and_counts() -> None:
    server = await asyncio.start_server(bench_fleet.ReviewApi().serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(10):
        for _ in range(2):
            answer = await _ask(port, b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            assert answer["status"] == {
                "authenticated": True,
                "user": {"username": "system:serviceaccount:kube-system:konnectivity-agent"},
                "audiences": ["fleet"],
            }
        assert await _ask(port, b"GET / HTTP/1.1\r\n\r\n") == {"reviews": 2}


def test_each_agent_has_a_token_of_its_own_that_does_not_expire_in_the_run() -> None:
    first, second = bench_fleet.token(1), bench_fleet.token(2)
    assert first != second
    assert (expiry(first) or 0.0) > time.time() + 3600


def test_each_agent_reads_its_own_token_file() -> None:
    settings = settings_for("0-7", ["--ca-cert=/ca", "--service-account-token-path=/tokens/{id}"])
    assert (settings.agent_id, str(settings.token_path)) == ("0-7", "/tokens/0-7")


def test_the_table_has_a_column_for_each_server() -> None:
    figures = FleetFigures(2.0, 3.5, 1.0, 20, 31.4, 150.0, 0.0123)
    told = bench_fleet.lines(FleetSize(5000, 4, 1.0), {"ours": figures, "upstream": figures})
    assert told[0].split() == ["5,000", "agents", "on", "one", "server", "ours", "upstream"]
    assert told[2].split()[-4:] == ["3.5", "s", "3.5", "s"]
    assert told[-1].split()[-4:] == ["0.012", "cores", "0.012", "cores"]


def test_the_content_of_a_transfer_begins_where_the_client_asks_and_wraps() -> None:
    content = transfers.Content(1000)
    whole = bytes(content.part(0, 0, 1000))
    assert bytes(content.part(300, 0, 1000)) == whole[300:] + whole[:300]
    assert len(set(whole)) > 200
