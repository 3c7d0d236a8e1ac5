"""Both clusters of a hosted control plane: found, asked, and their health."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import scripted
from tests.support import web_server
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.in_process import Stage
from tests.support.scripted_api import Answer, Request, status_answer
from tests.support.tunnel_pair import free_port
from tests.support.web_server import Handler

from umbilical.hosted.clusters import (
    NO_AGENT_PAIR,
    NO_CLIENT,
    NO_HEALTH,
    NO_HOSTED,
    NO_MANAGEMENT,
    NO_PROXIES,
    CheckOptions,
    Clusters,
    ask_clusters,
)
from umbilical.hosted.facts import HostedFacts, ManagementFacts, ServerHealth, Unknown
from umbilical.hosted.servers import connected_agents, directly, proxy_health, server_health, through_api
from umbilical.tunnel.settings import ServerAddress, TlsFiles

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
    exchange = server.server.core
    metrics = stage.call(lambda: exchange.metrics.render(exchange.gauges())).decode()
    assert connected_agents(metrics) == {"default": 1}


def test_agents_are_counted_by_strategy_and_older_servers_tell_one_number() -> None:
    text = "konnectivity_network_proxy_server_ready_backend"
    lines = [f'{text}s{{proxy_strategy="destHost"}} 2', f'{text}s{{proxy_strategy="defaultRoute"}} 3e+00']
    assert connected_agents("\n".join([*lines, f"{text}_connections 3"])) == {"destHost": 2, "defaultRoute": 3}
    assert connected_agents(f"# HELP x\n{text}_connections 7\n") == {"default": 7}
    assert connected_agents("nothing") == {}


def test_a_server_that_lives_tells_its_agents_and_one_that_is_away_or_not_well_why() -> None:
    metrics = b'konnectivity_network_proxy_server_ready_backends{proxy_strategy="default"} 4\n'
    with serving({"/healthz": (200, b"ok"), "/metrics": (200, metrics)}) as port:
        assert asked(port) == ServerHealth("s", agents={"default": 4})
    for pages, word in (
        ({"/healthz": (500, b"not well\nat all")}, "HTTP 500 on /healthz: not well at all"),
        ({"/healthz": (200, b"ok")}, "HTTP 404 on /metrics"),
        ({"/healthz": (200, b"ok"), "/metrics": (200, b"x" * (4 << 20) + b"y")}, "more than"),
    ):
        with serving(pages) as port:
            assert word in asked(port).trouble
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


FILES = TlsFiles(Path("c"), Path("k"), Path("ca"))


def asked_of(options: CheckOptions, folder: Path) -> Clusters:
    return asyncio.run(asyncio.wait_for(ask_clusters(options, folder), 2 * SECONDS))


def test_nothing_given_is_nothing_known(tmp_path: Path) -> None:
    found = asked_of(CheckOptions(), tmp_path)
    assert (found.client, found.agent, found.kubelet) == (NO_CLIENT, NO_AGENT_PAIR, None)
    assert (found.health, found.proxies) == (NO_HEALTH, NO_PROXIES)
    assert (found.management, found.hosted, found.certificates) == (NO_MANAGEMENT, NO_HOSTED, NO_MANAGEMENT)


def test_what_is_given_is_taken_and_ports_are_asked_directly(tmp_path: Path) -> None:
    pages = {"/healthz": (200, b"ok"), "/metrics": (200, b""), "/readyz": (503, b"not yet")}
    with serving(pages) as port:
        place = (ServerAddress("127.0.0.1", port),)
        options = CheckOptions(
            client=FILES, agent=FILES, kubelet=FILES, health=place, proxies=place, hop_seconds=SECONDS
        )
        found = asked_of(options, tmp_path)
    assert (found.client, found.agent, found.kubelet) == (FILES, FILES, FILES)
    assert found.health == (ServerHealth(f"127.0.0.1:{port}"),)
    assert isinstance(found.proxies, tuple)
    assert "not yet" in found.proxies[0].trouble


def test_kubeconfigs_that_cannot_be_used_are_failures(tmp_path: Path) -> None:
    options = CheckOptions(management_kubeconfig=tmp_path / "none", namespace="n", hosted_kubeconfig=tmp_path / "none")
    found = asked_of(options, tmp_path)
    for part in (found.management, found.hosted, found.certificates, found.client, found.health):
        assert isinstance(part, Unknown)
        assert part.is_failure
        assert "UMB601" in part.reason
    assert found.agent == NO_AGENT_PAIR


@pytest.mark.real(*PROGRAMS)
def test_a_namespace_without_a_tunnel_tells_what_is_missing(plane: ControlPlane, tmp_path: Path) -> None:
    options = CheckOptions(
        management_kubeconfig=plane.kubeconfig, namespace="kube-public", hosted_kubeconfig=plane.kubeconfig
    )
    found = asked_of(options, tmp_path)
    assert isinstance(found.management, ManagementFacts)
    assert isinstance(found.hosted, HostedFacts)
    assert found.health == ()
    assert isinstance(found.client, Unknown)
    assert "UMB570" in found.client.reason
    assert isinstance(found.certificates, tuple)
    assert {fact.trouble for fact in found.certificates} == {"there is no such Secret"}


@pytest.mark.real(*PROGRAMS)
def test_the_agents_pair_is_found_in_the_hosted_cluster(plane: ControlPlane, tmp_path: Path) -> None:
    secret = {"name": "konnectivity-agent", "namespace": "kube-system"}
    plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"tls.crt": "c", "tls.key": "k"}}
    )
    try:
        found = asked_of(CheckOptions(hosted_kubeconfig=plane.kubeconfig), tmp_path)
    finally:
        plane.kubectl("-n", "kube-system", "delete", "secret", "konnectivity-agent")
    assert isinstance(found.agent, TlsFiles)
    assert found.agent.key is not None
    assert found.agent.key.read_text() == "k"
    assert isinstance(found.certificates, tuple)
    assert "cannot be read" in found.certificates[0].trouble
