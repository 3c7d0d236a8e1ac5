"""nftables tables, chains and rules through netlink, as far as every lab needs them, without the program `nft`.

Each table has the family `inet` and the name `umbilical_NAME`. It is loaded and removed as a whole; other tables
(of a kubelet or kube-proxy) are not touched. Numbers and layouts are from linux/netfilter/nf_tables.h.
"""

import os
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from umbilical.fault import LabError
from umbilical.lab.netlink import MODULES_REMEDY
from umbilical.lab.topology import IpAddress, IpNetwork

PREFIX: Final = "umbilical_"
NAME: Final = re.compile(r"[a-z0-9_]{1,40}")
ANSWER_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 1 << 16

_NETFILTER: Final = 12
_SUBSYSTEM: Final = 10
_INET: Final = 1
_REQUEST, _ACK, _DUMP, _CREATE, _APPEND = 0x1, 0x4, 0x300, 0x400, 0x800
_ERROR: Final = 2
_DONE: Final = 3
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF
_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_IP_VERSIONS: Final = {4: 2, 6: 10}
"""NFPROTO_IPV4 and NFPROTO_IPV6."""
_REGISTER: Final = 1
_VERDICT_REGISTER: Final = 0
_ACCEPT: Final = 1
_TCP: Final = 6
_ETHERNET: Final = 1
_LOCAL: Final = 2


class _Message(IntEnum):
    BATCH_BEGIN = 0x10
    BATCH_END = 0x11
    NEW_TABLE = _SUBSYSTEM << 8
    GET_TABLE = _SUBSYSTEM << 8 | 1
    DELETE_TABLE = _SUBSYSTEM << 8 | 2
    NEW_CHAIN = _SUBSYSTEM << 8 | 3
    NEW_RULE = _SUBSYSTEM << 8 | 6
    GET_RULE = _SUBSYSTEM << 8 | 7


class Hook(IntEnum):
    PREROUTING = 0
    INPUT = 1
    OUTPUT = 3
    POSTROUTING = 4


class _Meta(IntEnum):
    OUTPUT_NAME = 7
    INPUT_TYPE = 8
    NF_PROTOCOL = 15
    L4_PROTOCOL = 16


class _Base(IntEnum):
    LINK = 0
    NETWORK = 1
    TRANSPORT = 2


Rule = tuple[bytes, ...]
"""The encoded expressions of one rule, in order."""


@dataclass(frozen=True)
class Chain:
    name: str
    kind: str
    """`filter` or `nat`."""
    hook: Hook
    priority: int
    rules: tuple[Rule, ...]


def table_name(name: str) -> str:
    """Return the kernel's name of one of our tables. Raises LabError: the name has other characters."""
    if not NAME.fullmatch(name):
        why = f"{name!r} is not made of lower-case letters, digits and underscores"
        raise LabError("UMB818", "the packet filter's rules were not changed", why, "choose another name for the rules")
    return f"{PREFIX}{name}"


def load(name: str, chains: Sequence[Chain]) -> None:
    """Load or replace a table in the thread's namespace. Raises LabError: the kernel refused; nothing changed."""
    table = _text(1, table_name(name))
    # Add before delete: deleting a missing table is an error.
    messages = [(_Message.NEW_TABLE, _CREATE, table), (_Message.DELETE_TABLE, 0, table)]
    messages.append((_Message.NEW_TABLE, _CREATE, table))
    for chain in chains:
        messages.append((_Message.NEW_CHAIN, _CREATE, table + _chain(chain)))
        for rule in chain.rules:
            content = table + _text(2, chain.name) + _nested(4, b"".join(_nested(1, each) for each in rule))
            messages.append((_Message.NEW_RULE, _CREATE | _APPEND, content))
    _commit(messages, f"load the rules {name}")


def unload(name: str) -> None:
    """Remove a table; a missing one is fine."""
    table = _text(1, table_name(name))
    messages = [(_Message.NEW_TABLE, _CREATE, table), (_Message.DELETE_TABLE, 0, table)]
    _commit(messages, f"remove the rules {name}")


def loaded() -> list[str]:
    """Return the names of our tables in the namespace of the calling thread."""
    tables = [_attributes(content) for content in _dump(_Message.GET_TABLE, b"", "list the rules")]
    names = [table[1].rstrip(b"\0").decode() for table in tables]
    return sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))


def counted_bytes(name: str) -> int:
    """Return the sum of the byte counters of one of our tables."""
    table = _text(1, table_name(name))
    rules = _dump(_Message.GET_RULE, table, f"read the counters {name}")
    return sum(_counted(_attributes(content)) for content in rules)


def masquerade(own: Sequence[IpNetwork], pods: Sequence[IpNetwork], interface: str) -> list[Chain]:
    """Masquerade traffic from a node's pods to anything but pods: others have no route back to pods."""
    rules = [
        (
            *((_meta(_Meta.OUTPUT_NAME), _compare(interface.encode().ljust(16, b"\x00")))),
            *_source(network),
            *_destination(whole, equal=False),
            _expression("masq"),
        )
        for network in own
        for whole in pods
        if whole.version == network.version
    ]
    return [Chain("pods", "nat", Hook.POSTROUTING, 100, tuple(rules))]


def refuse_transit(hardware_address: str) -> list[Chain]:
    """Answer "network is unreachable" to packets that are sent to us for routing.

    The kernel of a router without a route rate-limits this answer to five in a row, so that later dials would hang for
    a second. (Some dials over IPv6 from blocking sockets still do: the answer comes before the kernel has unlocked the
    socket, and counts only when the SYN is sent again.) The rule matches our hardware address, because on some
    machines the filter also sees frames that the bridge only forwards.
    """
    return [Chain("transit", "filter", Hook.PREROUTING, 0, (_refusal(hardware_address),))]


def edge(
    data_address: str, management_address: str, outside: Sequence[IpNetwork], openings: Sequence[tuple[IpAddress, int]]
) -> list[Chain]:
    """Connect two networks one way: one may dial a few ports of the other, and is masqueraded there.

    The addresses are our hardware addresses on both sides; `outside` is the side that dials. Everything else is
    rejected as in `refuse_transit`.
    """
    accepted = tuple(
        (*_is_for_hardware(data_address), *_is_address(address), *_is_port(port, offset=2), _accept())
        for address, port in openings
    )
    refused = tuple(map(_refusal, (data_address, management_address)))
    # At this hook, answers have their original addresses again.
    transit = ((*_is_reply(), _accept()), *accepted, *refused)
    # By address, because on some machines this hook also sees frames that a bridge only forwards.
    hidden = tuple(
        (*_source(network), *_is_address(address), *_is_port(port, offset=2), _expression("masq"))
        for network in outside
        for address, port in openings
        if address.version == network.version
    )
    return [
        Chain("transit", "filter", Hook.PREROUTING, 0, transit),
        Chain("hidden", "nat", Hook.POSTROUTING, 100, hidden),
    ]


def count_port(port: int) -> list[Chain]:
    """Count the bytes to and from a TCP port of this node."""
    coming: Rule = (*_is_port(port, offset=2), _expression("counter"))
    going: Rule = (*_is_port(port, offset=0), _expression("counter"))
    return [Chain("input", "filter", Hook.INPUT, 0, (coming,)), Chain("output", "filter", Hook.OUTPUT, 0, (going,))]


def _refusal(hardware_address: str) -> Rule:
    is_elsewhere = (
        # Type of the destination address according to this namespace's routes.
        _expression("fib", _number(1, _REGISTER) + _number(2, 3) + _number(3, 2)),
        _compare(struct.pack("=I", _LOCAL), equal=False),
    )
    # ICMPX "no route": net-unreachable over IPv4, no-route over IPv6.
    reject = _expression("reject", _number(1, 2) + _attribute(2, b"\0"))
    return (*_is_for_hardware(hardware_address), *is_elsewhere, reject)


def _is_for_hardware(address: str) -> Rule:
    own = bytes.fromhex(address.replace(":", ""))
    is_ethernet = (_meta(_Meta.INPUT_TYPE), _compare(struct.pack("=H", _ETHERNET)))
    return (*is_ethernet, _payload(_Base.LINK, 0, len(own)), _compare(own))


def _is_port(port: int, *, offset: int) -> Rule:
    is_tcp = (_meta(_Meta.L4_PROTOCOL), _compare(bytes([_TCP])))
    return (*is_tcp, _payload(_Base.TRANSPORT, offset, 2), _compare(struct.pack("!H", port)))


def _is_address(address: IpAddress) -> Rule:
    offset = 16 if address.version == 4 else 24
    return (
        *_is_version(address.version),
        _payload(_Base.NETWORK, offset, len(address.packed)),
        _compare(address.packed),
    )


def _source(network: IpNetwork) -> Rule:
    return _within(network, 12 if network.version == 4 else 8, equal=True)


def _destination(network: IpNetwork, *, equal: bool) -> Rule:
    return _within(network, 16 if network.version == 4 else 24, equal=equal)


def _within(network: IpNetwork, offset: int, *, equal: bool) -> Rule:
    mask, wanted = network.netmask.packed, network.network_address.packed
    size = len(mask)
    masked = _number(1, _REGISTER) + _number(2, _REGISTER) + _number(3, size) + _value(4, mask) + _value(5, bytes(size))
    return (
        *_is_version(network.version),
        _payload(_Base.NETWORK, offset, size),
        _expression("bitwise", masked),
        _compare(wanted, equal=equal),
    )


def _is_version(version: int) -> Rule:
    return _meta(_Meta.NF_PROTOCOL), _compare(bytes([_IP_VERSIONS[version]]))


def _is_reply() -> Rule:
    return _expression("ct", _number(1, _REGISTER) + _number(2, 1)), _compare(b"\1")


def _accept() -> bytes:
    verdict = _nested(2, _number(1, _ACCEPT))
    return _expression("immediate", _number(1, _VERDICT_REGISTER) + _nested(2, verdict))


def _meta(key: _Meta) -> bytes:
    return _expression("meta", _number(1, _REGISTER) + _number(2, key))


def _payload(base: _Base, offset: int, size: int) -> bytes:
    return _expression("payload", _number(1, _REGISTER) + _number(2, base) + _number(3, offset) + _number(4, size))


def _compare(value: bytes, *, equal: bool = True) -> bytes:
    return _expression("cmp", _number(1, _REGISTER) + _number(2, 0 if equal else 1) + _value(3, value))


def _value(kind: int, value: bytes) -> bytes:
    return _nested(kind, _attribute(1, value))


def _expression(name: str, content: bytes = b"") -> bytes:
    return _text(1, name) + _nested(2, content)


def _chain(chain: Chain) -> bytes:
    hook = _number(1, chain.hook) + _attribute(2, struct.pack("!i", chain.priority))
    return _text(3, chain.name) + _nested(4, hook) + _number(5, _ACCEPT) + _text(7, chain.kind)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("!I", value))


def _nested(kind: int, content: bytes) -> bytes:
    return _attribute(kind | _NESTED, content)


def _attribute(kind: int, content: bytes) -> bytes:
    padding = bytes(-len(content) % 4)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind) + content + padding


def _attributes(content: bytes) -> dict[int, bytes]:
    return dict(_split(content))


def _split(content: bytes) -> Iterator[tuple[int, bytes]]:
    while len(content) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(content)
        yield kind & _TYPE_MASK, content[_ATTRIBUTE.size : size]
        content = content[size + -size % 4 :]


def _counted(rule: dict[int, bytes]) -> int:
    found = 0
    for _, expression in _split(rule.get(4, b"")):
        parts = _attributes(expression)
        if parts[1] == b"counter\0":
            found += int.from_bytes(_attributes(parts[2])[1], "big")
    return found


def _commit(messages: Sequence[tuple[_Message, int, bytes]], what: str) -> None:
    """Send all messages as one transaction and wait for each acknowledgement."""
    batch = [_packed(_Message.BATCH_BEGIN, 0, 0, b"", _SUBSYSTEM)]
    batch += [_packed(kind, flags | _ACK, number, content) for number, (kind, flags, content) in enumerate(messages, 1)]
    batch.append(_packed(_Message.BATCH_END, 0, len(messages) + 1, b"", _SUBSYSTEM))
    answers = _conversation(b"".join(batch), what)
    # An error would have raised, so each answer is an acknowledgement.
    for _ in messages:
        next(answers)


def _dump(kind: _Message, content: bytes, what: str) -> list[bytes]:
    return [body[4:] for number, body in _conversation(_packed(kind, _DUMP, 1, content), what) if number != _ERROR]


def _packed(kind: int, flags: int, number: int, content: bytes, resource: int = 0) -> bytes:
    family = 0 if resource else _INET
    body = struct.pack("!BBH", family, 0, resource) + content
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST, number, 0) + body


def _conversation(request: bytes, what: str) -> Iterator[tuple[int, bytes]]:
    """Send a request and yield type and body of each answer, until the kernel ends or refuses."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER) as kernel:
            kernel.settimeout(ANSWER_SECONDS)
            kernel.bind((0, 0))
            kernel.send(request)
            while True:
                answer = kernel.recv(_ANSWER_BYTES)
                while answer:
                    size, kind, *_ = _HEADER.unpack_from(answer)
                    body, answer = answer[_HEADER.size : size], answer[size + -size % 4 :]
                    if kind == _DONE:
                        return
                    _check(kind, body)
                    yield kind, body
    except OSError as error:
        raise LabError("UMB818", f"failed to {what}", error.strerror or str(error), MODULES_REMEDY) from error


def _check(kind: int, body: bytes) -> None:
    if kind == _ERROR:
        number = -int(struct.unpack_from("=i", body)[0])
        if number:
            raise OSError(number, os.strerror(number))
