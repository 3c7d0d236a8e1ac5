"""DNS servers for tests: one in this process that answers as it is told, and Debian's dnsmasq as a program."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from tests.support.tunnel_pair import Daemon, wait_until

from umbilical.dialer.streams import Streams

Zone = dict[tuple[str, str], list[str]]
Change = Callable[[bytes], bytes | None]
"""What becomes of an answer on its way; None: it is not sent."""


def zone_answer(query: dns.message.Message, zone: Zone) -> dns.message.Message:
    """Answer from a table of (name, kind): the TTL first, then records; aliases are followed, absence has an SOA.

    More kinds steer it: `rcode` makes the name fail, `alias-alone` leaves the rest to the next question, `minimum`
    is for how long its absence may be kept, and `no-soa` says nothing about that.
    """
    response = dns.message.make_response(query)
    (question,) = query.question
    name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
    failing = zone.get((name, "rcode"))
    if failing is not None:
        response.set_rcode(dns.rcode.from_text(failing[0]))
        return response
    for _ in range(20):
        alias = zone.get((name, "CNAME"))
        if alias is None:
            break
        response.answer.append(dns.rrset.from_text(f"{name}.", int(alias[0]), "IN", "CNAME", alias[1]))
        if (name, "alias-alone") in zone:
            return response
        name = alias[1].removesuffix(".").lower()
    records = zone.get((name, kind))
    if records:
        response.answer.append(dns.rrset.from_text(f"{name}.", int(records[0]), "IN", kind, *records[1:]))
    elif (name, "no-soa") not in zone:
        if not any(known == name for known, _ in zone):
            response.set_rcode(dns.rcode.NXDOMAIN)
        soa = "ns.test. root.test. 1 3600 600 86400 " + zone.get((name, "minimum"), ["20"])[0]
        response.authority.append(dns.rrset.from_text(".", 3600, "IN", "SOA", soa))
    return response


class ScriptedDns:
    """Serves one end of each connection that `connect` gives away. `asked` holds name and kind, in order."""

    def __init__(self, zone: Zone | None = None) -> None:
        self.zone: Final = zone or {}
        self.asked: list[tuple[str, str]] = []
        self.had_edns: list[bool] = []
        self.connections = 0
        self.change: Change = lambda wire: wire
        self.hold: asyncio.Event | None = None
        """While it is not set nothing is answered; questions are taken all the same."""
        self.closes_after = 0
        """Close each connection behind so many answers; 0: never."""
        self._serving: set[asyncio.Task[None]] = set()

    def serve(self, streams: Streams) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(*streams))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = 0
        try:
            async with asyncio.TaskGroup() as answers:
                while not self.closes_after or answered < self.closes_after:
                    size = int.from_bytes(await reader.readexactly(2))
                    wire = await reader.readexactly(size)
                    answered += 1
                    answers.create_task(self._answer(wire, writer))
        except (asyncio.IncompleteReadError, ConnectionError, BaseExceptionGroup):
            pass
        finally:
            writer.close()

    async def _answer(self, wire: bytes, writer: asyncio.StreamWriter) -> None:
        query = dns.message.from_wire(wire)
        (question,) = query.question
        self.asked.append((question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)))
        self.had_edns.append(query.edns == 0)
        if self.hold is not None:
            await self.hold.wait()
        answer = self.change(zone_answer(query, self.zone).to_wire())
        if answer is not None and not writer.transport.is_closing():
            writer.write(len(answer).to_bytes(2) + answer)
            await writer.drain()


def with_number(wire: bytes, number: int) -> bytes:
    return number.to_bytes(2) + wire[2:]


def cut_short(wire: bytes) -> bytes:
    message = dns.message.from_wire(wire)
    message.flags |= dns.flags.TC
    return message.to_wire()


def of_another_name(wire: bytes) -> bytes:
    message = dns.message.from_wire(wire)
    message.question[0].name = dns.name.from_text("other.test.")
    return message.to_wire()


class Dnsmasq:
    """Debian's dnsmasq on one address of a namespace. What it knows lies in a hosts file.

    It gives every TCP connection a child of its own, with the data of that moment, so signals go to all of them.
    """

    def __init__(self, folder: Path, address: str, prefix: Sequence[str] = (), *options: str) -> None:
        self._hosts = folder / f"hosts-{address}"
        self._records: list[tuple[str, str]] = []
        command = [
            *("setsid", shutil.which("dnsmasq") or "/usr/sbin/dnsmasq"),
            *("--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--log-facility=-", "--user=root"),
            *("--no-resolv", "--no-hosts", "--no-poll", "--no-round-robin", "--bind-interfaces"),
            *(f"--listen-address={address}", f"--addn-hosts={self._hosts}", "--local=/corp.example/local/"),
            *options,
        ]
        self.daemon = Daemon(command, folder / f"dnsmasq-{address}.log", prefix)

    def know(self, name: str, *addresses: str) -> None:
        """Replace what it says of a name; a server that runs is started anew."""
        self._records = [record for record in self._records if record[1] != name]
        self._records += [(address, name) for address in addresses]
        self._hosts.write_text("".join(f"{address} {known}\n" for address, known in self._records))
        if self.daemon.is_running():
            self.stop()
            self.start()

    def start(self) -> None:
        """Return when it listens; the address may be held for a moment by a child of the one before."""
        reads = self._reads()

        def listens() -> bool:
            if not self.daemon.is_running():
                self.daemon.start()
            return self._reads() > reads

        wait_until(listens, "dnsmasq has started")

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.daemon.pid, number)

    def stop(self) -> None:
        if self.daemon.is_running():
            self.signal(signal.SIGKILL)
        self.daemon.kill()

    def _reads(self) -> int:
        log = self.daemon.log
        return log.read_text().count(f"read {self._hosts}") if log.exists() else 0
