"""When traffic leaves the tunnel, which of it, and when it comes back (docs/decisions/0019-names-and-the-tunnel.md)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.proxies import outbound_testbed
from tests.proxies.name_testbed import until
from tests.proxies.outbound_testbed import DNS_SERVER, OutboundTestbed
from tests.proxies.proxy_testbed import ScriptedProxy

from umbilical.dialer.failure import DialReason
from umbilical.dialer.streams import Streams
from umbilical.konnectivity.dial_failure import PROBE_HOST
from umbilical.proxies.lookup import LookupFailed, LookupResult
from umbilical.proxies.settings import Resolution

IDP = "idp.corp.example"
CONSOLE = "console.monitoring"


class Outside:
    """A server on loopback as the network outside the tunnel."""

    def __init__(self, stage: OutboundTestbed, port: int) -> None:
        self.stage = stage
        self.port = port
        self.accepted = 0

    async def open(self, host: str) -> None:
        await self.stage.open(host, self.port)


@asynccontextmanager
async def open_testbed(**settings: Any) -> AsyncIterator[tuple[OutboundTestbed, Outside]]:
    stage = OutboundTestbed(Resolution.HOSTED_THEN_MANAGEMENT, **settings)
    stage.machine = {f"{IDP}.": ["127.0.0.1"], "other.corp.example.": ["127.0.0.1"], f"{CONSOLE}.": ["127.0.0.1"]}
    outside = Outside(stage, 0)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outside.accepted += 1
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, backlog=1000) as server:
        outside.port = server.sockets[0].getsockname()[1]
        yield stage, outside
        await stage.outbound.close()
        await stage.close()


@pytest.mark.parametrize("reason", [DialReason.SERVER, DialReason.TLS, DialReason.NO_AGENT, DialReason.AGENT_LOST])
async def test_a_tunnel_that_is_down_is_left_for_names_of_the_world(reason: DialReason) -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.everything = reason
        await outside.open(IDP)
        assert outside.accepted == 1
        assert stage.asked_machine == [f"{IDP}."], "absolute: no search list of this machine has a part in it"
        assert not stage.outbound.is_tunnel_healthy
        assert stage.counts.dials == [("direct", "ok")]
        tried = len(stage.tunnel.dials)
        await outside.open("other.corp.example")
        assert len(stage.tunnel.dials) == tried, "and known to be down it is not tried for every dial"


async def test_a_name_that_hosted_dns_does_not_know_proves_the_tunnels_health_and_stays_unknown() -> None:
    """HyperShift's proxies read NXDOMAIN as a broken tunnel, and bypass it for half a minute."""

    async with open_testbed() as (stage, outside):
        stage.machine["secret.corp.example."] = ["127.0.0.1"]
        failure = await stage.failure("secret.corp.example", outside.port)
        assert isinstance(failure, LookupFailed)
        assert failure.result is LookupResult.ABSENT
        await stage.open(IDP)
        assert stage.dials[-1] == ("10.0.0.1", 443)
        assert stage.asked_machine == []
        assert outside.accepted == 0
        assert PROBE_HOST not in stage.tunnel.hosts


@pytest.mark.parametrize("code", ["SERVFAIL", "REFUSED"])
async def test_a_dns_server_that_fails_does_not_open_the_tunnel(code: str) -> None:
    async with open_testbed() as (stage, outside):
        stage.dns.zone[IDP, "rcode"] = [code]
        assert (await stage.failure(IDP, outside.port)).reason is DialReason.NAME
        assert stage.outbound.is_tunnel_healthy
        assert outside.accepted == 0


async def test_dns_pods_that_are_all_gone_do_not_open_it_either() -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.outcomes[DNS_SERVER[0]] = DialReason.REFUSED
        failure = await stage.failure(IDP, outside.port)
        assert failure.reason is DialReason.NAME
        assert stage.outbound.is_tunnel_healthy
        assert outside.accepted == 0


@pytest.mark.parametrize(
    "reason", [DialReason.REFUSED, DialReason.TIMEOUT, DialReason.UNREACHABLE, DialReason.FORBIDDEN]
)
async def test_an_endpoint_that_fails_does_not_open_it(reason: DialReason) -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.outcomes["10.0.0.1"] = reason
        assert (await stage.failure(IDP, outside.port)).reason is reason
        assert outside.accepted == 0
        assert stage.counts.dials == [("tunnel", reason.value)]


async def test_one_agent_that_was_lost_costs_a_second_try_and_nothing_leaves() -> None:
    async with open_testbed() as (stage, outside):
        lost: list[DialReason] = [DialReason.AGENT_LOST]
        plain = stage.tunnel.open

        async def once(host: str, port: int) -> Streams:
            if host == "10.0.0.1" and lost:
                stage.tunnel.outcomes[host] = lost.pop()
            else:
                stage.tunnel.outcomes.pop("10.0.0.1", None)
            return await plain(host, port)

        stage.tunnel.open = once  # type: ignore[method-assign]
        await stage.open(IDP)
        assert stage.counts.dials == [("tunnel", "agent-lost"), ("tunnel", "ok")]
        assert outside.accepted == 0


async def test_one_endpoint_without_an_agent_is_its_own_misfortune() -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.outcomes["10.0.0.1"] = DialReason.NO_AGENT
        assert (await stage.failure(IDP, outside.port)).reason is DialReason.NO_AGENT
        assert stage.outbound.is_tunnel_healthy
        assert outside.accepted == 0
        await stage.open("several.corp.example")


CLUSTERS_OWN = [
    "172.30.9.9", "fd02::9", "console.monitoring.svc", "console.monitoring.svc.cluster.local.",
    "etcd-0.example.cluster.local",
    # By this machine's search list: a Service beside the control plane; and the machine itself.
    "etcd-client", "localhost", "anything.localhost",
    # Other notations of addresses, which resolvers accept.
    "2887647493", "0xac1e0905", "172.30.2309", "0254.036.011.011", "console.monitoring.svc..",
]  # fmt: skip


@pytest.mark.parametrize("host", CLUSTERS_OWN)
async def test_what_has_a_meaning_in_the_cluster_alone_never_leaves_the_tunnel(host: str) -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.everything = DialReason.NO_AGENT
        stage.machine |= {host: ["127.0.0.1"], f"{host}.": ["127.0.0.1"]}
        for _ in range(2):
            assert (await stage.failure(host, outside.port)).reason in (DialReason.NO_AGENT, DialReason.NAME)
            await outside.open(IDP)  # and the tunnel is known to be down
        assert stage.asked_machine == [f"{IDP}."] * 2
        assert outside.accepted == 2


async def test_what_is_never_direct_does_not_leave_a_broken_tunnel_either() -> None:
    """The user's proxy is such a host: its credentials would leave the tunnel."""

    async with open_testbed(never_direct=(IDP.upper(),)) as (stage, outside):
        stage.tunnel.everything = DialReason.NO_AGENT
        assert (await stage.failure(f"{IDP}.", outside.port)).reason is DialReason.NO_AGENT
        assert stage.asked_machine == []
        assert outside.accepted == 0


async def test_a_short_name_is_a_services_where_the_api_says_so_and_else_the_worlds() -> None:
    async with open_testbed() as (stage, outside):
        stage.machine["example.com."] = ["127.0.0.1"]
        stage.tunnel.everything = DialReason.NO_AGENT
        await outside.open("example.com")
        assert (await stage.failure(CONSOLE, outside.port)).reason is DialReason.NO_AGENT
        assert stage.dials[-1] == ("172.30.9.9", outside.port), "its ClusterIP was dialled through the tunnel"
        assert f"{CONSOLE}." not in stage.asked_machine


async def test_addresses_that_hosted_dns_gave_are_not_dialled_past_the_tunnel() -> None:
    async with open_testbed() as (stage, outside):
        stage.dns.zone[IDP, "A"] = ["60", "127.0.0.2"]  # would be reached from here
        await stage.open(IDP, outside.port)
        stage.tunnel.everything = DialReason.SERVER
        await outside.open(IDP)
        assert stage.asked_machine == [f"{IDP}."]
        assert outside.accepted == 1


async def test_traffic_to_port_53_is_traffic_and_the_resolvers_own_dials_always_take_the_tunnel() -> None:
    """HyperShift's proxies recognise DNS queries by port 53, so they treat clients' traffic to it the same."""

    async with open_testbed() as (stage, _outside):
        stage.tunnel.everything = DialReason.SERVER
        stage.machine[f"{IDP}."] = ["127.0.0.9"]
        failure = await stage.failure(IDP, 53)
        assert failure.reason in (DialReason.REFUSED, DialReason.UNREACHABLE), (
            "dialled past the tunnel, like any other port"
        )
        assert stage.counts.dials[-1][0] == "direct"
        stage.tunnel.everything = None
        stage.clock.turn(1)
        await until(lambda: stage.outbound.is_tunnel_healthy)
        await stage.open(IDP, 53)
        assert stage.dials[-2:] == [DNS_SERVER, ("10.0.0.1", 53)]


async def test_it_comes_back_by_itself() -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.everything = DialReason.SERVER
        await outside.open(IDP)
        stage.tunnel.everything = None
        await until(lambda: bool(stage.clock.sleepers))
        stage.clock.turn(1)
        await until(lambda: stage.outbound.is_tunnel_healthy)
        await stage.open(IDP)
        assert stage.dials[-1] == ("10.0.0.1", 443)


async def test_a_dial_that_works_brings_it_back_at_once() -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.everything = DialReason.NO_AGENT
        await outside.open(IDP)
        stage.tunnel.everything = None
        await stage.open("10.0.0.7")
        assert stage.outbound.is_tunnel_healthy
        await stage.open(IDP)
        assert outside.accepted == 1


async def test_both_ways_failing_leaves_nothing_stuck() -> None:
    async with open_testbed() as (stage, outside):
        stage.tunnel.everything = DialReason.SERVER
        for _ in range(3):
            stage.machine[f"{IDP}."] = ["127.0.0.9"]
            await stage.failure(IDP, outside.port)
        stage.tunnel.everything = None
        stage.clock.turn(30)
        await until(lambda: stage.outbound.is_tunnel_healthy)
        await stage.open(IDP)


async def test_an_api_that_does_not_say_where_dns_is_asks_for_a_look_at_the_tunnel() -> None:
    """API server and tunnel server are in one pod: they fail together."""

    async with open_testbed(guest_dns=()) as (stage, outside):
        stage.api.is_down = True
        stage.tunnel.everything = DialReason.SERVER
        await outside.open(IDP)
        assert outside.accepted == 1


async def test_the_same_with_a_tunnel_that_works_is_a_name_that_cannot_be_resolved() -> None:
    async with open_testbed(guest_dns=()) as (stage, outside):
        stage.api.is_down = True
        failure = await stage.failure(IDP, outside.port)
        assert failure.reason is DialReason.NAME
        assert "UMB603" in failure.text
        assert PROBE_HOST in stage.tunnel.hosts
        assert outside.accepted == 0


async def test_where_this_machine_does_not_know_the_name_either_the_tunnel_is_told_as_the_cause() -> None:
    async with open_testbed() as (stage, outside):
        stage.machine.clear()
        stage.tunnel.everything = DialReason.NO_AGENT
        failure = await stage.failure(IDP, outside.port)
        assert failure.reason is DialReason.NO_AGENT
        assert "and without the tunnel: lookup idp.corp.example." in failure.text


async def test_past_the_tunnel_the_machines_own_proxy_is_used() -> None:
    async with ScriptedProxy() as proxy:
        environment = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}
        async with outbound_testbed.open_testbed(Resolution.HOSTED_THEN_MANAGEMENT, environment) as stage:
            stage.tunnel.everything = DialReason.SERVER
            await stage.open(IDP, hello=b"")
            assert proxy.requests[0].startswith(f"CONNECT {IDP}:443 ")
            assert await stage.outbound.resolve(IDP) == (), "the name is handed on"


@pytest.mark.parametrize("resolution", [Resolution.AGENT, Resolution.HOSTED, Resolution.SERVICE, Resolution.MANAGEMENT])
async def test_no_other_policy_ever_leaves_the_tunnel(resolution: Resolution) -> None:
    async with outbound_testbed.open_testbed(resolution) as stage:
        stage.tunnel.everything = DialReason.SERVER
        for _ in range(3):
            assert (await stage.failure(IDP)).reason is DialReason.SERVER
        await until(lambda: not stage.outbound.is_tunnel_healthy)
        assert (await stage.failure(IDP)).reason is DialReason.SERVER
        assert all(way == "tunnel" for way, _ in stage.counts.dials)
