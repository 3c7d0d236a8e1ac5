"""The demo on loopback, with real processes: steps, evidence, listeners, and that nothing is left."""

import contextlib
import ipaddress
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from umbilical.fault import LabError
from umbilical.lab import listeners, loopback
from umbilical.lab.transcript import CallResult, NoView, Picture, StepOutcome, Transcript, TranscriptStep


@pytest.fixture
def folder() -> Iterator[Path]:
    # A short path, as the demo has: that of a Unix socket is bounded.
    with tempfile.TemporaryDirectory(prefix="umbilical-") as path:
        yield Path(path)


class Watcher(NoView):
    """Records the listeners of the demo's processes at the end of every step."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()

    def ended(self, step: TranscriptStep) -> None:
        self.hosts |= _listening(_children())


def test_the_scenario_is_told_through_the_tunnel_and_nothing_of_it_stays(folder: Path) -> None:
    before, watcher = set(_children()), Watcher()
    transcript = Transcript("a test", watcher)
    loopback.run(transcript, folder)
    assert {step.outcome for step in transcript.steps} == {StepOutcome.DONE}
    calls = [picture.call for _, picture in transcript.pictures if picture.call is not CallResult.NONE]
    assert list(dict.fromkeys(calls)) == [CallResult.UNREACHABLE, CallResult.ALLOWED, CallResult.DENIED]
    assert calls[-1] is CallResult.UNREACHABLE
    assert all(picture.on_loopback for _, picture in transcript.pictures)
    assert (transcript.figures["calls"], transcript.figures["dials that agents answered"]) == ("50", "50")
    evidence = {step.title: "\n".join(step.evidence) for step in transcript.steps}
    assert "no such file or directory" in evidence["without the tunnel calls fail as before"]
    assert "the webhook in the cluster says no: worker-0" in evidence["through the tunnel the webhook denies a request"]
    assert watcher.hosts
    assert all(ipaddress.ip_address(host).is_loopback for host in watcher.hosts)
    assert set(_children()) == before
    assert not [path for path in folder.iterdir() if path.is_dir() and path.name.startswith("konnectivity")]


def test_a_program_that_ends_is_told_with_its_last_words_and_the_others_end_with_the_scenario(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(_children())
    code = "import sys; sys.exit('a broken program {module} {name}')"

    class Breaker(NoView):
        def shows(self, picture: Picture) -> None:
            if picture.webhook:
                monkeypatch.setattr(loopback, "_RUN", code)

    transcript = Transcript("a test", Breaker())
    with pytest.raises(LabError, match="a broken program"):
        loopback.run(transcript, folder)
    assert transcript.steps[-1].outcome is StepOutcome.FAILED
    assert set(_children()) == before


def test_addresses_are_all_of_loopback_and_distinct() -> None:
    addresses = loopback.Addresses(200)
    own = [addresses.bootstrap, addresses.webhook, *(addresses.agent(node) for node in loopback.NODES)]
    assert len(set(own)) == len(own)
    assert all(ipaddress.ip_address(each).is_loopback for each in own)


def _children() -> list[int]:
    me, found = os.getpid(), []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if entry.isdecimal() and int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1]) == me:
                found.append(int(entry))
    return found


def _listening(pids: list[int]) -> set[str]:
    """Return the addresses on which any of the processes listens, by the numbers of their sockets."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    rows = [line for table in listeners.TABLES for line in Path(table).read_text().splitlines()]
    ours = [row for row in rows if len(row.split()) > 9 and row.split()[9] in inodes]
    return {host for host, _ in listeners.listeners("\n".join(ours))}
