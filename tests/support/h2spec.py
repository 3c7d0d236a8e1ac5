"""Runs h2spec, which judges HTTP/2 servers, and reads its report.

h2spec has no Unix sockets and no certificates of clients, so a relay gives it a plain port for each door of a server.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.support.tcp_relay import Relay
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import make_tunnel_pki

import peers

# Its default. It waits so long where no answer is right or none comes; less is too short for a busy machine.
SILENCE_SECONDS: Final = 2
# Five such headers exceed the largest frame that the agents' port accepts, 64 KiB; one fits the smallest frame.
HEADER_BYTES: Final = 16_000
RUN_SECONDS: Final = 240.0
DOORS: Final = ("frontend", "agents")


@dataclass(frozen=True, order=True)
class Case:
    """One case: its section, as `http2/5.1.1`, and its description."""

    section: str
    description: str

    def __str__(self) -> str:
        return f"{self.section}: {self.description}"


@dataclass(frozen=True)
class Report:
    """What the judge says about one door."""

    total: int
    failed: dict[Case, str]
    skipped: frozenset[Case]


class _Run:
    """One run of h2spec in strict mode."""

    def __init__(self, port: int, junit: Path) -> None:
        judge = peers.binary("h2spec")
        assert judge is not None, "no program h2spec: run `make peers GROUP=h2spec`"
        self._junit = junit
        options = ["-S", "-p", str(port), "-o", str(SILENCE_SECONDS), "-j", str(junit)]
        options += ["--max-header-length", str(HEADER_BYTES)]
        environment = {**os.environ, "NO_COLOR": "1"}
        with junit.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen([str(judge), *options], stdout=log, stderr=log, env=environment)

    def report(self) -> Report:
        """Wait for the end."""
        self._process.wait(RUN_SECONDS)
        assert self._junit.exists(), self._junit.with_suffix(".log").read_text()[-2000:]
        return read_report(self._junit)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)


def judge(ports: dict[str, int], folder: Path) -> dict[str, Report]:
    """Run h2spec against every door at the same time."""
    runs: dict[str, _Run] = {}
    try:
        for door, port in ports.items():
            runs[door] = _Run(port, folder / f"{door}.xml")
        return {door: run.report() for door, run in runs.items()}
    finally:
        for run in runs.values():
            run.stop()


def read_report(junit: Path) -> Report:
    cases = list(ElementTree.parse(junit).iter("testcase"))
    failed, skipped = {}, set()
    for element in cases:
        case = Case(element.get("package", ""), element.get("classname", ""))
        if (complaint := _complaint(element)) is not None:
            failed[case] = complaint
        if element.find("skipped") is not None:
            skipped.add(case)
    return Report(len(cases), failed, frozenset(skipped))


def _complaint(element: ElementTree.Element) -> str | None:
    parts = [part for part in (element.find("failure"), element.find("error")) if part is not None]
    return " | ".join(" ".join("".join(part.itertext()).split()) for part in parts) if parts else None


@contextmanager
def doors(implementation: str, folder: Path) -> Iterator[dict[str, int]]:
    """A server, and a plain port on loopback for its gRPC frontend and for its agents' port."""
    pki = make_tunnel_pki(folder)
    pair = TunnelPair(Shape(server=implementation, mode="grpc"), pki, folder)
    tls = pki.authority.client_context(pki.agent, ["h2"])
    try:
        pair.start_server()
        with Relay(pair.socket_path) as frontend, Relay(pair.ports.agent, tls) as agents:
            yield {"frontend": frontend.port, "agents": agents.port}
            assert pair.server.is_running(), pair.logs()
    finally:
        pair.stop()
