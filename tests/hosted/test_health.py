"""Health ports: real metrics of a real server, answers through the API, and everything that can be wrong."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import scripted
from tests.support import web_server
from tests.support.in_process import Stage
from tests.support.scripted_api import Answer, Request, status_answer
from tests.support.tunnel_pair import free_port
from tests.support.web_server import Handler

from umbilical.hosted.facts import ServerHealth
from umbilical.hosted.health import connected_agents, directly, proxy_health, server_health, through_api

SECONDS = 60.0


def serving(pages: dict[str, tuple[int, bytes]]) -> AbstractContextManager[int]:
    class Pages(Handler):
        def do_GET(self) -> None:
            self.answer(*pages.get(self.path, (404, b"no such page")))

    return web_server.serving(Pages)


def asked(port: int, look: Any = server_health) -> ServerHealth:
    found = asyncio.run(look("s", directly("127.0.0.1", port, SECONDS)))
    assert isinstance(found, ServerHealth)
    return found


def test_agents_are_counted_from_a_real_servers_metrics(stage: Stage) -> None:
    server, _ = stage.start_pair()
    exchange = server.server.exchange
    metrics = stage.call(lambda: exchange.metrics.render(exchange.gauges())).decode()
    assert connected_agents(metrics) == {"default": 1}


def test_agents_are_counted_by_strategy_and_older_servers_tell_one_number() -> None:
    text = "konnectivity_network_proxy_server_ready_backend"
    lines = [f'{text}s{{proxy_strategy="destHost"}} 2', f'{text}s{{proxy_strategy="defaultRoute"}} 3e+00']
    assert connected_agents("\n".join([*lines, f"{text}_connections 3"])) == {"destHost": 2, "defaultRoute": 3}
    assert connected_agents(f"# HELP x\n{text}_connections 7\n") == {"default": 7}
    assert connected_agents("nothing") == {}


def test_a_server_that_lives_tells_its_agents() -> None:
    metrics = b'konnectivity_network_proxy_server_ready_backends{proxy_strategy="default"} 4\n'
    with serving({"/healthz": (200, b"ok"), "/metrics": (200, metrics)}) as port:
        assert asked(port) == ServerHealth("s", agents={"default": 4})


@pytest.mark.parametrize(
    ("pages", "word"),
    [
        ({"/healthz": (500, b"not well\nat all")}, "HTTP 500 on /healthz: not well at all"),
        ({"/healthz": (200, b"ok")}, "HTTP 404 on /metrics"),
        ({"/healthz": (200, b"ok"), "/metrics": (200, b"x" * (4 << 20) + b"y")}, "more than"),
    ],
)
def test_a_server_that_is_not_well_tells_why(pages: dict[str, tuple[int, bytes]], word: str) -> None:
    with serving(pages) as port:
        assert word in asked(port).trouble


def test_nobody_there_is_told_too() -> None:
    assert "refused" in asked(free_port()).trouble.lower()
    assert "refused" in asked(free_port(), proxy_health).trouble.lower()


def test_a_proxy_is_ready_or_says_why_not() -> None:
    with serving({"/readyz": (200, b"ok")}) as port:
        assert asked(port, proxy_health).trouble == ""
    with serving({"/readyz": (503, b"the tunnel does not work")}) as port:
        assert "the tunnel does not work" in asked(port, proxy_health).trouble


def test_a_pod_is_asked_through_the_api(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        return Answer(b"ok")

    async def look(client: Any) -> ServerHealth:
        return await server_health("pod", through_api(client, "clusters-a", "kas-0", 2041))

    found, requests = scripted(answer, look, tmp_path)
    assert found == ServerHealth("pod")
    place = "/api/v1/namespaces/clusters-a/pods/kas-0:2041/proxy"
    assert [request.path for request in requests] == [f"{place}/healthz", f"{place}/metrics"]
    forbidden, _ = scripted(lambda _: status_answer(403, "Forbidden", "may not get pods/proxy"), look, tmp_path)
    assert "pods/proxy" in forbidden.trouble
