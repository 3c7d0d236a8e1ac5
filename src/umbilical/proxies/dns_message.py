"""One question to a DNS server and what its answer says. dnspython knows the bytes, this module what to trust."""

from typing import TYPE_CHECKING, Final

from umbilical.record import Record

if TYPE_CHECKING:
    import dns.message

PAYLOAD_BYTES: Final = 1232
"""What EDNS says we take over UDP, where we never ask; the recommended size (DNS flag day 2020)."""
A: Final = "A"
AAAA: Final = "AAAA"


class NotAName(Exception):
    """No server has to be asked: a label is empty or too long, or the whole is."""


class BadAnswer(Exception):
    """The answer is none that can be used: another server, or another try, may give one."""


class Answer(Record):
    addresses: tuple[str, ...]
    """None: the name does not exist, or has no address of this kind."""
    seconds: float
    """For which it may be kept."""
    alias: str = ""
    """Whom to ask about instead: the server told the alias alone."""


class Query:
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

    def decode(self, wire: bytes) -> Answer:
        """Read the answer to what was encoded last. Raises BadAnswer."""
        from dns.exception import DNSException
        from dns.message import from_wire

        try:
            response = from_wire(wire)
            if not self._message.is_response(response):
                raise BadAnswer("it answers another question")
            return self._read(response)
        except (DNSException, ValueError) as error:
            raise BadAnswer(f"it cannot be read: {str(error) or type(error).__name__}") from None

    def _read(self, response: "dns.message.Message") -> Answer:
        from dns import flags, rcode, rdatatype
        from dns.message import QueryMessage

        if response.flags & flags.TC:
            raise BadAnswer("it is cut short, over TCP")
        if response.rcode() not in (rcode.NOERROR, rcode.NXDOMAIN) or not isinstance(response, QueryMessage):
            raise BadAnswer(f"it says {rcode.to_text(response.rcode())}")
        chain = response.resolve_chaining()
        if chain.answer is not None:
            return Answer(tuple(str(entry.address) for entry in chain.answer), chain.minimum_ttl)
        has_soa = any(entry.rdtype == rdatatype.SOA for entry in response.authority)
        if chain.cnames and response.rcode() == rcode.NOERROR and not has_soa:
            return Answer((), chain.minimum_ttl, chain.canonical_name.to_text(omit_final_dot=True).lower())
        # RFC 2308 section 5: without an SOA record nobody has said how long it may be kept.
        return Answer((), chain.minimum_ttl if has_soa else 0.0)
