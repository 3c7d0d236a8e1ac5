"""Dials by this machine's own network, for hosts that bypass the tunnel: cloud APIs."""

import asyncio
import errno
import os
from collections.abc import Sequence
from typing import Final

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.konnectivity.networks import parse_address
from umbilical.proxies.happy_eyeballs import Race, interleaved, only_ipv4
from umbilical.proxies.lookup import ManagementDns
from umbilical.proxies.proxy_connect import BUFFER_BYTES, ProxyTls, connect_through
from umbilical.proxies.proxy_rules import ProxyRules

CLOUD_SUFFIXES: Final = (
    # HyperShift's own list.
    ".amazonaws.com",
    ".c2s.ic.gov",
    ".hci.ic.gov",
    ".sc2s.sgov.gov",
    ".microsoftonline.com",
    ".azure.com",
    ".cloud.ibm.com",
    # Missing there: other partitions of the same clouds, Azure's storage and vaults, and Google's APIs.
    ".amazonaws.com.cn",
    ".api.aws",
    ".azure.net",
    ".azure.us",
    ".azure.cn",
    ".chinacloudapi.cn",
    ".usgovcloudapi.net",
    ".microsoftonline.us",
    ".partner.microsoftonline.cn",
    ".windows.net",
    ".googleapis.com",
)
CONNECT_SECONDS: Final = 10.0


class DirectHosts:
    """Hosts that are dialled directly: those below a suffix, without the domain itself."""

    def __init__(self, suffixes: Sequence[str], never: Sequence[str]) -> None:
        self._suffixes: Final = tuple("." + _plain(suffix).lstrip(".") for suffix in suffixes)
        self._never: Final = frozenset(map(_plain, never))

    def __contains__(self, host: str) -> bool:
        name = _plain(host)
        return name not in self._never and name.endswith(self._suffixes) and name not in self._suffixes

    def is_never(self, host: str) -> bool:
        """Return whether the host must use the tunnel, even while the tunnel is broken."""
        return _plain(host) in self._never


def _plain(host: str) -> str:
    return host.strip().lower().removesuffix(".")


class _Plain:
    """Implements Opener without a proxy, for hosts of this machine's configuration."""

    def __init__(self, names: ManagementDns, prefer_ipv4: bool) -> None:
        self.names: Final = names
        self._prefer_ipv4: Final = prefer_ipv4

    async def open(self, host: str, port: int) -> Streams:
        return await self.open_one(await self.names.resolve(host), port)

    async def open_one(self, found: tuple[str, ...], port: int) -> Streams:
        addresses = (self._prefer_ipv4 and only_ipv4(found)) or found
        _, streams = await Race(lambda address: connect(address, port)).run(interleaved(addresses))
        return streams


class DirectDialer:
    """Implements Opener: through the environment's proxy if there is one for the host, else directly."""

    def __init__(self, rules: ProxyRules, names: ManagementDns, *, prefer_ipv4: bool = False) -> None:
        self._rules: Final = rules
        self._plain: Final = _Plain(names, prefer_ipv4)
        self._tls: Final = ProxyTls()

    async def open(self, host: str, port: int) -> Streams:
        proxy = self._rules.proxy_for("https", host.removesuffix("."), port)
        if proxy is None:
            found = await self._plain.names.resolve(host)
            return await self._plain.open_one(_without_link_local(host, found), port)
        return await connect_through(proxy, self._plain, host.removesuffix("."), port, self._tls)


def _without_link_local(host: str, addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse link-local addresses: a public name may point to the cloud's metadata service, 169.254.169.254."""
    allowed = tuple(address for address in addresses if not _is_link_local(address))
    if not allowed:
        text = f"its address {addresses[0]} is link-local or unspecified, which is not allowed for names"
        raise DialFailed(DialReason.FORBIDDEN, host, text)
    return allowed


def _is_link_local(address: str) -> bool:
    found = parse_address(address)
    return found is None or found.is_link_local or found.is_unspecified


async def connect(address: str, port: int) -> Streams:
    """Connect to one address. Raises DialFailed."""
    hop = join_host_port(address, port)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(address, port, limit=BUFFER_BYTES // 2)
    except TimeoutError:
        raise DialFailed(DialReason.TIMEOUT, hop, f"no connection within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        raise DialFailed(_reason(error), hop, os.strerror(error.errno) if error.errno else str(error)) from None
    writer.transport.set_write_buffer_limits(BUFFER_BYTES)
    return reader, writer


def _reason(error: OSError) -> DialReason:
    match error.errno:
        case errno.ECONNREFUSED:
            return DialReason.REFUSED
        case errno.ETIMEDOUT:
            return DialReason.TIMEOUT
        case errno.EACCES | errno.EPERM:
            return DialReason.FORBIDDEN
    return DialReason.UNREACHABLE
