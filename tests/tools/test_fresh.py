"""What `make fresh` uses of this machine, what it checks, and its errors."""

import signal
import subprocess
from pathlib import Path

import pytest

import debian
import fresh


def test_without_root_it_is_refused_with_the_command() -> None:
    fresh.require_root(0)
    with pytest.raises(fresh.FreshError) as caught:
        fresh.require_root(1000)
    assert str(caught.value).splitlines()[0] == "UMB916 make fresh needs root"
    assert str(caught.value).splitlines()[2] == "  next: sudo make fresh"


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(debian.DebianError) as caught:
        fresh.require_program("mmdebstrap")
    assert str(caught.value).splitlines() == [
        "UMB917 make fresh needs mmdebstrap",
        "  why: the program `mmdebstrap` is not on PATH",
        "  next: apt-get install mmdebstrap",
    ]


def test_a_root_file_system_in_the_cache_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    fresh.base_file().parent.mkdir(parents=True)
    fresh.base_file().touch()
    assert fresh.make_base(lambda line: None) == fresh.base_file()
    assert fresh.base_file().is_relative_to(tmp_path / "umbilical" / "peers")


def test_other_packages_are_another_root_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fresh.base_file()
    monkeypatch.setattr(fresh, "PACKAGES", (*fresh.PACKAGES, "git"))
    assert fresh.base_file() != before


def test_one_that_cannot_be_made_is_reported_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\necho 'E: no archive' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(debian.DebianError) as caught:
        fresh.make_base(lambda line: None)
    assert caught.value.code == "UMB918"
    assert "  why: E: no archive" in str(caught.value)
    assert list(fresh.base_file().parent.iterdir()) == []


def test_only_settings_of_pip_and_proxies_are_passed_on() -> None:
    passed = {"PIP_CERT": "/c", "https_proxy": "p", "NO_PROXY": "n", "SSL_CERT_FILE": "/s"}
    assert fresh.pip_environment({**passed, "HOME": "/h", "TOKEN": "t"}) == passed


def test_paths_in_settings_are_shown_inside_each_once(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "ca.crt").touch()
    (tmp_path / "other").touch()
    values = [f"file://{tmp_path}/wheels", f"{tmp_path}/wheels/ca.crt", f"{tmp_path}/other:/nowhere", "http://x/y", "/"]
    assert fresh.named_paths(values) == [f"{tmp_path}/other", f"{tmp_path}/wheels"]


@pytest.mark.real("git")
def test_a_copy_has_what_a_clone_has_and_what_is_not_committed_yet(tmp_path: Path) -> None:
    tree, target = tmp_path / "tree", tmp_path / "target"
    tree.mkdir()
    for name in ("kept", "new", "ignored", "gone"):
        (tree / name).write_text(name)
    (tree / ".gitignore").write_text("ignored\n")
    for words in (["init", "--quiet"], ["add", "kept", "gone"]):
        subprocess.run(["git", "-C", str(tree), *words], check=True, timeout=30)
    (tree / "gone").unlink()
    fresh.copy_tree(tree, target, tree.stat().st_uid)
    assert sorted(path.name for path in target.iterdir()) == [".gitignore", "kept", "new"]


def test_a_part_is_checked_by_end_and_output() -> None:
    for status, output, seconds, refusal in (
        (0, "blocked and cut", 1.0, None),
        (2, "one\nmake: *** Error 2\n\n", 1.0, "it exited with 2: make: *** Error 2"),
        (-signal.SIGKILL, "blocked", 10.0, "timed out after 10 s"),
        (-signal.SIGKILL, "", 1.0, "it exited with -9: no output"),
        (0, "blocked", 1.0, "its output does not contain 'cut'"),
        (0, "blocked and cut on loopback", 1.0, "its output contains 'on loopback'"),
    ):
        part = fresh.FreshPart("a part", "/root", 0, ("make",), 10.0, ("blocked", "cut"), ("on loopback",))
        assert fresh.failure_of(part, status, output, seconds) == refusal


def test_parts_can_be_chosen() -> None:
    for words, names in (
        ([], ["demo as root", "demo as a user", "demo without namespaces", "test as root"]),
        (["--demo"], ["demo as root", "demo as a user", "demo without namespaces"]),
        (["--test"], ["test as root"]),
        (["--only", "demo as a user"], ["demo as a user"]),
    ):
        options = fresh._parser().parse_args(words)
        assert [part.name for part in fresh.chosen_parts(options)] == names
