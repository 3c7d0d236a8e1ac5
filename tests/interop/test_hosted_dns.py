"""Names by a real DNS server (Debian's dnsmasq) behind a real tunnel: server and agent in namespaces of their own."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.proxies.name_testbed import Counts, TurnedClock
from tests.support.dns_server import Dnsmasq
from tests.support.netns import Namespace, Network
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.dialer.dialer import Dialer
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.host.processes import run
from umbilical.proxies.hosted_dns import DnsPatience
from umbilical.proxies.lookup import LookupFailed, LookupResult
from umbilical.proxies.outbound import Outbound, OutboundSystem
from umbilical.proxies.settings import OutboundSettings, Resolution

pytestmark = pytest.mark.real("dnsmasq")

SERVER: Final = "10.77.0.1"
AGENT: Final = "10.77.0.2"
FIRST: Final = "10.50.0.53"
SECOND: Final = "10.50.0.54"
ALIVE: Final = "10.50.0.1"
SILENT: Final = "203.0.113.9"
"""Behind the hosted cluster's default route, which swallows everything."""
PORT: Final = 8080
PATIENT: Final = DnsPatience(try_seconds=40.0, lookup_seconds=50.0, grace_seconds=40.0)
GREETER: Final = """
import socketserver
class Greet(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello from " + self.request.getsockname()[0].encode() + b"\\n")
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("0.0.0.0", 8080), Greet).serve_forever()
"""
ASK_OVER_UDP: Final = """
import sys, dns.flags, dns.message, dns.query
query = dns.message.make_query(sys.argv[2], "A", use_edns=0, payload=512)
answer = dns.query.udp(query, sys.argv[1], timeout=30)
print(bool(answer.flags & dns.flags.TC))
"""


class HostedCluster:
    """The data plane: two DNS servers, an endpoint, and the agent by which both are reached."""

    def __init__(self, folder: Path, network: Network, stack: ExitStack) -> None:
        management, self.namespace = network.create("management"), network.create("guest")
        network.link(management, f"{SERVER}/24", self.namespace, f"{AGENT}/24")
        network.swallow(self.namespace)
        for address in (FIRST, SECOND, ALIVE):
            run(["ip", "-netns", self.namespace.name, "address", "add", f"{address}/32", "dev", "lo"], 30)
        options = ("--local-ttl=2", "--neg-ttl=2", "--cname=alias.corp.example,idp.corp.example")
        self.first = Dnsmasq(folder, FIRST, self.namespace.command(), *options)
        self.second = Dnsmasq(folder, SECOND, self.namespace.command(), *options)
        greeter = Daemon([sys.executable, "-c", GREETER], folder / "greeter.log", self.namespace.command())
        self.pair = _pair(folder, management, self.namespace)
        for stop in (self.first.stop, self.second.stop, greeter.kill, self.pair.agent.kill, self.pair.server.kill):
            stack.callback(stop)
        stack.callback(lambda: print(self.pair.logs()))
        self.know("idp.corp.example", ALIVE)
        self.first.start()
        self.second.start()
        greeter.start()
        self.pair.server.start()
        self.pair.agent.start()

    def know(self, name: str, *addresses: str) -> None:
        self.first.know(name, *addresses)
        self.second.know(name, *addresses)

    def is_truncated_over_udp(self, name: str) -> bool:
        asked = run(self.namespace.command(sys.executable, "-c", ASK_OVER_UDP, FIRST, name), 60)
        return asked.strip() == "True"


def _pair(folder: Path, management: Namespace, hosted: Namespace) -> TunnelPair:
    pki = make_tunnel_pki(folder, (SERVER, "127.0.0.1"))
    pair = TunnelPair(Shape(), pki, folder, [f"--agent-bind-address={SERVER}"], [f"--proxy-server-host={SERVER}"])
    pair.server.command = management.command(*pair.server.command)
    pair.agent.command = hosted.command(*pair.agent.command)
    return pair


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedCluster]:
    with Network("dns") as network, ExitStack() as stack:
        yield HostedCluster(tmp_path_factory.mktemp("guest"), network, stack)


@contextmanager
def stopped(server: Dnsmasq) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


class DnsTestbed:
    def __init__(self, hosted: HostedCluster, patience: DnsPatience, resolution: Resolution, **settings: Any) -> None:
        self.hosted = hosted
        self.clock = TurnedClock()
        self.counts = Counts()
        self.machine: dict[str, list[str]] = {}
        dialer = DialerSettings((UnixServer(hosted.pair.socket_path),))
        self.dialer = Dialer(dialer)
        made = OutboundSettings(dialer, resolution, **({"guest_dns": (FIRST, SECOND)} | settings))
        around = OutboundSystem(self.clock.now, asyncio.sleep, self._ask_machine, patience)
        self.outbound = Outbound(made, self.dialer, {}, None, self.counts, around)

    async def _ask_machine(self, host: str) -> list[str]:
        return self.machine[host]

    async def ready(self) -> None:
        """An agent answers: port 1 of its machine is refused."""
        while True:
            try:
                await self.dialer.open("127.0.0.1", 1)
            except DialFailed as failure:
                if failure.reason is DialReason.REFUSED:
                    return
            await asyncio.sleep(0.05)

    async def recovered(self) -> None:
        while not self.outbound.is_tunnel_healthy:
            await asyncio.sleep(0.05)

    async def greeting(self, host: str) -> str:
        reader, writer = await self.outbound.open(host, PORT)
        line = await reader.readline()
        writer.close()
        return line.decode().strip()

    async def failure(self, host: str) -> DialFailed:
        with pytest.raises(DialFailed) as caught:
            await self.outbound.open(host, PORT)
        return caught.value


@asynccontextmanager
async def open_testbed(
    hosted: HostedCluster, patience: DnsPatience = PATIENT, resolution: Resolution = Resolution.HOSTED, **settings: Any
) -> AsyncIterator[DnsTestbed]:
    stage = DnsTestbed(hosted, patience, resolution, **settings)
    await stage.ready()
    try:
        yield stage
    finally:
        await stage.outbound.close()
        await stage.dialer.close()


async def test_a_name_of_the_hosted_cluster_is_reached_by_its_own_dns(hosted: HostedCluster) -> None:
    async with open_testbed(hosted) as stage:
        assert await stage.greeting("idp.corp.example") == f"hello from {ALIVE}"
        assert await stage.greeting("alias.corp.example") == f"hello from {ALIVE}"
        assert stage.counts.lookups == [("guest", "ok"), ("guest", "ok")]


async def test_a_name_that_does_not_exist_is_told_as_that(hosted: HostedCluster) -> None:
    async with open_testbed(hosted) as stage:
        failure = await stage.failure("nowhere.corp.example")
        assert isinstance(failure, LookupFailed)
        assert failure.result is LookupResult.ABSENT
        assert stage.outbound.is_tunnel_healthy


async def test_an_answer_that_udp_cuts_short_is_whole_over_tcp(hosted: HostedCluster) -> None:
    many = [f"10.60.{number}.1" for number in range(100)]
    hosted.know("many.corp.example", *many)
    assert hosted.is_truncated_over_udp("many.corp.example")

    async with open_testbed(hosted) as stage:
        assert sorted(await stage.outbound.resolve("many.corp.example")) == sorted(many)


async def test_of_several_answers_the_first_may_be_dead(hosted: HostedCluster) -> None:
    hosted.know("one.corp.example", SILENT, ALIVE)
    hosted.know("two.corp.example", ALIVE, SILENT)

    async with open_testbed(hosted) as stage:
        first = []
        for name in ("one.corp.example", "two.corp.example"):
            addresses = await stage.outbound.resolve(name)
            assert set(addresses) == {SILENT, ALIVE}
            first.append(addresses[0])
            assert await stage.greeting(name) == f"hello from {ALIVE}"
        assert SILENT in first


async def test_an_answer_lives_as_long_as_the_server_says(hosted: HostedCluster) -> None:
    hosted.know("moving.corp.example", "10.60.0.1")

    async with open_testbed(hosted) as stage:
        assert await stage.outbound.resolve("moving.corp.example") == ("10.60.0.1",)
        await asyncio.to_thread(hosted.know, "moving.corp.example", "10.60.0.2")
        stage.clock.turn(1.9)
        assert await stage.outbound.resolve("moving.corp.example") == ("10.60.0.1",)
        stage.clock.turn(0.1)
        assert await stage.outbound.resolve("moving.corp.example") == ("10.60.0.2",)


async def test_a_slow_server_is_waited_for(hosted: HostedCluster) -> None:
    try:
        async with open_testbed(hosted, guest_dns=(FIRST,)) as stage:
            await stage.outbound.resolve("idp.corp.example")  # the connection is there
            hosted.first.signal(signal.SIGSTOP)
            async with asyncio.TaskGroup() as group:
                lookup = group.create_task(stage.outbound.resolve("alias.corp.example"))
                await asyncio.sleep(0.3)
                assert not lookup.done()
                hosted.first.signal(signal.SIGCONT)
            assert lookup.result() == (ALIVE,)
    finally:
        hosted.first.signal(signal.SIGCONT)


async def test_a_server_that_hangs_costs_one_try_and_another_answers(hosted: HostedCluster) -> None:
    try:
        async with open_testbed(hosted, DnsPatience(try_seconds=2.0, lookup_seconds=50.0, grace_seconds=40.0)) as stage:
            await stage.outbound.resolve("idp.corp.example")
            hosted.first.signal(signal.SIGSTOP)
            assert await stage.outbound.resolve("alias.corp.example") == (ALIVE,)
            hosted.first.signal(signal.SIGCONT)
    finally:
        hosted.first.signal(signal.SIGCONT)


async def test_a_dead_server_is_passed_over_and_found_again(hosted: HostedCluster) -> None:
    async with open_testbed(hosted) as stage:
        await stage.outbound.resolve("idp.corp.example")
        with stopped(hosted.first):
            assert await stage.outbound.resolve("alias.corp.example") == (ALIVE,)
            with stopped(hosted.second):
                failure = await stage.failure("nowhere.corp.example")
                assert isinstance(failure, LookupFailed)
                assert failure.result is LookupResult.FAILED
                assert failure.hop.startswith("DNS server 10.50.0.5")
                assert stage.outbound.is_tunnel_healthy
        stage.clock.turn(10)
        assert await stage.outbound.resolve("alias.corp.example") == (ALIVE,)


async def test_without_an_agent_the_tunnel_is_the_cause_and_with_one_all_is_well_again(hosted: HostedCluster) -> None:
    async with open_testbed(hosted) as stage:
        await stage.outbound.resolve("idp.corp.example")
        hosted.pair.agent.kill()
        failure = await stage.failure("other.corp.example")
        assert failure.reason in (DialReason.NO_AGENT, DialReason.AGENT_LOST)
        hosted.pair.agent.start()
        await stage.ready()
        assert await stage.greeting("idp.corp.example") == f"hello from {ALIVE}"


async def test_while_there_is_no_agent_names_of_the_world_leave_the_tunnel_and_then_come_back(
    hosted: HostedCluster,
) -> None:
    async def outside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello from outside\n")
        writer.close()

    try:
        async with open_testbed(hosted, resolution=Resolution.HOSTED_THEN_MANAGEMENT) as stage:
            stage.machine["idp.corp.example."] = ["127.0.0.1"]
            async with await asyncio.start_server(outside, "127.0.0.1", PORT):
                assert await stage.greeting("idp.corp.example") == f"hello from {ALIVE}"
                hosted.pair.agent.kill()
                assert await stage.greeting("idp.corp.example") == "hello from outside"
                assert (await stage.failure(ALIVE)).reason is DialReason.NO_AGENT
                assert not stage.outbound.is_tunnel_healthy
                hosted.pair.agent.start()
                await stage.recovered()
                assert await stage.greeting("idp.corp.example") == f"hello from {ALIVE}"
            assert stage.counts.dials[0] == ("tunnel", "ok")
            assert ("direct", "ok") in stage.counts.dials
    finally:
        if not hosted.pair.agent.is_running():
            hosted.pair.agent.start()
