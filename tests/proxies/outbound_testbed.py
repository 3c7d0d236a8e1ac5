"""An Outbound with scripted surroundings: tunnel, DNS and API of the hosted cluster, this machine's resolver."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from tests.proxies.name_testbed import Counts, ScriptedServices, ScriptedTunnel, TurnedClock, outbound_settings, pipe
from tests.support.dns_server import ScriptedDns

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.konnectivity.dial_failure import PROBE_HOST
from umbilical.proxies.hosted_dns import DnsPatience
from umbilical.proxies.outbound import Outbound, OutboundSystem
from umbilical.proxies.services import ServiceName
from umbilical.proxies.settings import Resolution

DNS_SERVER: Final = ("172.30.0.10", 53)


class OutboundTestbed:
    def __init__(self, resolution: Resolution, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.clock = TurnedClock()
        self.counts = Counts()
        self.dns = ScriptedDns(
            {
                ("idp.corp.example", "A"): ["60", "10.0.0.1"],
                ("several.corp.example", "A"): ["60", "10.0.0.5", "10.0.0.6"],
                ("several.corp.example", "AAAA"): ["60", "fd00::5"],
                ("six.corp.example", "AAAA"): ["60", "fd00::6"],
                ("idp", "A"): ["60", "10.0.0.9"],
                ("console.monitoring.svc.cluster.local", "A"): ["60", "172.30.9.1"],
            }
        )
        self.tunnel = ScriptedTunnel({DNS_SERVER[0]: self._open_dns, PROBE_HOST: DialReason.REFUSED})
        self.api = ScriptedServices({ServiceName("monitoring", "console"): ("172.30.9.9",)})
        self.machine: dict[str, list[str]] = {"idp.corp.example": ["192.0.2.1"]}
        """Names of this machine's resolver. Direct dials use absolute names, so this address is never dialled."""
        self.asked_machine: list[str] = []
        patience = DnsPatience(try_seconds=50.0, lookup_seconds=55.0, grace_seconds=50.0)
        around = OutboundSystem(self.clock.now, self.clock.sleep, self._ask_machine, patience)
        made = outbound_settings(resolution, **({"guest_dns": (DNS_SERVER[0],)} | settings))
        self.outbound = Outbound(made, self.tunnel, environment or {}, self.api, self.counts, around)

    @property
    def dials(self) -> list[tuple[str, int]]:
        """All dials through the tunnel except probes."""
        return [dial for dial in self.tunnel.dials if dial[0] != PROBE_HOST]

    async def open(self, host: str, port: int = 443, hello: bytes = b"hello") -> None:
        reader, writer = await self.outbound.open(host, port)
        assert await reader.readexactly(len(hello)) == hello
        writer.transport.abort()

    async def failure(self, host: str, port: int = 443) -> DialFailed:
        with pytest.raises(DialFailed) as caught:
            await self.outbound.open(host, port)
        return caught.value

    async def close(self) -> None:
        await self.dns.close()
        await self.tunnel.close()

    async def _open_dns(self) -> Streams:
        ours, theirs = await pipe()
        self.dns.serve(theirs)
        return ours

    async def _ask_machine(self, host: str) -> list[str]:
        self.asked_machine.append(host)
        if host not in self.machine:
            raise OSError(f"lookup {host}: Name or service not known")
        return self.machine[host]


@asynccontextmanager
async def open_testbed(
    resolution: Resolution, environment: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[OutboundTestbed]:
    stage = OutboundTestbed(resolution, environment, **settings)
    yield stage
    await stage.outbound.close()
    await stage.close()
