"""A node's root: what it is made of, and that nothing from outside writes or reads beyond it."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from umbilical.fault import LabError
from umbilical.lab import node_root
from umbilical.lab import node_root as node_files
from umbilical.lab.rooted import MAX_LINKS, Root, parts_of


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


def test_a_root_has_its_own_files_and_programs_and_this_machines_links(tmp_path: Path, programs: Path) -> None:
    root = built(tmp_path, programs, [])
    assert (root / "etc/hostname").read_text() == "master-0\n"
    assert (root / "etc/hosts").read_text() == "127.0.0.1 localhost\n"
    assert (root / "etc/resolv.conf").read_text() == ""
    assert (root / "etc/host.conf").read_text() == "multi on\n"
    assert len((root / "etc/machine-id").read_text()) == 33
    assert (root / "etc/passwd").read_text() == Path("/etc/passwd").read_text()
    for place in filter(os.path.lexists, node_root.SYSTEM):
        assert (root / place[1:]).is_symlink() == os.path.islink(place)
    store = root / "var/usrlocal/bin"
    assert os.access(store / "umbilical", os.X_OK)
    assert (store / "kubectl").readlink() == Path("/opt/kubectl")


def test_a_root_can_be_entered_by_everyone_whatever_the_umask(tmp_path: Path, programs: Path) -> None:
    old = os.umask(0o077)
    try:
        root = built(tmp_path, programs, ["/opt/somewhere/deep"])
    finally:
        os.umask(old)
    for path in (".", "etc", "var/lib", "opt/somewhere", "opt/somewhere/deep", "var/usrlocal/bin"):
        assert stat.S_IMODE((root / path).stat().st_mode) == 0o755, path
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777


def test_this_python_and_the_given_programs_are_shared_once_and_never_all_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "etcd").touch()
    (tmp_path / "link").symlink_to("real")
    shared = node_root.shared_directories([str(tmp_path / "link" / "etcd")])
    assert {str(tmp_path / "link"), str(tmp_path / "real")} <= set(shared)
    for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))):
        assert any(Path(path).is_relative_to(outer) for outer in (*shared, *node_root.SYSTEM))
    (tmp_path / "inner").mkdir()
    binaries = [str(tmp_path / "inner" / "a"), str(tmp_path / "b"), "/usr/bin/c", "/d", "/bin/e"]
    shared = node_root.shared_directories(binaries)
    assert str(tmp_path) in shared
    assert not {"/", "/usr/bin", "/bin", str(tmp_path / "inner")} & set(shared)


def test_programs_in_this_machines_own_place_are_told_apart_and_kept_a_place(tmp_path: Path, programs: Path) -> None:
    (tmp_path / "link").symlink_to("/usr/local/bin/kubectl")
    binaries = ["/usr/local/bin/etcd", str(tmp_path / "link"), "/usr/bin/nft"]
    covered = node_root.covered_programs(binaries)
    assert covered[-2:] == ["/usr/local/bin/etcd", "/usr/local/bin/kubectl"]
    root = tmp_path / "root"
    node_root.build(root, "master-0", "", programs, ["/usr/local/bin/kubectl"], [])
    place = root / "var/usrlocal/bin/kubectl"
    assert place.is_file()
    assert not place.is_symlink()
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


NAMES = st.sampled_from(["a", "b", "link", "up", "abs", "..", ".", "usr", "local", "bin", ""])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to("a/b")
    (root / "a" / "up").symlink_to("../../../../..")
    (root / "abs").symlink_to("/a")
    (tmp_path / "outside").write_text("not the node's")
    return root


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(NAMES, max_size=8))
def test_no_path_leads_out_of_the_root(root: Path, parts: list[str]) -> None:
    place = node_files.locate(root, "/" + "/".join(parts))
    assert Path(os.path.realpath(place)).is_relative_to(root)
    assert place.is_relative_to(root)


def test_links_are_followed_as_the_node_would(root: Path) -> None:
    places = {
        "/": "",
        "/a/new": "a/new",
        "relative": "relative",
        "/link/x": "a/b/x",
        "/a/up/outside": "outside",
        "/abs/b": "a/b",
        "/../../outside": "outside",
        "/usr/local/bin/x": "var/usrlocal/bin/x",
        "/usr/local/lib": "usr/local/lib",
    }
    assert {path: node_files.locate(root, path) for path in places} == {path: root / at for path, at in places.items()}
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(OSError, match="too many links"):
        node_files.read(root, "/one")


def test_writing_makes_parents_and_removing_takes_a_link_and_not_what_it_names(root: Path) -> None:
    old = os.umask(0o077)
    try:
        node_files.write(root, "/etc/kubernetes/manifests/etcd.yaml", b"content")
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "etc/kubernetes/manifests").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "etc/kubernetes/manifests/etcd.yaml").stat().st_mode) == 0o600
    node_files.write(root, "/etc/kubernetes/manifests/etcd.yaml", b"changed", 0o644)
    assert node_files.read(root, "/etc/kubernetes/manifests/etcd.yaml") == b"changed"
    (root / "a" / "file").write_text("")
    node_files.remove(root, "/link")
    assert not (root / "link").is_symlink()
    assert node_files.exists(root, "/a/file")
    node_files.remove(root, "/abs/file")
    assert not node_files.exists(root, "/a/file")
    node_files.remove(root, "/a")
    node_files.remove(root, "/a")
    assert not node_files.exists(root, "/a")


def test_the_root_itself_and_what_is_above_cannot_be_removed(root: Path) -> None:
    for path in ("/", "", "//", "/a/..", "/..", "/a/../..", "."):
        with pytest.raises(ValueError, match="not a path that can be removed"):
            node_files.remove(root, path)
    assert (root.parent / "outside").exists()


OWNER = (os.getuid(), os.getgid())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "treasure").write_text("mine")
    (tmp_path / "root").mkdir()
    return tmp_path


def put(place: Path, path: str, content: bytes = b"new", *, overwrite: bool = False, mode: int = 0o640) -> None:
    with Root(place / "root") as root:
        root.write(path, content, mode, OWNER, overwrite=overwrite)


def test_a_file_has_content_mode_and_parents_whatever_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        put(place, "/opt/a/b.yaml", mode=0o4777)
    finally:
        os.umask(before)
    path = place / "root/opt/a/b.yaml"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o4777
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    assert os.listdir(path.parent) == ["b.yaml"]


def test_what_lies_there_stays_unless_it_may_be_replaced(place: Path) -> None:
    put(place, "/a", b"old")
    with pytest.raises(LabError, match="UMB878"):
        put(place, "/a")
    assert (place / "root/a").read_bytes() == b"old"
    assert os.listdir(place / "root") == ["a"]
    put(place, "/a", overwrite=True)
    assert (place / "root/a").read_bytes() == b"new"
    put(place, "/b/c/d")
    put(place, "/b", overwrite=True)
    assert (place / "root/b").read_bytes() == b"new"


def test_links_lead_below_the_root_and_not_to_the_host(place: Path) -> None:
    (place / "root/var/usrlocal").mkdir(parents=True)
    (place / "root/usr").mkdir()
    (place / "root/usr/local").symlink_to("../var/usrlocal")
    (place / "root/bin").symlink_to("/usr/local/bin")
    put(place, "/usr/local/bin/a")
    put(place, "/bin/b")
    assert sorted(os.listdir(place / "root/var/usrlocal/bin")) == ["a", "b"]
    (place / "root/link").symlink_to(place / "outside")
    put(place, "/link/treasure")
    assert (place / "outside/treasure").read_text() == "mine"
    assert (place / f"root{place}/outside/treasure").read_bytes() == b"new"


@pytest.mark.parametrize("target", ["../outside", "../../../../../../../../etc", "a/../../outside"])
def test_a_link_that_climbs_above_the_root_is_refused(place: Path, target: str) -> None:
    (place / "root/a").mkdir()
    (place / "root/link").symlink_to(target)
    with pytest.raises(LabError, match=r"(?s)UMB877.*why: .*leads above the root"):
        put(place, "/link/treasure", overwrite=True)
    assert (place / "outside/treasure").read_text() == "mine"


def test_links_to_each_other_and_a_file_on_the_way_are_refused(place: Path) -> None:
    (place / "root/a").symlink_to("b")
    (place / "root/b").symlink_to("a")
    with pytest.raises(LabError, match=f"more than {MAX_LINKS} links"):
        put(place, "/a/c")
    put(place, "/file")
    with pytest.raises(LabError, match="file in the path is not a directory"):
        put(place, "/file/b")


def test_links_in_the_last_place_or_in_a_directory_are_never_followed(place: Path) -> None:
    (place / "root/a").symlink_to(place / "outside/treasure")
    with pytest.raises(LabError, match="UMB878"):
        put(place, "/a")
    with Root(place / "root") as root, pytest.raises(LabError, match="UMB878"):
        root.append("/a", b"more", None, OWNER)
    put(place, "/a", overwrite=True)
    assert (place / "outside/treasure").read_text() == "mine"
    assert (place / "root/a").read_bytes() == b"new"
    (place / "root/link").symlink_to(place / "outside/treasure")
    with Root(place / "root") as root:
        root.hard_link("/hard", "/link", overwrite=False)
    assert (place / "root/hard").is_symlink()
    assert (place / "outside/treasure").stat().st_nlink == 1
    (place / "root/folder").mkdir()
    (place / "root/folder/link").symlink_to(place / "outside")
    put(place, "/folder", overwrite=True)
    assert (place / "outside/treasure").read_text() == "mine"


def test_a_path_that_is_none_is_refused_before_anything_is_made(place: Path) -> None:
    for path in ("", "/", "a", "/a/../b", "/..", "/a/./b", "//a", "/a//b", "/a/", "/a\0b", "/\ud800"):
        with pytest.raises(LabError, match="UMB877"):
            put(place, path)
    assert os.listdir(place / "root") == []
    assert parts_of("/usr/local/bin") == ["usr", "local", "bin"]


def test_appending_keeps_the_mode_or_sets_it(place: Path) -> None:
    put(place, "/etc/motd", b"one\n", mode=0o600)
    with Root(place / "root") as root:
        root.append("/etc/motd", b"two\n", None, OWNER)
        root.append("/etc/new", b"first\n", None, OWNER)
        root.append("/etc/mode", b"", 0o400, OWNER)

    etc = place / "root/etc"
    assert (etc / "motd").read_text() == "one\ntwo\n"
    assert stat.S_IMODE((etc / "motd").stat().st_mode) == 0o600
    assert stat.S_IMODE((etc / "new").stat().st_mode) == 0o644
    assert stat.S_IMODE((etc / "mode").stat().st_mode) == 0o400


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_nothing_but_a_file_can_be_appended_to(place: Path, make: Callable[[Path], None]) -> None:
    make(place / "root/a")
    with Root(place / "root") as root, pytest.raises(LabError, match="UMB878"):
        root.append("/a", b"x", None, OWNER)


def test_a_directory_is_made_or_kept_and_emptied_on_request(place: Path) -> None:
    with Root(place / "root") as root:
        root.make_directory("/a/b", 0o700, OWNER, overwrite=False)
        root.write("/a/b/c", b"x", 0o600, OWNER, overwrite=False)
        root.make_directory("/a/b", 0o1777, OWNER, overwrite=False)
        assert stat.S_IMODE((place / "root/a/b").stat().st_mode) == 0o1777
        assert (place / "root/a/b/c").exists()
        root.make_directory("/a/b", 0o755, OWNER, overwrite=True)
        assert os.listdir(place / "root/a/b") == []
        root.write("/file", b"x", 0o600, OWNER, overwrite=False)
        with pytest.raises(LabError, match="UMB878"):
            root.make_directory("/file", 0o755, OWNER, overwrite=False)


def test_links_are_made_and_replaced(place: Path) -> None:
    with Root(place / "root") as root:
        root.write("/a", b"x", 0o600, OWNER, overwrite=False)
        root.symlink("/soft", "/nowhere/../else", OWNER, overwrite=False)
        root.hard_link("/hard", "/a", overwrite=False)
        for make in (
            lambda: root.symlink("/a", "b", OWNER, overwrite=False),
            lambda: root.hard_link("/soft", "/a", overwrite=False),
        ):
            with pytest.raises(LabError, match="UMB878"):
                make()
        root.symlink("/soft", "a", OWNER, overwrite=True)

    assert os.readlink(place / "root/soft") == "a"
    assert (place / "root/hard").stat().st_ino == (place / "root/a").stat().st_ino


def test_reading_stays_inside_too(place: Path) -> None:
    (place / "root/link").symlink_to(place / "outside/treasure")
    os.mkfifo(place / "root/pipe")
    put(place, "/a", b"12345")
    with Root(place / "root") as root:
        assert root.read("/a", 3) == b"123"
        assert root.read("/link", 10) is None
        assert root.read("/pipe", 10) is None
        assert root.read("/missing/a", 10) is None
    assert sorted(os.listdir(place / "root")) == ["a", "link", "pipe"]


def test_an_owner_that_cannot_be_is_told_and_not_fatal(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with Root(place / "root") as root:
        assert root.write("/a", b"x", 0o600, (1, 1), overwrite=False) is False
    assert (place / "root/a").read_bytes() == b"x"


def test_no_descriptor_is_left_open(place: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("/a/b/c", "/a/b", "/../x", "/a/b/c/d"):
        try:
            put(place, path, overwrite=True)
        except LabError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before
