"""`umbilical bootstrap teardown`: usage, output and exit codes; the real API is in tests/interop/test_teardown.py."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.install_directories import Directory
from tests.support.object_store import ObjectStore, tunnel_store
from tests.support.scripted_api import ScriptedApi, status_answer

from umbilical.cli.main import run

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


def teardown(*arguments: object) -> int:
    return run(["bootstrap", "teardown", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "name what to clean"),
        (["--local", "--ssh-host", "h"], "excludes"),
        (["--local", "--no-node"], "excludes"),
        (["--kubeconfig", "k", "--root", "/mnt"], "--root goes with --local"),
        (["--kubeconfig", "k", "--dry-run", "maybe"], "maybe"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert teardown(*arguments) == 2
    assert word in capfd.readouterr().err


def test_what_went_is_a_table_on_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(tunnel_store(), tmp_path) as kubeconfig:
        assert teardown("--kubeconfig", kubeconfig) == 0
    seen = capfd.readouterr()
    lines = [line.split() for line in seen.out.splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [("DaemonSet", "gone"), ("Secret", "gone"), ("Namespace", "gone")]
    assert seen.err == ""


def test_nothing_to_do_is_said_and_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(ObjectStore(), tmp_path) as kubeconfig:
        assert teardown("--kubeconfig", kubeconfig) == 0
    seen = capfd.readouterr()
    assert seen.out == ""
    assert seen.err == "nothing to do: no trace of the tunnel was found\n"


def test_json_is_data_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tunnel_store()
    store.faults["DELETE", PLACE] = status_answer(403, "Forbidden", "you may not")
    with serving(store, tmp_path) as kubeconfig:
        assert teardown("--kubeconfig", kubeconfig, "-o", "json") == 1
    report = json.loads(capfd.readouterr().out)
    assert (report["kind"], report["dryRun"], report["timedOut"]) == ("TeardownReport", "none", False)
    assert [item["state"] for item in report["objects"]] == ["gone", "gone", "refused"]
    (warning,) = report["warnings"]
    assert warning["code"] == "UMB606"
    assert warning["why"] == "you may not"


def test_time_that_is_over_has_its_own_exit_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tunnel_store()
    store.held.add(PLACE)
    store.objects[PLACE]["metadata"]["finalizers"] = ["evil\x1b[2J"]
    with serving(store, tmp_path) as kubeconfig:
        assert teardown("--kubeconfig", kubeconfig, "--timeout", "1s") == 9
    seen = capfd.readouterr()
    assert "UMB608" in seen.err
    assert "waiting until" in seen.err
    assert "\x1b" not in seen.out + seen.err


def test_files_on_this_machine_go_even_if_the_api_does_not_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pod = tmp_path / POD
    pod.parent.mkdir(parents=True)
    pod.touch()
    store = ObjectStore()
    with serving(store, tmp_path) as kubeconfig:
        pass
    assert teardown("--kubeconfig", kubeconfig, "--local", "--root", tmp_path) == 4
    assert not pod.exists()
    seen = capfd.readouterr()
    assert seen.out == f"/{POD}  removed\n"
    assert "UMB603" in seen.err


def test_a_dry_run_on_this_machine_lists_and_keeps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pod = tmp_path / POD
    pod.parent.mkdir(parents=True)
    pod.touch()
    assert teardown("--local", "--root", tmp_path, "--dry-run=client", "-o", "json") == 0
    assert json.loads(capfd.readouterr().out)["files"] == [
        {"path": f"/{POD}", "state": "would be removed", "detail": ""}
    ]
    assert pod.exists()


@pytest.mark.real("ssh")
def test_a_machine_that_does_not_answer_leaves_something_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(tunnel_store(), tmp_path) as kubeconfig:
        access = ("--ssh-host", "127.0.0.1", "--ssh-port", "1")
        assert teardown("--kubeconfig", kubeconfig, *access) == 1
    seen = capfd.readouterr()
    assert "gone" in seen.out
    assert "UMB610" in seen.err
    assert "--no-node" in seen.err


def test_an_install_directory_gives_the_kubeconfig_and_may_know_no_machine(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Directory(tmp_path).metadata()
    (tmp_path / "auth").mkdir()
    with serving(tunnel_store(), tmp_path) as kubeconfig:
        kubeconfig.rename(tmp_path / "auth" / "kubeconfig")
        assert teardown("--dir", tmp_path) == 0
    seen = capfd.readouterr()
    assert seen.out.count("gone") == 3
    assert "the bootstrap machine is left alone" in seen.err


def test_a_machine_that_is_gone_can_be_left_out(tmp_path: Path) -> None:
    Directory(tmp_path).metadata().machine(("ExternalIP", "127.0.0.1"))
    (tmp_path / "auth").mkdir()
    with serving(ObjectStore(), tmp_path) as kubeconfig:
        kubeconfig.rename(tmp_path / "auth" / "kubeconfig")
        assert teardown("--dir", tmp_path, "--no-node") == 0


def test_a_directory_that_is_none_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert teardown("--dir", tmp_path / "none") == 3
    assert "UMB170" in capfd.readouterr().err


def stand_in(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "bin" / name
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)


def test_a_file_that_stays_is_told_and_the_exit_code_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pod = tmp_path / POD
    pod.parent.mkdir(parents=True)
    pod.touch()
    stand_in(tmp_path, "rm", "echo \"rm: cannot remove 'x': Operation not permitted\" >&2; exit 1", monkeypatch)
    assert teardown("--local", "--root", tmp_path) == 1
    seen = capfd.readouterr()
    assert seen.out.split() == [f"/{POD}", "not", "removed", "Operation", "not", "permitted"]
    assert f"why: /{POD}: Operation not permitted" in seen.err


def test_somebody_who_is_not_root_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path, "id", "echo 1000", monkeypatch)
    assert teardown("--local", "--dry-run=client") == 1
    assert "only root may look" in capfd.readouterr().err
