"""Nothing that is written below a root leaves it, whatever links lie there."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.rooted import MAX_LINKS, Root, parts_of

OWNER = (os.getuid(), os.getgid())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "treasure").write_text("mine")
    (tmp_path / "root").mkdir()
    return tmp_path


def write(place: Path, path: str, content: bytes = b"new", *, overwrite: bool = False, mode: int = 0o640) -> None:
    with Root(place / "root") as root:
        root.write(path, content, mode, OWNER, overwrite=overwrite)


def test_a_file_has_content_mode_and_parents(place: Path) -> None:
    write(place, "/opt/a/b.yaml", mode=0o4755)

    path = place / "root/opt/a/b.yaml"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o4755
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    assert os.listdir(path.parent) == ["b.yaml"]


def test_modes_do_not_depend_on_the_umask(place: Path) -> None:
    before = os.umask(0o077)
    try:
        write(place, "/opt/a/b.yaml", mode=0o666)
    finally:
        os.umask(before)

    assert stat.S_IMODE((place / "root/opt/a/b.yaml").stat().st_mode) == 0o666
    assert stat.S_IMODE((place / "root/opt").stat().st_mode) == 0o755


def test_what_lies_there_stays_unless_it_may_be_replaced(place: Path) -> None:
    write(place, "/a", b"old")
    with pytest.raises(LabError, match="UMB878"):
        write(place, "/a")
    assert (place / "root/a").read_bytes() == b"old"
    assert os.listdir(place / "root") == ["a"]

    write(place, "/a", overwrite=True)
    assert (place / "root/a").read_bytes() == b"new"


def test_a_whole_directory_is_replaced_by_a_file_where_that_is_asked_for(place: Path) -> None:
    write(place, "/a/b/c")
    write(place, "/a", overwrite=True)
    assert (place / "root/a").read_bytes() == b"new"


def test_links_are_followed_as_a_machine_with_this_root_would(place: Path) -> None:
    (place / "root/var/usrlocal").mkdir(parents=True)
    (place / "root/usr").mkdir()
    (place / "root/usr/local").symlink_to("../var/usrlocal")
    (place / "root/bin").symlink_to("/usr/local/bin")
    write(place, "/usr/local/bin/a")
    write(place, "/bin/b")

    assert sorted(os.listdir(place / "root/var/usrlocal/bin")) == ["a", "b"]


def test_an_absolute_link_leads_below_the_root_and_not_to_the_host(place: Path) -> None:
    (place / "root/link").symlink_to(place / "outside")
    write(place, "/link/treasure")

    assert (place / "outside/treasure").read_text() == "mine"
    assert (place / f"root{place}/outside/treasure").read_bytes() == b"new"


@pytest.mark.parametrize("target", ["../outside", "../../../../../../../../etc", "a/../../outside"])
def test_a_link_that_climbs_above_the_root_is_refused(place: Path, target: str) -> None:
    (place / "root/a").mkdir()
    (place / "root/link").symlink_to(target)
    with pytest.raises(LabError, match="UMB877") as caught:
        write(place, "/link/treasure", overwrite=True)
    assert "climbs above the root" in caught.value.why
    assert (place / "outside/treasure").read_text() == "mine"


def test_links_that_lead_to_each_other_are_refused(place: Path) -> None:
    (place / "root/a").symlink_to("b")
    (place / "root/b").symlink_to("a")
    with pytest.raises(LabError, match=f"more than {MAX_LINKS} links"):
        write(place, "/a/c")


def test_a_file_on_the_way_is_refused(place: Path) -> None:
    write(place, "/a")
    with pytest.raises(LabError, match="a on the way is no directory"):
        write(place, "/a/b")


def test_a_link_in_the_last_place_is_replaced_and_never_written_through(place: Path) -> None:
    (place / "root/a").symlink_to(place / "outside/treasure")
    with pytest.raises(LabError, match="UMB878"):
        write(place, "/a")
    with Root(place / "root") as root, pytest.raises(LabError, match="UMB878"):
        root.append("/a", b"more", None, OWNER)
    write(place, "/a", overwrite=True)

    assert (place / "outside/treasure").read_text() == "mine"
    assert (place / "root/a").read_bytes() == b"new"


def test_removing_a_directory_does_not_follow_links_in_it(place: Path) -> None:
    (place / "root/a").mkdir()
    (place / "root/a/link").symlink_to(place / "outside")
    write(place, "/a", overwrite=True)
    assert (place / "outside/treasure").read_text() == "mine"


@pytest.mark.parametrize("path", ["", "/", "a", "/a/../b", "/..", "/a/./b", "//a", "/a//b", "/a/", "/a\0b", "/\ud800"])
def test_a_path_that_is_none_is_refused_before_anything_is_made(place: Path, path: str) -> None:
    with pytest.raises(LabError, match="UMB877"):
        write(place, path)
    assert os.listdir(place / "root") == []


def test_appending_keeps_the_mode_or_sets_it(place: Path) -> None:
    write(place, "/etc/motd", b"one\n", mode=0o600)
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


def test_a_hard_link_to_a_link_does_not_reach_what_that_names(place: Path) -> None:
    (place / "root/link").symlink_to(place / "outside/treasure")
    with Root(place / "root") as root:
        root.hard_link("/hard", "/link", overwrite=False)
    assert (place / "root/hard").is_symlink()
    assert (place / "outside/treasure").stat().st_nlink == 1


def test_reading_stays_inside_too(place: Path) -> None:
    (place / "root/link").symlink_to(place / "outside/treasure")
    os.mkfifo(place / "root/pipe")
    write(place, "/a", b"12345")
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
            write(place, path, overwrite=True)
        except LabError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_parts_are_those_of_the_path() -> None:
    assert parts_of("/usr/local/bin") == ["usr", "local", "bin"]
