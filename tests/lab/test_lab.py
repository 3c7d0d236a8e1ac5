"""The lab's face, with real namespaces, made as root and in a user namespace: programs, files and links of nodes."""

import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.labs import SECRET, WAYS, isolated, request, running, small, wait_until

from umbilical.fault import LabError
from umbilical.lab import control
from umbilical.lab.control import Message
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import CompletedCommand, Lab, down, up
from umbilical.lab.runners import runner_of
from umbilical.lab.state import RunnerKind

pytestmark = pytest.mark.real("unshare", "nsenter", "nft", "ps", "pkill")
NODE = "master-0"


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.name)
def each_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab in either way of isolation, for what the way could change."""
    way: Isolation = request.param
    with pytest.MonkeyPatch.context() as patch, isolated(way):
        patch.setenv(SECRET, "nobody may see this")
        with running(tmp_path_factory.mktemp(way.name) / "lab") as lab:
            yield lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with isolated(WAYS[-1]), running(tmp_path_factory.mktemp("lab") / "lab") as lab:
        yield lab


def code_of(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(LabError) as refused:
        call(*arguments, **options)
    return refused.value.code


def commands_in(lab: Lab) -> str:
    return lab.exec("bootstrap", ["ps", "-A", "-o", "stat=,args="]).check().text


def test_a_node_has_a_name_a_root_and_a_network_of_its_own(each_lab: Lab) -> None:
    assert each_lab.exec(NODE, ["hostname"]).check().text == "master-0\n"
    assert each_lab.exec(NODE, ["id", "-u"]).text == "0\n"
    assert each_lab.exec(NODE, ["pwd"]).text == "/\n"
    assert each_lab.exec(NODE, ["cat", "/etc/hosts"]).text.endswith("10.91.0.10 bootstrap\n10.91.0.11 master-0\n")
    links = {node: each_lab.exec(node, ["readlink", "/proc/self/ns/net"]).text for node in ("bootstrap", NODE)}
    assert len({*links.values(), os.readlink("/proc/self/ns/net") + "\n"}) == 3
    serve = "import socket; s = socket.create_server(('10.91.0.10', 7000)); s.accept()[0].sendall(b'hello from afar')"
    each_lab.start("bootstrap", "greeter", [sys.executable, "-c", serve])
    call = "import socket; print(socket.create_connection(('bootstrap', 7000), 5).recv(99).decode())"
    wait_until(lambda: each_lab.exec(NODE, [sys.executable, "-c", call]).text == "hello from afar\n")


def test_programs_see_nothing_of_the_callers_environment(each_lab: Lab) -> None:
    seen = each_lab.exec(NODE, ["env"], environment={"GIVEN": "yes"}).check().text
    names = {line.partition("=")[0] for line in seen.splitlines()} - {"PYTHONPATH"}
    assert names == {"PATH", "HOME", "HOSTNAME", "GIVEN"}
    assert SECRET not in each_lab.exec(NODE, ["sh", "-c", "cat /proc/[0-9]*/environ"]).text


def test_what_is_of_this_machine_is_not_written_to_and_what_is_written_stays_in_the_lab(each_lab: Lab) -> None:
    for path in ("/usr/x", "/etc/ssl/x", f"{os.path.dirname(sys.executable)}/x"):
        refused = each_lab.exec(NODE, ["touch", path])
        assert refused.exit_code == 1
        assert b"Read-only file system" in refused.stderr
    name = f"umbilical-{os.getpid()}"
    for folder in ("/tmp", "/run", "/var/tmp", "/root", "/usr/local/bin", "/etc"):
        each_lab.exec(NODE, ["touch", f"{folder}/{name}"]).check()
        assert each_lab.exists(NODE, f"{folder}/{name}")
        assert not Path(folder, name).exists()
    each_lab.exec(NODE, ["touch", f"/dev/shm/{name}"]).check()
    assert not Path("/dev/shm", name).exists()


def test_how_a_program_ends_and_all_its_bytes_come_back(lab: Lab) -> None:
    done = lab.exec(NODE, ["sh", "-c", r"printf 'a\0\377'; printf 'b\n' >&2; exit 7"])
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"a\0\xff", b"b\n")
    assert lab.exec(NODE, ["sh", "-c", "kill -9 $$"]).exit_code == -9
    assert lab.exec(NODE, ["umbilical", "version"]).check().text.startswith("umbilical ")
    assert "--uds-name" in lab.exec(NODE, ["proxy-server", "--help"]).check().text
    content = bytes(range(256)) * 4096
    assert lab.exec(NODE, ["cat"], stdin=content).check().stdout == content
    assert lab.exec(NODE, ["wc", "-c"]).text == "0\n"
    assert code_of(lab.exec, NODE, ["true"], stdin=bytes(control.MAX_PAYLOAD_BYTES + 1)) == "UMB816"


def test_a_program_that_is_not_there_is_a_failed_one(lab: Lab) -> None:
    done = lab.exec(NODE, ["no-such-program"])
    assert done.exit_code == 127
    with pytest.raises(LabError, match="UMB816") as refused:
        done.check()
    assert "No such file or directory" in refused.value.why
    assert refused.value.remedy == "umbilical lab shell master-0 -- no-such-program"


def test_a_program_that_prints_or_runs_without_end_is_stopped_with_all_its_children(lab: Lab) -> None:
    with pytest.raises(LabError) as refused:
        lab.exec(NODE, ["yes", "endless"])
    assert (refused.value.code, refused.value.what) == ("UMB816", "yes on master-0 printed too much")
    wait_until(lambda: "yes endless" not in commands_in(lab))
    with pytest.raises(LabError) as refused:
        lab.exec(NODE, ["sh", "-c", "sleep 4321 & sleep 4322"], timeout_seconds=0.3)
    assert refused.value.what == "sh on master-0 timed out"
    wait_until(lambda: "sleep 432" not in commands_in(lab))
    assert lab.exec(NODE, ["sh", "-c", "setsid sleep 5432 & echo over"]).text == "over\n"
    lab.exec(NODE, ["pkill", "-f", "^sleep 5432"]).check()


def test_a_caller_that_hangs_up_takes_its_program_along(lab: Lab) -> None:
    arguments = {"node": NODE, "command": ["sleep", "6543"], "environment": {}, "timeout_seconds": 600}
    question = Message({"operation": "exec", "arguments": {**arguments, "has_stdin": False}})
    with control._connect(lab.directory, 5) as connection:
        connection.sendall(question.encode())
        wait_until(lambda: "sleep 6543" in commands_in(lab))
    wait_until(lambda: "sleep 6543" not in commands_in(lab))


def test_a_question_that_makes_no_sense_is_answered_by_hanging_up_or_a_fault(lab: Lab) -> None:
    assert code_of(control.ask, lab.directory, Message({"operation": "dance", "arguments": {}})) == "UMB819"
    for noise in (b"\n", b"[]\n", b"{" * 70000 + b"\n", b'{"payload": -1}\n', b"x" * (2 << 20)):
        with control._connect(lab.directory, 5) as connection:
            try:
                connection.sendall(noise)
                assert connection.recv(1) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
    assert lab.exec(NODE, ["true"]).exit_code == 0


def test_programs_run_side_by_side(lab: Lab) -> None:
    waiting = ["sh", "-c", "until test -e /tmp/go; do sleep 0.02; done"]
    with ThreadPoolExecutor() as threads:
        waits = [threads.submit(lab.exec, NODE, waiting) for _ in range(5)]
        lab.exec(NODE, ["touch", "/tmp/go"]).check()
        assert [wait.result().exit_code for wait in waits] == [0] * 5


def test_orphans_are_reaped(lab: Lab) -> None:
    lab.exec(NODE, ["sh", "-c", "for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.01' & done"]).check()
    wait_until(lambda: "sleep 0.01" not in commands_in(lab))
    wait_until(lambda: not [line for line in commands_in(lab).splitlines() if line.startswith("Z")])


def test_a_program_in_the_background_has_a_name_a_log_and_an_end(lab: Lab) -> None:
    lab.start(NODE, "talker", ["sh", "-c", "echo one; echo two >&2; exec sleep 1000"])
    wait_until(lambda: lab.log(NODE, "talker") == "one\ntwo\n")
    (talker,) = [each for each in lab.processes() if each.name == "talker"]
    assert (talker.node, talker.exit_code) == (NODE, None)
    assert lab.exec("bootstrap", ["cat", f"/proc/{talker.pid}/comm"]).text == "sleep\n"
    assert stat.S_IMODE(lab.directory.log_file(NODE, "talker").stat().st_mode) == 0o600
    lab.stop(NODE, "talker")
    (talker,) = [each for each in lab.processes() if each.name == "talker"]
    assert talker.exit_code == -15


def test_a_name_is_free_again_when_its_program_has_ended(lab: Lab) -> None:
    lab.start(NODE, "short", ["sleep", "1000"])
    assert code_of(lab.start, NODE, "short", ["true"]) == "UMB817"
    lab.start("bootstrap", "short", ["true"])
    lab.stop(NODE, "short", kill=True)
    lab.start(NODE, "short", ["echo", "again"])
    wait_until(lambda: lab.log(NODE, "short") == "again\n")
    for name in ("", "../escape", "a/b", ".hidden", "x" * 101, "new\nline"):
        assert code_of(lab.start, NODE, name, ["true"]) == "UMB817", name
    lab.stop(NODE, "never")
    assert lab.log(NODE, "never") == ""


def test_stopping_asks_first_and_killing_does_not(lab: Lab) -> None:
    patient = ["sh", "-c", "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.02; done"]
    for name, kill, said in (("asked", False, "ready\nasked\n"), ("killed", True, "ready\n")):
        lab.start(NODE, name, patient)
        wait_until(lambda name=name: lab.log(NODE, name) == "ready\n")  # type: ignore[misc]
        lab.stop(NODE, name, kill=kill)
        assert lab.log(NODE, name) == said


def test_files_of_a_node_are_written_and_read_from_outside_and_closed_to_others(each_lab: Lab) -> None:
    each_lab.write(NODE, "/etc/kubernetes/pki/ca.key", b"secret")
    assert each_lab.exec(NODE, ["stat", "-c", "%a %u", "/etc/kubernetes/pki/ca.key"]).text == "600 0\n"
    assert each_lab.exec(NODE, ["stat", "-c", "%a", "/etc/kubernetes/pki"]).text == "755\n"
    each_lab.write(NODE, "/etc/kubernetes/pki/ca.key", b"changed", mode=0o644)
    assert each_lab.exec(NODE, ["cat", "/etc/kubernetes/pki/ca.key"]).stdout == b"changed"
    each_lab.exec(NODE, ["sh", "-c", "echo inside > /var/lib/seen"]).check()
    assert each_lab.read(NODE, "/var/lib/seen") == b"inside\n"
    assert not each_lab.exists("bootstrap", "/var/lib/seen")
    each_lab.remove(NODE, "/etc/kubernetes")
    assert not each_lab.exists(NODE, "/etc/kubernetes")
    each_lab.exec(NODE, ["ln", "-s", "/etc/hostname", "/root/link"]).check()
    assert each_lab.read(NODE, "/root/link") == b"master-0\n"
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in each_lab.directory.path.iterdir()}
    assert stat.S_IMODE(each_lab.directory.path.stat().st_mode) == 0o700
    assert {modes[path] for path in modes if not path.is_dir()} == {0o600}
    assert stat.S_IMODE(each_lab.directory.node_root(NODE).stat().st_mode) == 0o755


def test_links_routes_and_rules_can_be_changed_and_mended(each_lab: Lab) -> None:
    def facts() -> tuple[object, object]:
        node = each_lab.describe_network()["nodes"][NODE]
        return node["is_linked"], node["has_default_route"]

    assert facts() == (True, True)
    each_lab.set_link(NODE, False)
    each_lab.set_default_route(NODE, False)
    assert facts() == (False, False)
    each_lab.set_link(NODE, True)
    each_lab.set_default_route(NODE, True)
    assert facts() == (True, True)
    each_lab.add_rules(NODE, "blocked", "chain in { type filter hook input priority 0; tcp dport 8091 drop; }")
    assert "tcp dport 8091 drop" in each_lab.exec(NODE, ["nft", "list", "ruleset"]).check().text
    each_lab.remove_rules(NODE, "blocked")
    assert "8091" not in each_lab.exec(NODE, ["nft", "list", "ruleset"]).check().text


def test_every_question_about_an_unknown_node_names_the_nearest(lab: Lab) -> None:
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (lab.exec, (["true"],)),
        (lab.start, ("name", ["true"])),
        (lab.write, ("/x", b"")),
        (lab.read, ("/x",)),
        (lab.exists, ("/x",)),
        (lab.remove, ("/x",)),
        (lab.set_link, (False,)),
        (lab.set_default_route, (False,)),
        (lab.add_rules, ("x", "")),
        (lab.remove_rules, ("x",)),
        (lab.anchor, ()),
    ]
    assert {code_of(call, "mastre-0", *arguments) for call, arguments in calls} == {"UMB812"}


def test_a_lab_and_what_is_broken_in_it_are_found_from_elsewhere(lab: Lab, tmp_path: Path) -> None:
    assert Lab.open(lab.directory.path).exec(NODE, ["hostname"]).text == "master-0\n"
    (tmp_path / "link").symlink_to(lab.directory.path)
    assert Lab.open(tmp_path / "link").state == lab.state
    lab.set_breakages({"link-cut": {"node": NODE}})
    assert Lab.open(lab.directory.path).breakages() == {"link-cut": {"node": NODE}}
    lab.set_breakages({})
    assert Lab.open(lab.directory.path).breakages() == {}
    assert runner_of(lab).kind is RunnerKind.PROCESS


def test_a_program_that_failed_is_told_by_its_words_or_its_exit_code() -> None:
    done = CompletedCommand(NODE, ("true",), 0, b"\xff", b"")
    assert done.check() is done
    assert done.text == "\ufffd"
    with pytest.raises(LabError) as refused:
        CompletedCommand(NODE, ("false",), 1, b"", b"").check()
    assert refused.value.why == "it exited with 1 and printed nothing"


def test_two_labs_with_the_same_addresses_live_side_by_side(tmp_path: Path) -> None:
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        assert one.topology == two.topology == small()
        assert code_of(up, request(tmp_path / "one")) == "UMB813"
        for lab, text in ((one, b"first"), (two, b"second")):
            lab.write(NODE, "/etc/whoami", text)
        assert [lab.exec(NODE, ["cat", "/etc/whoami"]).stdout for lab in (one, two)] == [b"first", b"second"]
        one.set_link(NODE, False)
        assert two.describe_network()["nodes"][NODE]["is_linked"]
        one.down()
        assert two.exec(NODE, ["hostname"]).text == "master-0\n"


def test_a_long_path_with_blanks_and_other_letters_is_no_obstacle(tmp_path: Path) -> None:
    with running(tmp_path / ("long-" * 30) / "ein Läbor\\ 'hier'") as lab:
        assert len(os.fsencode(lab.directory.control_socket)) > control.MAX_SOCKET_PATH_BYTES
        assert lab.exec(NODE, ["umbilical", "version"]).exit_code == 0
    assert code_of(Lab.open, tmp_path) == code_of(Lab.open, tmp_path / "absent") == "UMB815"
    assert not down(tmp_path / "absent")


def test_programs_from_a_directory_of_the_users_are_on_every_node(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "kubectl-v1"
    program.write_text("#!/bin/sh\necho it is me\n")
    program.chmod(0o755)
    with running(tmp_path / "lab", binaries={"kubectl": program}) as lab:
        assert lab.exec(NODE, ["kubectl"]).text == "it is me\n"
        assert lab.exec(NODE, [str(program)]).text == "it is me\n"
        assert lab.state.binaries == {"kubectl": str(program)}
