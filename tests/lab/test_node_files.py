"""A node's files from outside: found as the node would find them, and never outside its root."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from umbilical.lab import node_files

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


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", ""),
        ("/a/new", "a/new"),
        ("relative", "relative"),
        ("/link/x", "a/b/x"),
        ("/a/up/outside", "outside"),
        ("/abs/b", "a/b"),
        ("/../../outside", "outside"),
        ("/usr/local/bin/x", "var/usrlocal/bin/x"),
        ("/usr/local/lib", "usr/local/lib"),
    ],
)
def test_links_are_followed_as_the_node_would(root: Path, path: str, place: str) -> None:
    assert node_files.locate(root, path) == root / place


def test_links_in_a_circle_are_refused(root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(OSError, match="too many links"):
        node_files.read(root, "/one")


def test_writing_makes_parents_that_everyone_may_enter(root: Path) -> None:
    old = os.umask(0o077)
    try:
        node_files.write(root, "/etc/kubernetes/manifests/etcd.yaml", b"content")
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "etc/kubernetes/manifests").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "etc/kubernetes/manifests/etcd.yaml").stat().st_mode) == 0o600
    node_files.write(root, "/etc/kubernetes/manifests/etcd.yaml", b"changed", 0o644)
    assert node_files.read(root, "/etc/kubernetes/manifests/etcd.yaml") == b"changed"


def test_removing_takes_a_link_and_not_what_it_names(root: Path) -> None:
    (root / "a" / "file").write_text("")
    node_files.remove(root, "/link")
    assert not (root / "link").is_symlink()
    assert node_files.exists(root, "/a/file")
    node_files.remove(root, "/abs/file")
    assert not node_files.exists(root, "/a/file")
    node_files.remove(root, "/a")
    node_files.remove(root, "/a")
    assert not node_files.exists(root, "/a")


@pytest.mark.parametrize("path", ["/", "", "//", "/a/..", "/..", "/a/../..", "."])
def test_the_root_itself_and_what_is_above_cannot_be_removed(root: Path, path: str) -> None:
    with pytest.raises(ValueError, match="no name that can be removed"):
        node_files.remove(root, path)
    assert (root.parent / "outside").exists()
