"""`umbilical bootstrap analyze` and `teardown` as a user runs them."""

import asyncio
import getpass
import gzip
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support import ssh_daemon
from tests.support.commands import Run, stand_in
from tests.support.fixture_types import Captured, Patch
from tests.support.install_directories import Directory, encoded
from tests.support.log_bundles import BEFORE, JOURNAL, STAGES, BundleBuilder, Record, good_record, tar_of
from tests.support.object_store import ObjectStore, tunnel_store
from tests.support.scripted_api import ScriptedApi, status_answer

from umbilical.cli import main

STATE = {"tls_BootstrapSSHKeyPair": {"Priv": encoded(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")}}
BROKEN = Record().start().done(*BEFORE).fails("konnectivity-certs", "UMB112 could not find the bootstrap node IP")


@pytest.fixture
def analyze(umbilical: Run) -> Run:
    return partial(umbilical, "bootstrap", "analyze")


def test_the_first_line_names_the_stage_and_the_cause_follows(tmp_path: Path, analyze: Run) -> None:
    path = BundleBuilder(BROKEN).log(JOURNAL, "UMB112 could not find the bootstrap node IP").archive(tmp_path)
    captured = analyze(path, status=1)
    lines = captured.out.splitlines()
    assert "bootkube failed in step konnectivity-certs at 2026-11-15 14:00:09Z" in lines[0]
    causes = [line for line in lines if " A0" in line[:8]]
    assert " A01 " in causes[0]
    assert " A03 the node found its own address" in causes[1]
    assert "--node-ip" in captured.out
    assert captured.err == ""


def test_a_good_bundle_exits_with_zero(tmp_path: Path, analyze: Run) -> None:
    assert "bootkube succeeded" in analyze(BundleBuilder(good_record()).archive(tmp_path)).out


def test_programs_get_the_verdict_and_build_servers_get_junit(tmp_path: Path, analyze: Run) -> None:
    value = analyze(BundleBuilder(BROKEN).archive(tmp_path), "-o", "json", status=1).json()
    assert value["kind"] == "BundleAnalysis"
    assert value["verdict"]["stage"] == "konnectivity-certs"
    assert value["findings"][0]["id"] == "A01"
    assert value["summary"]["failed"] == 2
    root = ElementTree.fromstring(analyze(BundleBuilder(BROKEN).archive(tmp_path), "-o", "junit", status=1).out)
    assert root.get("failures") == "2"


def test_a_directory_and_a_copy_of_the_records_work_as_well(tmp_path: Path, analyze: Run) -> None:
    copy = tmp_path / "openshift"
    copy.mkdir()
    (copy / "bootkube.json").write_bytes(BROKEN.content())
    for path in (BundleBuilder(BROKEN).unpack(tmp_path), copy, copy / "bootkube.json"):
        out = analyze(path, status=1).out
        assert "bootkube failed in step konnectivity-certs" in out
        assert "A03" in out


def test_a_bundle_that_is_cut_off_is_used_and_told_of(tmp_path: Path, analyze: Run) -> None:
    builder = BundleBuilder(BROKEN)
    builder.files["bootstrap/journals/kubelet.log"] = random.Random(1).randbytes(50_000)
    path = builder.archive(tmp_path)
    path.write_bytes(path.read_bytes()[:-20_000])
    out = analyze(path, status=1).out
    assert "konnectivity-certs" in out
    assert "incomplete: " in out


def test_text_of_others_cannot_steer_the_terminal(tmp_path: Path, analyze: Run) -> None:
    script = Record().start().fails("konnectivity-certs\x1b[2J", "\x1b]0;title\x07 UMB112 \r\u202e")
    builder = BundleBuilder(script).log(JOURNAL, "\x1b[2J UMB112 \x9b31m")
    builder.files["bootstrap/services/\x1b[31m.json"] = b"["
    out = analyze(builder.archive(tmp_path), status=1).out
    assert all(line.isprintable() for line in out.split("\n"))


def test_what_is_no_bundle_exits_with_three(tmp_path: Path, analyze: Run) -> None:
    for content in (b"", b"text", gzip.compress(b"text"), gzip.compress(tar_of([("a.txt", b"x")]))):
        path = tmp_path / "file"
        path.write_bytes(content)
        captured = analyze(path, status=3)
        assert captured.err.startswith("UMB181 ")
        assert captured.out == ""


def test_a_directory_of_something_else_is_no_bundle(tmp_path: Path, analyze: Run) -> None:
    (tmp_path / "metadata.json").write_text('{"infraID": "x"}')
    analyze(tmp_path, status=3)
    assert "UMB180" in analyze(tmp_path / "none", status=3).err


def test_a_large_journal_is_read(tmp_path: Path, analyze: Run) -> None:
    builder = BundleBuilder(Record().start().done(*STAGES[:6]).enters("cb-bootstrap"))
    line = "Nov 15 14:00:00 bootstrap kubelet[1]: nothing of interest in this line of a long journal\n" * 10_000
    builder.files["bootstrap/journals/journal.log.gz"] = gzip.compress((line * 20 + "UMB112 here\n").encode(), 1)
    assert "journal.log.gz:200001 " in analyze(builder.archive(tmp_path), status=1).out


@pytest.mark.parametrize("form", ["table", "json", "junit"])
def test_letters_that_the_terminal_lacks_do_no_harm(tmp_path: Path, form: str) -> None:
    path = BundleBuilder(Record().start().fails("stüfe")).archive(tmp_path, "bündel.tar.gz")
    program = "import sys; from umbilical.cli.main import run; sys.exit(run(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    command = [sys.executable, "-c", program, "bootstrap", "analyze", str(path), "-o", form]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.isascii()
    assert b"st\\xfcfe" in done.stdout or b"st&#252;fe" in done.stdout or b"st\\u00fcfe" in done.stdout


POD = "etc/kubernetes/manifests/konnectivity-server-pod.yaml"
PLACE = "/api/v1/namespaces/openshift-bootstrap-konnectivity"


@contextmanager
def serving(store: ObjectStore, folder: Path) -> Iterator[Path]:
    """Serve the store in a thread of its own: the command has its own loop."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    kubeconfigs: list[Path] = []

    async def serve() -> None:
        async with ScriptedApi(store.answer) as api:
            kubeconfigs.append(api.write_kubeconfig(folder))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield kubeconfigs[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@pytest.fixture
def teardown(umbilical: Run) -> Run:
    return partial(umbilical, "bootstrap", "teardown")


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """The server's manifest below a root."""
    (tmp_path / POD).parent.mkdir(parents=True)
    (tmp_path / POD).touch()
    return tmp_path / POD


def test_wrong_usage_is_told(teardown: Run) -> None:
    for arguments, word in (
        ([], "give at least one of"),
        (["--local", "--ssh-host", "h"], "cannot be combined"),
        (["--local", "--no-node"], "cannot be combined"),
        (["--kubeconfig", "k", "--root", "/mnt"], "--root needs --local"),
        (["--kubeconfig", "k", "--dry-run", "maybe"], "maybe"),
    ):
        assert word in teardown(*arguments, status=2).err


def test_what_went_is_a_table_on_standard_output_and_nothing_to_do_is_said(tmp_path: Path, teardown: Run) -> None:
    with serving(tunnel_store(), tmp_path) as kubeconfig:
        seen = teardown("--kubeconfig", kubeconfig)
    lines = [line.split() for line in seen.out.splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [("DaemonSet", "gone"), ("Secret", "gone"), ("Namespace", "gone")]
    assert seen.err == ""
    with serving(ObjectStore(), tmp_path) as kubeconfig:
        seen = teardown("--kubeconfig", kubeconfig)
    assert seen.out == ""
    assert seen.err == "nothing to do: no object and no file of the tunnel was found\n"


def test_json_is_data_alone(tmp_path: Path, teardown: Run) -> None:
    store = tunnel_store()
    store.faults["DELETE", PLACE] = status_answer(403, "Forbidden", "you may not")
    with serving(store, tmp_path) as kubeconfig:
        told = teardown("--kubeconfig", kubeconfig, "-o", "json", status=1)
    report = told.json()
    assert (report["kind"], report["dryRun"], report["timedOut"]) == ("TeardownReport", "none", False)
    assert [item["state"] for item in report["objects"]] == ["gone", "gone", "refused"]
    (warning,) = report["warnings"]
    assert warning["code"] == "UMB606"
    assert warning["why"] == "you may not"


def test_time_that_is_over_has_its_own_exit_code(tmp_path: Path, teardown: Run) -> None:
    store = tunnel_store()
    store.held.add(PLACE)
    store.objects[PLACE]["metadata"]["finalizers"] = ["evil\x1b[2J"]
    with serving(store, tmp_path) as kubeconfig:
        seen = teardown("--kubeconfig", kubeconfig, "--timeout", "1s", status=9)
    assert "UMB608" in seen.err
    assert "waiting until" in seen.err
    assert "\x1b" not in seen.out + seen.err


def test_files_on_this_machine_go_even_if_the_api_does_not_answer(tmp_path: Path, pod: Path, teardown: Run) -> None:
    with serving(ObjectStore(), tmp_path) as kubeconfig:
        pass
    seen = teardown("--kubeconfig", kubeconfig, "--local", "--root", tmp_path, status=4)
    assert not pod.exists()
    assert seen.out == f"/{POD}  removed\n"
    assert "UMB603" in seen.err


def test_a_dry_run_on_this_machine_lists_and_keeps(tmp_path: Path, pod: Path, teardown: Run) -> None:
    told = teardown("--local", "--root", tmp_path, "--dry-run=client", "-o", "json")
    assert told.json()["files"] == [{"path": f"/{POD}", "state": "would be removed", "detail": ""}]
    assert pod.exists()


@pytest.mark.real("ssh")
def test_a_machine_that_does_not_answer_leaves_something_behind(tmp_path: Path, teardown: Run) -> None:
    with serving(tunnel_store(), tmp_path) as kubeconfig:
        access = ("--ssh-host", "127.0.0.1", "--ssh-port", "1")
        seen = teardown("--kubeconfig", kubeconfig, *access, status=1)
    assert "gone" in seen.out
    assert "UMB610" in seen.err
    assert "--no-node" in seen.err


def test_an_install_directory_gives_the_kubeconfig_and_may_know_no_machine(tmp_path: Path, teardown: Run) -> None:
    Directory(tmp_path).metadata()
    (tmp_path / "auth").mkdir()
    with serving(tunnel_store(), tmp_path) as kubeconfig:
        kubeconfig.rename(tmp_path / "auth" / "kubeconfig")
        seen = teardown("--dir", tmp_path)
    assert seen.out.count("gone") == 3
    assert "the bootstrap machine was skipped" in seen.err


def test_a_machine_that_is_gone_can_be_left_out(tmp_path: Path, teardown: Run) -> None:
    Directory(tmp_path).metadata().machine(("ExternalIP", "127.0.0.1"))
    (tmp_path / "auth").mkdir()
    with serving(ObjectStore(), tmp_path) as kubeconfig:
        kubeconfig.rename(tmp_path / "auth" / "kubeconfig")
        teardown("--dir", tmp_path, "--no-node")


def test_a_directory_that_is_none_is_refused(tmp_path: Path, teardown: Run) -> None:
    assert "UMB170" in teardown("--dir", tmp_path / "none", status=3).err


@pytest.mark.usefixtures("pod")
def test_a_file_that_stays_is_told_and_the_exit_code_tells(tmp_path: Path, monkeypatch: Patch, teardown: Run) -> None:
    stand_in(tmp_path, "rm", "echo \"rm: cannot remove 'x': Operation not permitted\" >&2; exit 1", monkeypatch)
    seen = teardown("--local", "--root", tmp_path, status=1)
    assert seen.out.split() == [f"/{POD}", "not", "removed", "Operation", "not", "permitted"]
    assert f"why: /{POD}: Operation not permitted" in seen.err


def test_somebody_who_is_not_root_is_told_so(tmp_path: Path, monkeypatch: Patch, teardown: Run) -> None:
    stand_in(tmp_path, "id", "echo 1000", monkeypatch)
    assert "root is needed" in teardown("--local", "--dry-run=client", status=1).err


def test_ssh_prints_the_command_with_the_machines_address_and_writes_the_installers_key(
    tmp_path: Path, umbilical: Run
) -> None:
    folder, key = tmp_path / "ocp", tmp_path / "bootstrap.key"
    folder.mkdir()
    Directory(folder).metadata().machine(("InternalIP", "10.0.0.9"), ("ExternalIP", "203.0.113.9")).state(**STATE)
    printed = umbilical("bootstrap", "ssh", "--dir", folder, "--print")
    assert printed.out == "ssh -p 22 core@203.0.113.9\n"
    assert "--key-out FILE" in printed.err
    assert umbilical("bootstrap", "ssh", "--dir", folder, "--print", "--key-out", key) == (
        f"ssh -i {key} -p 22 core@203.0.113.9\n",
        "",
    )
    assert key.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert key.stat().st_mode & 0o777 == 0o600
    assert "--print" in umbilical("bootstrap", "ssh", "--dir", folder, "--key-out", key, status=2).err


def test_ssh_without_a_machine_says_where_its_address_comes_from(tmp_path: Path, umbilical: Run) -> None:
    Directory(tmp_path).metadata()
    assert umbilical("bootstrap", "ssh", "--dir", tmp_path, status=3).err.startswith("UMB172 ")


@pytest.mark.real(*ssh_daemon.PROGRAMS)
def test_ssh_runs_a_command_with_the_installers_key_and_returns_its_status(tmp_path: Path, capfd: Captured) -> None:
    with ssh_daemon.ssh_daemon(tmp_path) as daemon:
        folder = tmp_path / "ocp"
        folder.mkdir()
        Directory(folder).metadata().machine(("ExternalIP", "127.0.0.1")).state(
            tls_BootstrapSSHKeyPair={"Priv": encoded(daemon.key.read_bytes())}
        )
        place = ["--dir", str(folder), "--ssh-port", str(daemon.port), "--ssh-user", getpass.getuser()]
        assert main.run(["bootstrap", "ssh", *place, "--", "sh", "-c", "echo 'it is here'; exit 7"]) == 7
    assert capfd.readouterr().out == "it is here\n"
