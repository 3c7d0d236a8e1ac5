"""DNS queries and answers, and a TCP connection for many queries (RFC 7766).

dnspython encodes and decodes messages. `hosted_dns` chooses servers and caches answers.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from umbilical.dialer.streams import Streams
from umbilical.record import Record
from umbilical.tunnel.daemon import end_task, own_task

if TYPE_CHECKING:
    import dns.message

PAYLOAD_BYTES: Final = 1232
"""UDP size in EDNS, the recommended one (DNS flag day 2020); UDP is not used."""
A: Final = "A"
AAAA: Final = "AAAA"


class NotAName(Exception):
    """Not a DNS name: a label or the name is empty or too long."""


class DnsError(Exception):
    """The answer is invalid: another server, or a retry, may give a valid one."""


class DnsAnswer(Record):
    addresses: tuple[str, ...]
    """Empty: the name does not exist, or has no address of this type."""
    seconds: float
    """How long it may be cached."""
    alias: str = ""
    """The name to query instead: the answer has only the alias."""


class DnsQuery:
    def __init__(self, name: str, kind: str) -> None:
        """Raises NotAName."""
        from dns.exception import DNSException
        from dns.message import make_query

        self.name: Final = name
        self.kind: Final = kind
        try:
            self._message: Final[dns.message.QueryMessage] = make_query(f"{name}.", kind, payload=PAYLOAD_BYTES)
        except (DNSException, UnicodeError) as error:
            raise NotAName(str(error) or type(error).__name__) from None

    def encode(self, number: int) -> bytes:
        self._message.id = number
        return self._message.to_wire()

    def decode(self, wire: bytes) -> DnsAnswer:
        """Decode the answer to the last encoded query. Raises BadDnsAnswer."""
        from dns.exception import DNSException
        from dns.message import from_wire

        try:
            response = from_wire(wire)
            if not self._message.is_response(response):
                raise DnsError("the answer is for another query")
            return self._read(response)
        except (DNSException, ValueError) as error:
            raise DnsError(f"the answer is invalid: {str(error) or type(error).__name__}") from None

    def _read(self, response: "dns.message.Message") -> DnsAnswer:
        from dns import flags, rcode, rdatatype
        from dns.message import QueryMessage

        if response.flags & flags.TC:
            raise DnsError("the answer is truncated, over TCP")
        if response.rcode() not in (rcode.NOERROR, rcode.NXDOMAIN) or not isinstance(response, QueryMessage):
            raise DnsError(f"the answer is {rcode.to_text(response.rcode())}")
        chain = response.resolve_chaining()
        if chain.answer is not None:
            return DnsAnswer(tuple(str(entry.address) for entry in chain.answer), chain.minimum_ttl)
        has_soa = any(entry.rdtype == rdatatype.SOA for entry in response.authority)
        if chain.cnames and response.rcode() == rcode.NOERROR and not has_soa:
            return DnsAnswer((), chain.minimum_ttl, chain.canonical_name.to_text(omit_final_dot=True).lower())
        # RFC 2308 section 5: without an SOA record it must not be cached.
        return DnsAnswer((), chain.minimum_ttl if has_soa else 0.0)


MOST_QUERIES: Final = 4096
MOST_UNSENT_BYTES: Final = 256 * 1024
"""No more queries to a server that does not read."""


IDLE_SECONDS: Final = 10.0
"""Idle connections are closed: a draining server of the tunnel waits for its last tunnel."""


class ConnectionLost(Exception):
    """The connection ended; a retry on another one may succeed."""


class DnsConnection:
    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams
        self._waiting: Final[dict[int, asyncio.Future[bytes]]] = {}
        self._retired = False
        self._over = False
        self._idle: asyncio.TimerHandle | None = None
        self._rest()
        self._receiving: Final = own_task(self._receive())

    @property
    def is_usable(self) -> bool:
        # The transport knows of an error before the reading task runs.
        return not self._over and not self._retired and not self._writer.transport.is_closing()

    async def ask(self, encode: Callable[[int], bytes]) -> bytes:
        """Return the raw answer. The caller sets the timeout. Raises ConnectionLost."""
        if self._over or len(self._waiting) >= MOST_QUERIES:
            raise ConnectionLost("the connection is closed, or has too many queries")
        self._stop_idling()
        number = self._free_number()
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            self._send(encode(number))
            return await answered
        finally:
            del self._waiting[number]
            if not self._waiting:
                self._rest()

    def _rest(self) -> None:
        if self._retired:
            self._writer.transport.abort()
        elif not self._over:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.retire)

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def retire(self) -> None:
        """Send no more queries, after a timeout or when idle; pending ones may still be answered."""
        self._retired = True
        if not self._waiting:
            self._writer.transport.abort()

    async def close(self) -> None:
        self._stop_idling()
        self._writer.transport.abort()
        await end_task(self._receiving)

    def _free_number(self) -> int:
        while (number := int.from_bytes(os.urandom(2))) in self._waiting:
            pass  # at most one in sixteen is taken
        return number

    def _send(self, message: bytes) -> None:
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            raise ConnectionLost("the server does not read")
        self._writer.write(len(message).to_bytes(2) + message)

    async def _receive(self) -> None:
        why = "the server closed the connection"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(2))
                self._settle(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            pass
        except OSError as error:
            why = f"the connection broke: {error}"
        finally:
            self._over = True
            self._writer.transport.abort()
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(ConnectionLost(why))

    def _settle(self, message: bytes) -> None:
        """Deliver an answer to its query; a late or unknown one is dropped."""
        answered = self._waiting.get(int.from_bytes(message[:2]))
        if answered is not None and not answered.done():
            answered.set_result(message)
