"""A config is laid below a root as Ignition would lay it, and its units run as systemd would run them."""

import io
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ignition.configs import JSON_VALUES, config, configs, entry, gzipped_entry, written
from tests.support.bootstrap_corpus import CORPUS, Case
from tests.support.fixture_types import Captured, Patch
from tests.support.tunnel_pair import wait_until

from umbilical.fault import IgnitionError, LabError
from umbilical.ignition.config import read_config
from umbilical.ignition.data_url import format_data_url
from umbilical.lab.bootkube_script import BOOTKUBE_UNIT
from umbilical.lab.ignition_applier import PRESET, AppliedConfig, apply_config, main
from umbilical.lab.unit_runner import UnitRunner, UnitService, read_service, read_unit, seconds


def lay(root: Path, *files: dict[str, Any], **sections: Any) -> AppliedConfig:
    return apply_config(written(config(*files, **sections)), root)


def text(root: Path, path: str) -> str:
    return (root / path.lstrip("/")).read_text()


def mode(root: Path, path: str) -> int:
    return stat.S_IMODE((root / path.lstrip("/")).stat().st_mode)


def test_files_have_their_content_and_mode(tmp_path: Path) -> None:
    applied = lay(tmp_path, entry("/usr/local/bin/a.sh", b"#!", mode=365), gzipped_entry("/opt/b", b"unpacked"))
    assert applied.paths == ["/usr/local/bin/a.sh", "/opt/b"]
    assert (text(tmp_path, "/usr/local/bin/a.sh"), mode(tmp_path, "/usr/local/bin/a.sh")) == ("#!", 0o555)
    assert text(tmp_path, "/opt/b") == "unpacked"
    lay(tmp_path, entry("/a", mode=None))
    assert mode(tmp_path, "/a") == 0o644


def test_a_file_is_appended_to_kept_or_replaced_as_its_entry_says(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/motd").write_text("old\n")
    parts = [{"source": format_data_url(b"one\n")}, {"source": format_data_url(b"two\n")}]
    lay(tmp_path, {"path": "/etc/motd", "append": parts, "overwrite": False, "mode": 420})
    assert text(tmp_path, "/etc/motd") == "old\none\ntwo\n"
    (tmp_path / "kept").write_text("old")
    lay(tmp_path, {"path": "/kept", "mode": 384}, {"path": "/new"})
    assert (text(tmp_path, "/kept"), mode(tmp_path, "/kept")) == ("old", 0o600)
    assert (text(tmp_path, "/new"), mode(tmp_path, "/new")) == ("", 0o644)
    (tmp_path / "a").write_text("old")
    with pytest.raises(LabError, match="UMB878"):
        lay(tmp_path, entry("/a", b"new", overwrite=False))
    assert text(tmp_path, "/a") == "old"
    lay(tmp_path, entry("/a", b"new"))
    assert text(tmp_path, "/a") == "new"


def test_directories_and_links_are_made(tmp_path: Path) -> None:
    storage = {
        "directories": [{"path": "/srv/inner", "mode": 448}, {"path": "/srv"}],
        "files": [entry("/srv/inner/a", b"x")],
        "links": [
            {"path": "/etc/localtime", "target": "../usr/share/zoneinfo/UTC"},
            {"path": "/srv/hard", "target": "/srv/inner/a", "hard": True},
        ],
    }
    lay(tmp_path, storage=storage)

    assert (mode(tmp_path, "/srv"), mode(tmp_path, "/srv/inner")) == (0o755, 0o700)
    assert os.readlink(tmp_path / "etc/localtime") == "../usr/share/zoneinfo/UTC"
    assert text(tmp_path, "/srv/hard") == "x"


def test_units_come_with_drop_ins_masks_and_a_preset(tmp_path: Path) -> None:
    units = [
        {"name": "a.service", "contents": "[Service]\n", "enabled": True},
        {"name": "b.service", "dropins": [{"name": "10-x.conf", "contents": "[Unit]\n"}], "enabled": False},
        {"name": "c.service", "mask": True},
        {"name": "d.service", "contents": "[Unit]\n"},
    ]
    applied = lay(tmp_path, systemd={"units": units})

    folder = "/etc/systemd/system"
    assert text(tmp_path, f"{folder}/a.service") == "[Service]\n"
    assert text(tmp_path, f"{folder}/b.service.d/10-x.conf") == "[Unit]\n"
    assert os.readlink(tmp_path / "etc/systemd/system/c.service") == "/dev/null"
    assert text(tmp_path, PRESET) == "enable a.service\ndisable b.service\n"
    assert applied.enabled_units == ["a.service"]


@pytest.mark.root
def test_owners_are_obeyed_by_number_and_by_the_root_s_own_names(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\ncore:x:4711:4712::/:/bin/sh\n")
    (tmp_path / "etc/group").write_text("wheel:x:4713:\n")
    lay(
        tmp_path,
        entry("/a", user={"id": 12}, group={"id": 13}),
        entry("/b", user={"name": "core"}, group={"name": "wheel"}),
    )
    found = [(tmp_path / name).stat() for name in "ab"]
    assert [(each.st_uid, each.st_gid) for each in found] == [(12, 13), (4711, 4713)]


def test_what_is_not_applied_is_told_and_an_unknown_owner_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"(?s)UMB875.*why: .*the user nobody-knows"):
        lay(tmp_path, entry("/a", user={"name": "nobody-knows"}))
    applied = lay(tmp_path, entry("/a"), passwd={"users": [{"name": "core"}]})
    assert "passwd.users is not applied: 1 entries" in applied.notes


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (config(entry("/a", contents={"source": "https://x/y"})), "UMB876", "downloaded at boot (https:)"),
        (config({"path": "/a", "append": [{"source": "http://x"}]}), "UMB876", "downloaded at boot (http:)"),
        (config(ignition={"version": "3.2.0", "config": {"replace": {"source": "https://x"}}}), "UMB876", "points to"),
        (config(entry("/a"), entry("/a")), "UMB875", "is used twice"),
        (config(entry("relative")), "UMB875", "not absolute"),
        (config(entry("/a/../b")), "UMB875", "not normalized"),
        (config(entry("/a", mode=9999)), "UMB875", "mode"),
        (config(entry("/a", user={"id": -1})), "UMB875", "the id of the user is out of range"),
        (config(entry("/a", group={"id": 1 << 40})), "UMB875", "the id of the group is out of range"),
        (config(storage={"links": [{"path": "/a"}]}), "UMB875", "no target"),
        (config(storage={"links": [{"path": "/a", "target": "../../etc/shadow", "hard": True}]}), "UMB877", "normalis"),
        (config(systemd={"units": [{"name": "../../../x.service", "contents": "x"}]}), "UMB877", "normalised"),
        (config(systemd={"units": [{"name": "a/b.service", "enabled": True}]}), "UMB875", "not a valid unit name"),
        (config(systemd={"units": [{"name": "a.service", "dropins": [{"name": "../../x.conf", "contents": "x"}]}]}),
         "UMB877", "normalised"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_refused_and_nothing_is_written(
    tmp_path: Path, value: dict[str, Any], code: str, words: str
) -> None:
    value = {**value, "storage": {**value.get("storage", {}), "directories": [{"path": "/first"}]}}
    with pytest.raises(LabError) as caught:
        apply_config(written(value), tmp_path)
    assert caught.value.code == code
    assert words in caught.value.why
    assert os.listdir(tmp_path) == []


def test_a_wrong_hash_another_version_and_a_root_that_is_none_are_refused(tmp_path: Path) -> None:
    bad = gzipped_entry("/b", b"content")
    bad["contents"]["verification"]["hash"] = "sha512-" + "0" * 128
    with pytest.raises(LabError, match="hash"):
        lay(tmp_path, entry("/a"), bad)
    assert os.listdir(tmp_path) == []
    with pytest.raises(IgnitionError, match="UMB141"):
        apply_config(written(config(version="2.2.0")), tmp_path)
    with pytest.raises(LabError, match="UMB879"):
        lay(tmp_path / "missing", entry("/a"))


def test_every_kind_of_bootstrap_config_is_laid_whole(tmp_path: Path) -> None:
    for number, case in enumerate(CORPUS):
        root = tmp_path / str(number)
        root.mkdir()
        content = case.content()
        apply_config(content, root)
        files = [file for file in read_config(content).files if file.source is not None]
        laid = [root / file.path.lstrip("/") for file in files]
        assert [path.read_bytes() for path in laid] == [file.content() for file in files], case
        assert [stat.S_IMODE(path.stat().st_mode) for path in laid] == [file.mode for file in files], case


def test_the_program_reads_stdin_and_tells_what_it_did(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    def run(content: bytes) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        monkeypatch.setattr(sys, "argv", ["ignition_applier", str(tmp_path)])
        return main()

    assert run(Case().content()) == 0
    assert "enabled units: approve-csr.service, kubelet.service" in capsys.readouterr().out
    assert run(b"{}") == 1
    assert capsys.readouterr().err.startswith("UMB1")


# Few names, so that paths meet each other and the hostile links of the root.
_NAME = st.sampled_from(["a", "b", "up", "out", "loop", "file", "..", ".", "", "x" * 300, "\0", "\ud800", "é"])
_PATH = st.lists(_NAME, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
_TARGET = _PATH | st.sampled_from(["..", "../..", "../../outside", "/", "/outside", "a", "up/outside"])
_FLAG = st.sampled_from([None, True, False])


@st.composite
def _nodes(draw: st.DrawFn) -> dict[str, Any]:
    files = st.builds(
        lambda path, overwrite, appended: (
            {"path": path, "append": [{"source": "data:,y"}]}
            if appended
            else {"path": path, "overwrite": overwrite, "contents": {"source": "data:,x"}}
        ),
        _PATH,
        _FLAG,
        st.booleans(),
    )
    directories = st.fixed_dictionaries({"path": _PATH, "overwrite": _FLAG})
    links = st.fixed_dictionaries({"path": _PATH, "target": _TARGET, "hard": _FLAG, "overwrite": _FLAG})
    return {
        "files": draw(st.lists(files, max_size=4)),
        "directories": draw(st.lists(directories, max_size=2)),
        "links": draw(st.lists(links, max_size=3)),
    }


_UNIT_NAME = st.sampled_from(["a.service", "../../../a.service", "x/y.service", "../up/z.service"])
_DROPIN = st.fixed_dictionaries(
    {"name": st.sampled_from(["a.conf", "../../a.conf", "../../../../../outside/a.conf"]), "contents": st.just("x")}
)
_UNIT = {"name": _UNIT_NAME, "contents": st.just("x"), "mask": _FLAG, "enabled": _FLAG}
_UNITS = st.lists(st.fixed_dictionaries({**_UNIT, "dropins": st.lists(_DROPIN, max_size=2)}), max_size=2)


def _snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_nlink, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@given(st.lists(_nodes(), min_size=1, max_size=3), _UNITS)
def test_no_config_writes_outside_of_the_root(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[str, Any]], units: list[dict[str, Any]]
) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    (place / "outside").mkdir()
    (place / "outside/file").write_text("mine")
    root = place / "root"
    (root / "etc").mkdir(parents=True)
    (root / "up").symlink_to("..")
    (root / "out").symlink_to(place / "outside")
    (root / "loop").symlink_to("loop")
    (root / "file").symlink_to("../outside/file")
    before = _snapshot(place / "outside")
    for storage in rounds:
        value = config(storage=storage, systemd={"units": units})
        with suppress(LabError, IgnitionError):
            apply_config(written(value), root)
    assert _snapshot(place / "outside") == before
    assert sorted(os.listdir(place)) == ["outside", "root"]


_ROOMS = st.dictionaries(st.sampled_from(["files", "directories", "links", "units", "users"]), JSON_VALUES, max_size=3)


@given(configs(), _ROOMS, _ROOMS, _ROOMS | JSON_VALUES)
def test_any_config_is_laid_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    value: dict[str, Any],
    storage: dict[str, Any],
    systemd: dict[str, Any],
    passwd: Any,
) -> None:
    root = tmp_path_factory.mktemp("root")
    value = {**value, "passwd": passwd}
    with suppress(LabError, IgnitionError):
        apply_config(written({**value, "systemd": systemd}), root)
    with suppress(LabError, IgnitionError):
        apply_config(written({**value, "storage": storage, "systemd": systemd}), root)
    assert root.is_dir()


def script(folder: Path, text: str) -> list[str]:
    path = folder / "script.sh"
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)
    return [str(path)]


def test_a_bootstrap_node_s_unit_is_understood() -> None:
    service = read_service([BOOTKUBE_UNIT])
    assert service.commands == [["/usr/local/bin/bootkube.sh"]]
    assert service.conditions == ["!/opt/openshift/.bootkube.done"]
    assert service.directory == "/opt/openshift"
    assert (service.restarts_on_failure, service.restart_seconds) == (True, 5.0)
    assert [seconds(text) for text in ("5s", "500ms", "2min", "7", "1 s")] == [5.0, 0.5, 120.0, 7.0, 1.0]


def test_drop_ins_come_behind_the_unit_and_may_replace_its_command(tmp_path: Path) -> None:
    (tmp_path / "a.service").write_text(
        "[Service]\nExecStart=/bin/old \\\n  --flag\nEnvironment=A=1\n# ExecStart=/no\n"
    )
    (tmp_path / "a.service.d").mkdir()
    (tmp_path / "a.service.d/20-b.conf").write_text("[Service]\nEnvironment=A=3\n")
    (tmp_path / "a.service.d/10-a.conf").write_text(
        '[Service]\nExecStart=\nExecStart=/bin/new "two words"\nEnvironment=A=2 B=x\n'
    )
    service = read_unit("a.service", tmp_path)

    assert service.commands == [["/bin/new", "two words"]]
    assert service.environment == {"A": "3", "B": "x"}


def test_preparations_run_first_in_the_unit_s_directory_and_environment(tmp_path: Path) -> None:
    text = "[Service]\nExecStart=/bin/sh -c 'cat pre; echo $WORD >>out'\nExecStartPre=/bin/sh -c 'echo x >pre'\n"
    service = read_service([text + f"WorkingDirectory={tmp_path}\nEnvironment=WORD=hello\n"])

    assert UnitRunner(service).run() == 0
    assert (tmp_path / "out").read_text() == "hello\n"


def test_a_condition_that_does_not_hold_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    started = tmp_path / "started"
    for conditions in ([f"!{tmp_path / 'done'}"], [str(tmp_path / "missing")]):
        assert UnitRunner(UnitService([["touch", str(started)]], conditions)).run() == 0
    assert not started.exists()
    assert (
        UnitRunner(UnitService([["touch", str(started)]], [str(tmp_path / "done"), f"!{tmp_path / 'missing'}"])).run()
        == 0
    )
    assert started.exists()


def test_a_failure_is_repeated_until_it_succeeds_or_restarts_end(tmp_path: Path) -> None:
    command = script(tmp_path, f'echo x >>{tmp_path}/runs\n[ "$(wc -l <{tmp_path}/runs)" -ge 3 ]\n')
    assert UnitRunner(UnitService([command], restarts_on_failure=True, restart_seconds=0.01)).run() == 0
    assert len((tmp_path / "runs").read_text().splitlines()) == 3
    (tmp_path / "runs").unlink()
    command = script(tmp_path, f"echo x >>{tmp_path}/runs\nexit 3\n")
    assert UnitRunner(UnitService([command], restarts_on_failure=True, restart_seconds=0.0), max_restarts=2).run() == 3
    assert len((tmp_path / "runs").read_text().splitlines()) == 3
    assert UnitRunner(UnitService([command])).run() == 3
    assert len((tmp_path / "runs").read_text().splitlines()) == 4


def test_a_unit_that_is_always_restarted_is_whatever_it_ended_with_until_it_is_stopped(tmp_path: Path) -> None:
    command = script(tmp_path, f'echo x >>{tmp_path}/runs\n[ "$(wc -l <{tmp_path}/runs)" -ge 2 ]\n')
    service = read_service([f"[Service]\nExecStart={command[0]}\nRestart=always\nRestartSec=10ms\n"])
    runner = UnitRunner(service, max_restarts=0)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(runner.run)
        try:
            wait_until(lambda: len(_lines(tmp_path / "runs")) >= 5, "it was started five times")
        finally:
            runner.stop(signal.SIGTERM, None)
        assert ended.result(20) in (0, -signal.SIGTERM)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_stop_comes_through_while_a_restart_is_waited_for(tmp_path: Path) -> None:
    runner = UnitRunner(
        UnitService([script(tmp_path, f"touch {tmp_path}/ran\n")], restarts_always=True, restart_seconds=600)
    )
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(runner.run)
        wait_until((tmp_path / "ran").exists, "it ran")
        runner.stop(signal.SIGTERM, None)
        ended.result(60)


def test_a_stop_ends_the_command_and_starts_none_again(tmp_path: Path) -> None:
    ready, stopped = tmp_path / "ready", tmp_path / "stopped"
    command = script(tmp_path, f"trap 'touch {stopped}; exit 1' TERM\ntouch {ready}\nsleep 60 >/dev/null & wait $!\n")
    (tmp_path / "a.service").write_text(f"[Service]\nExecStart={command[0]}\nRestart=on-failure\nRestartSec=60\n")
    runner = [sys.executable, "-m", "umbilical.lab.unit_runner", "a.service", str(tmp_path)]
    with subprocess.Popen(runner, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            wait_until(ready.exists, "the command runs")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 1
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert stopped.exists()
