"""A second look at a server whose certificate was refused: OpenSSL keeps nothing of it, and people need its dates.

Looked at without believing: one more handshake, in which dates and names do not count, and nothing is sent in it.
"""

import asyncio
import ssl
import time
from typing import Final

from umbilical.fault import StartupError
from umbilical.tunnel import outbound, validity
from umbilical.tunnel.settings import AgentSettings, ServerAddress
from umbilical.tunnel.tls import agent_context

LOOK_SECONDS: Final = 5.0
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which `ssl` has no name."""


async def explain(settings: AgentSettings, server: ServerAddress, address: outbound.Address | None, code: str) -> str:
    """Words to put behind the reason of a failed connect; empty where there is nothing to add."""
    if code in ("UMB331", "UMB332"):
        return _own(settings)
    if code not in ("UMB321", "UMB322", "UMB323"):
        return ""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return _words(await _look(settings, server, address), code)
    except (OSError, ValueError, TimeoutError, StartupError):
        return ""  # it is an extra; the reason stands without it


def _own(settings: AgentSettings) -> str:
    if settings.tls.certificate is None:
        return ""
    ours = validity.of_file(settings.tls.certificate)
    return "" if ours is None else f"; ours is valid {ours.span}, and it is {_now()} here"


def _words(certificate: dict[str, object], code: str) -> str:
    if code == "UMB323":
        names = certificate.get("subjectAltName", ())
        assert isinstance(names, tuple)
        return f"; it is for {', '.join(value for _, value in names) or 'no address at all'}"
    if code == "UMB321":
        return f"; it was valid until {_moment(certificate, 'notAfter')}, and it is {_now()} here"
    start = _moment(certificate, "notBefore")
    return f"; it is valid only from {start}, and it is {_now()} here: the clocks of the two machines differ"


def _moment(certificate: dict[str, object], member: str) -> str:
    return validity.shown(validity.moment_of(ssl.cert_time_to_seconds(str(certificate[member]))))


def _now() -> str:
    return validity.shown(validity.moment_of(time.time()))


async def _look(settings: AgentSettings, server: ServerAddress, address: outbound.Address | None) -> dict[str, object]:
    context = agent_context(settings.tls, settings.alpn_protocols)
    context.check_hostname = False
    context.verify_flags |= _NO_CHECK_TIME
    sock = await outbound.connect(server.host, server.port, address)
    try:
        _, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=server.host)
        certificate = dict(writer.get_extra_info("peercert") or {})
        writer.transport.abort()
    finally:
        await asyncio.sleep(0)  # asyncio closes what it was given in its next turn
        sock.close()
    return certificate
