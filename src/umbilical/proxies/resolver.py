"""Who is asked for a name's addresses, and in which order: one policy, made of the resolvers beside it."""

from typing import Final

from umbilical.proxies.guest_dns import GuestDns
from umbilical.proxies.management_dns import ManagementDns
from umbilical.proxies.service_lookup import ServiceLookup
from umbilical.proxies.settings import Resolution
from umbilical.tunnel.outbound import is_literal

ASKS_GUEST_DNS: Final = frozenset({Resolution.GUEST, Resolution.SERVICE, Resolution.GUEST_THEN_MANAGEMENT})
ASKS_FOR_SERVICES: Final = frozenset({Resolution.SERVICE, Resolution.MANAGEMENT, Resolution.GUEST_THEN_MANAGEMENT})
"""Management DNS knows no Service of the hosted cluster, so its API comes first there too, if there is one."""


class Names:
    """Addresses to be dialled through the tunnel."""

    def __init__(
        self,
        guest: GuestDns | None,
        services: ServiceLookup | None,
        management: ManagementDns | None,
    ) -> None:
        """Without guest DNS management DNS is asked; without either, the name goes to the agent."""
        self._guest: Final = guest
        self._services: Final = services
        self._management: Final = management

    async def resolve(self, host: str) -> tuple[str, ...]:
        """All addresses, or the name itself where the agent is to resolve it. Raises DialFailed."""
        if is_literal(host):
            return (host,)
        found = await self.service_addresses(host)
        if found:
            return found
        if self._guest is not None:
            return await self._guest.resolve(host)
        if self._management is not None:
            return await self._management.resolve(host)
        return (host,)

    async def service_addresses(self, host: str) -> tuple[str, ...]:
        """None where it is no Service, or nobody can say."""
        return () if self._services is None else await self._services.find(host)

    def forget(self, host: str) -> None:
        if self._guest is not None:
            self._guest.forget(host)

    async def close(self) -> None:
        if self._guest is not None:
            await self._guest.close()
        if self._services is not None:
            await self._services.close()
