"""What a node's root is made of. How it looks from inside is in test_lab.py."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from umbilical.lab import node_root


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "umbilical").write_text("#!/bin/sh\n")
    (folder / "umbilical").chmod(0o755)
    (folder / "kubectl").symlink_to("/opt/kubectl")
    return folder


def built(tmp_path: Path, programs: Path, shared: list[str]) -> Path:
    root = tmp_path / "root"
    node_root.build(root, "master-0", "127.0.0.1 localhost\n", programs, [], shared)
    return root


def test_a_root_has_its_own_files(tmp_path: Path, programs: Path) -> None:
    root = built(tmp_path, programs, [])
    assert (root / "etc/hostname").read_text() == "master-0\n"
    assert (root / "etc/hosts").read_text() == "127.0.0.1 localhost\n"
    assert (root / "etc/resolv.conf").read_text() == ""
    assert (root / "etc/host.conf").read_text() == "multi on\n"
    assert len((root / "etc/machine-id").read_text()) == 33
    assert (root / "etc/passwd").read_text() == Path("/etc/passwd").read_text()


def test_a_root_can_be_entered_by_everyone_whatever_the_umask(tmp_path: Path, programs: Path) -> None:
    old = os.umask(0o077)
    try:
        root = built(tmp_path, programs, ["/opt/somewhere/deep"])
    finally:
        os.umask(old)
    for path in (".", "etc", "var/lib", "opt/somewhere", "opt/somewhere/deep", "var/usrlocal/bin"):
        assert stat.S_IMODE((root / path).stat().st_mode) == 0o755, path
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777


def test_what_is_a_link_on_this_machine_is_one_on_the_node(tmp_path: Path, programs: Path) -> None:
    root = built(tmp_path, programs, [])
    for place in filter(os.path.lexists, node_root.SYSTEM):
        assert (root / place[1:]).is_symlink() == os.path.islink(place)


def test_a_node_has_its_own_copy_of_the_programs(tmp_path: Path, programs: Path) -> None:
    store = built(tmp_path, programs, []) / "var/usrlocal/bin"
    assert os.access(store / "umbilical", os.X_OK)
    assert (store / "kubectl").readlink() == Path("/opt/kubectl")


def test_this_python_and_the_given_programs_are_shared(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "etcd").touch()
    (tmp_path / "link").symlink_to("real")
    shared = node_root.shared_directories([str(tmp_path / "link" / "etcd")])
    assert {str(tmp_path / "link"), str(tmp_path / "real")} <= set(shared)
    for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))):
        assert any(Path(path).is_relative_to(outer) for outer in (*shared, *node_root.SYSTEM))


def test_nothing_is_shared_twice_and_never_all_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    binaries = [str(tmp_path / "inner" / "a"), str(tmp_path / "b"), "/usr/bin/c", "/d", "/bin/e"]
    shared = node_root.shared_directories(binaries)
    assert str(tmp_path) in shared
    assert not {"/", "/usr/bin", "/bin", str(tmp_path / "inner")} & set(shared)


def test_programs_in_this_machines_own_place_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr/local/bin/kubectl")
    binaries = ["/usr/local/bin/etcd", str(tmp_path / "link"), "/usr/bin/nft"]
    covered = node_root.covered_programs(binaries)
    assert covered[-2:] == ["/usr/local/bin/etcd", "/usr/local/bin/kubectl"]


def test_a_place_is_kept_for_a_program_that_would_be_covered(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "root"
    node_root.build(root, "master-0", "", programs, ["/usr/local/bin/kubectl"], [])
    place = root / "var/usrlocal/bin/kubectl"
    assert place.is_file()
    assert not place.is_symlink()


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert node_root.covered_programs([str(tmp_path / "a")]) == node_root.covered_programs([])


def test_a_process_on_a_node_is_given_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    assert node_root.environment("worker-0") == {"PATH": path, "HOME": "/root", "HOSTNAME": "worker-0"}


@pytest.mark.root
@pytest.mark.real("unshare", "nsenter", "nft")
def test_a_program_from_this_machines_own_place_is_on_the_node_at_the_same_path(tmp_path: Path) -> None:
    program = """
import sys; from dataclasses import replace; from pathlib import Path
from tests.support.labs import request, running
with running(Path(sys.argv[1]) / "lab", binaries={"kubectl": Path("/usr/local/bin/kubectl")}) as lab:
    for command in (["kubectl"], ["/usr/local/bin/kubectl"], ["umbilical", "version"]):
        print(lab.exec("master-0", command).check().text.split()[0])
"""
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho itself\n")
    (tmp_path / "kubectl").chmod(0o755)
    script = 'mount --bind "$1" /usr/local/bin && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    said = subprocess.check_output(
        [*command, tmp_path, sys.executable, program], text=True, env=environment, timeout=60
    )
    assert said.split() == ["itself", "itself", "umbilical"]
