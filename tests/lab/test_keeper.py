"""The keeper: messages to it, its answers when its parts refuse, and how it lives and ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.commands import modules_loaded
from tests.support.fixture_types import Captured, Patch
from tests.support.labs import UP_PROGRAM, processes_naming, request, running, small, wait_until

from umbilical.fault import LabError
from umbilical.lab import control, removal
from umbilical.lab.control import Message, MessageError
from umbilical.lab.keeper_service import KeeperService
from umbilical.lab.lab import Lab, up
from umbilical.lab.network import LabNetwork
from umbilical.lab.state import LabDirectory

TEXTS = st.dictionaries(st.text(max_size=5).filter(lambda name: name != "payload"), st.text(max_size=5), max_size=3)


async def received(content: bytes) -> Message:
    reader = asyncio.StreamReader(limit=control.MAX_LINE_BYTES)
    reader.feed_data(content)
    reader.feed_eof()
    return await control.receive(reader)


@given(TEXTS, st.binary(max_size=100))
def test_what_is_sent_is_received(fields: dict[str, str], payload: bytes) -> None:
    message = Message(fields, payload)
    assert asyncio.run(received(message.encode())) == message


@given(st.binary(max_size=200))
def test_noise_is_no_message(noise: bytes) -> None:
    try:
        message = asyncio.run(received(noise))
    except MessageError:
        return
    assert b"payload" in noise
    assert len(message.payload) <= len(noise)


def test_a_message_that_is_cut_off_or_too_long_or_of_no_size_is_none() -> None:
    for size in (-1, 1.0, True, None, "1", control.MAX_PAYLOAD_BYTES + 1):
        with pytest.raises(MessageError):
            control.decode_line(json.dumps({"payload": size}).encode())
    whole = Message({"a": "b"}, b"payload").encode()
    for length in range(len(whole)):
        with pytest.raises(MessageError):
            asyncio.run(received(whole[:length]))
    with pytest.raises(MessageError):
        Message({"x": "y" * control.MAX_LINE_BYTES}).encode()
    with pytest.raises(MessageError):
        asyncio.run(received(b"x" * (control.MAX_LINE_BYTES + 10)))


@contextmanager
def keeper(folder: Path, answer: Callable[[socket.socket], object], monkeypatch: Patch) -> Iterator[None]:
    """Play a keeper that answers one question this way."""
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("control.sock")
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(10)


def refusal(folder: Path, timeout_seconds: float = 60.0) -> LabError:
    with pytest.raises(LabError) as refused:
        control.ask(LabDirectory(folder), Message({"operation": "x"}), timeout_seconds)
    return refused.value


def test_a_keeper_that_is_not_there_is_told(tmp_path: Path) -> None:
    fault = refusal(tmp_path)
    assert fault.code == "UMB819"
    assert "keeper.log" in fault.remedy


@pytest.mark.parametrize("answer", [b"", b"{", b"null\n", b'{"payload": 5}\nabc', b'{"payload": 99999999999}\n'])
def test_a_keeper_that_talks_nonsense_is_told(tmp_path: Path, answer: bytes, monkeypatch: Patch) -> None:
    with keeper(tmp_path, lambda connection: connection.sendall(answer), monkeypatch):
        assert refusal(tmp_path).code == "UMB819"


def test_a_silent_keeper_is_not_waited_for_and_its_faults_are_raised_here(tmp_path: Path, monkeypatch: Patch) -> None:
    given_up = threading.Event()
    with keeper(tmp_path, lambda connection: given_up.wait(10), monkeypatch):
        assert refusal(tmp_path, 0.05).why == "timed out"
        given_up.set()
    fault = LabError("UMB817", "what", "why", "remedy")
    answer = control.fault_message(fault).encode()
    other = tmp_path / "other"
    other.mkdir()
    with keeper(other, lambda connection: connection.sendall(answer), monkeypatch):
        assert str(refusal(other)) == str(fault)


def test_a_socket_with_a_long_path_is_reached(tmp_path: Path, monkeypatch: Patch) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    answer = Message({"a": 1}, b"bytes")
    with keeper(folder, lambda connection: connection.sendall(answer.encode()), monkeypatch):
        assert control.ask(LabDirectory(folder), Message()) == answer


@pytest.fixture
def service(tmp_path: Path) -> KeeperService:
    """A service without namespaces: its network was never built, its nodes have no anchors."""
    anchors = {node.name: os.getpid() for node in small().nodes}
    return KeeperService(LabDirectory(tmp_path), small(), LabNetwork(small(), tmp_path / "netns"), anchors)


def answered(service: KeeperService, operation: str, **arguments: object) -> Message:
    return asyncio.run(service._result(Message({"operation": operation, "arguments": arguments})))


def test_a_refusal_travels_as_its_four_parts(service: KeeperService) -> None:
    code, what, why, remedy = answered(service, "stop", node="x").fields["fault"]
    assert code == "UMB819"
    assert what == "the keeper failed to run the operation"
    assert "KeyError" in why
    assert "keeper.log" in remedy
    fault = LabError(*answered(service, "network", change="set_link", parameters=["nobody", True]).fields["fault"])
    assert fault.code == "UMB812"


def test_a_refusal_of_the_network_does_not_end_the_keeper(service: KeeperService, capfd: Captured) -> None:
    assert "fault" in answered(service, "network", change="set_link", parameters=["master-0", True]).fields
    assert "fault" in answered(service, "network", change="demolish", parameters=["master-0"]).fields
    assert answered(service, "processes").fields == {"processes": []}
    assert "demolish" in capfd.readouterr().err
    assert "fault" in answered(service, "network", change="build", parameters=["master-0"]).fields
    assert "fault" in answered(service, "__class__").fields


def test_stopping_with_nothing_running_is_done_at_once_and_where_the_nodes_are_is_told(service: KeeperService) -> None:
    asyncio.run(service.stop())
    assert answered(service, "stop", node="master-0", name="nobody", kill=True).fields == {"exit_code": None}
    anchors = answered(service, "anchors").fields["anchors"]
    assert anchors == dict.fromkeys(["bootstrap", "master-0"], os.getpid())


def test_a_keeper_loads_nothing_that_it_does_not_need() -> None:
    loaded = modules_loaded("import umbilical.lab.keeper")
    assert not {"cryptography", "yaml", "lightkube", "click", "rich", "httpx"} & loaded


@pytest.mark.real("unshare", "nsenter", "nft", "ps")
def test_programs_hold_neither_the_lock_nor_any_pipe_of_the_keepers(tmp_path: Path) -> None:
    with running(tmp_path / "lab") as lab:
        lab.start("master-0", "looker", ["sh", "-c", "ls -l /proc/self/fd"])
        wait_until(lambda: lab.processes()[0].exit_code is not None)
        listed = [line.split()[-3:] for line in lab.log("master-0", "looker").splitlines()[1:]]
        assert {number for number, *_ in listed} == {"0", "1", "2", "3"}
        assert next(target for number, _, target in listed if number == "0") == "/dev/null"
        anchor = lab.exec("master-0", ["ls", "-l", f"/proc/{lab.anchor('master-0')}/fd"]).check().text
        assert "pipe:" not in anchor
        assert "lock" not in anchor


@pytest.mark.real("unshare", "nsenter", "nft", "ps")
def test_programs_are_not_born_with_the_callers_umask_or_signals(tmp_path: Path) -> None:
    script = 'umask 077; trap "" HUP QUIT; exec "$@"'
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = ["sh", "-c", script, "sh", sys.executable, "-c", UP_PROGRAM, str(tmp_path / "lab"), "alone"]
    subprocess.run(command, env=environment, timeout=60, check=True, stdout=subprocess.DEVNULL)
    lab = Lab.open(tmp_path / "lab")
    try:
        assert lab.exec("master-0", ["sh", "-c", "umask"]).text == "0022\n"
        status = lab.exec("master-0", ["cat", "/proc/self/status"]).text
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith("Sig"))
        # The C library keeps two signals for its threads and lets nobody set them; make hands one on as ignored.
        reserved = 1 << 31 | 1 << 32
        assert {int(facts[name], 16) & ~reserved for name in ("SigBlk", "SigIgn")} == {0}
    finally:
        lab.down()


@pytest.mark.real("unshare", "nsenter", "nft", "ps")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_keeper_in_order(tmp_path: Path, number: signal.Signals) -> None:
    lab = up(request(tmp_path / "lab"))
    try:
        program = "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.02; done"
        lab.start("master-0", "patient", ["sh", "-c", program])
        wait_until(lambda: lab.log("master-0", "patient") == "ready\n")
        assert lab.state.keeper_pid is not None
        os.kill(lab.state.keeper_pid, number)
        wait_until(lambda: not removal.is_held(lab.directory))
        assert lab.log("master-0", "patient") == "ready\nasked\n"
        assert lab.directory.keeper_log.read_text() == ""
    finally:
        lab.down()


@pytest.mark.real("unshare", "nsenter", "nft", "ps")
def test_a_keeper_that_is_ordered_to_end_does_not_wait_for_a_running_question(tmp_path: Path) -> None:
    lab = up(request(tmp_path / "lab"))
    arguments = [sys.executable, "-c", _ASK, str(lab.directory.path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as asking:
        wait_until(lambda: "sleep 9876" in lab.exec("bootstrap", ["ps", "-A", "-o", "args="]).text)
        removal.end_keeper(lab.directory, orderly=True)
        said, _ = asking.communicate(timeout=30)
    lab.down()
    assert said == "UMB819\n"


@pytest.mark.real("unshare", "nsenter", "nft", "ps")
def test_when_either_half_of_a_keeper_is_killed_everything_ends(tmp_path: Path) -> None:
    for half in (-1, -2):
        lab = up(request(tmp_path / "lab"))
        lab.start("master-0", "sleeper", ["setsid", "sleep", "8765"])
        os.kill(sorted(removal.keepers(lab.directory))[half], signal.SIGKILL)
        wait_until(lambda: processes_naming(tmp_path / "lab") == [])
        # The kernel lets go of a dying process's lock a moment after its command line.
        wait_until(lambda: not removal.is_held(LabDirectory(tmp_path / "lab")))
        lab.down()


_ASK = """
import sys; from pathlib import Path
from umbilical.fault import LabError
from umbilical.lab.lab import Lab
try: Lab.open(Path(sys.argv[1])).exec("master-0", ["sleep", "9876"], timeout_seconds=600)
except LabError as fault: print(fault.code)
"""
