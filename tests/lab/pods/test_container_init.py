"""The way to a place inside a root never leads out of it; what cannot be carried out is told of."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.pods.container_init import NOT_STARTED, lay, place_in
from umbilical.lab.pods.container_plan import ContainerPlan, Part, Piece


def complaint(content: bytes) -> tuple[int, str]:
    """Run the program with a plan that it cannot carry out."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            done = subprocess.run(
                [sys.executable, "-m", "umbilical.lab.pods.container_init", str(theirs.fileno())],
                input=content,
                pass_fds=(theirs.fileno(),),
                capture_output=True,
                timeout=60,
                check=False,
            )
        messages = list(iter(lambda: ours.recv(4096), b""))
    return done.returncode, messages[-1].decode()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"not json"])
def test_a_plan_that_cannot_be_read_is_told_of(content: bytes) -> None:
    code, why = complaint(content)
    assert code == NOT_STARTED
    assert why


@pytest.mark.root
def test_a_mount_that_is_refused_is_told_of_by_name(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    pieces = (Piece(Part.BIND, "/data", str(tmp_path / "missing")),)
    code, why = complaint(ContainerPlan(str(tmp_path / "root"), "test", pieces, ("true",)).to_json())
    assert code == NOT_STARTED
    assert "missing" in why
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.root
def test_a_command_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    pieces = (
        Piece(Part.MEMORY, "/dev"),
        Piece(Part.BIND, "/dev/null", "/dev/null"),
        Piece(Part.BIND, "/proc", "/proc"),
    )
    code, why = complaint(ContainerPlan(str(tmp_path), "test", pieces, ("no-such-program",)).to_json())
    assert code == NOT_STARTED
    assert "No such file" in why


def test_pieces_are_laid_with_their_modes(tmp_path: Path) -> None:
    lay(tmp_path, Piece(Part.DIRECTORY, "/tmp", mode=0o1777))
    lay(tmp_path, Piece(Part.FILE, "/usr/local/bin/x", "#!/bin/sh\n", 0o755))
    lay(tmp_path, Piece(Part.LINK, "/bin", "usr/local/bin"))
    assert (tmp_path / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "bin/x").read_text() == "#!/bin/sh\n"
    assert os.access(tmp_path / "bin/x", os.X_OK)


def test_links_are_followed_inside(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "abs").symlink_to("/usr/lib")
    (tmp_path / "out").symlink_to("../../../../etc")
    assert place_in(tmp_path, "/lib/x") == tmp_path / "usr/lib/x"
    assert place_in(tmp_path, "/abs/x") == tmp_path / "usr/lib/x"
    assert place_in(tmp_path, "/out/passwd") == tmp_path / "etc/passwd"


def test_links_that_go_round_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"):
        place_in(tmp_path, "/a/x")


STEPS = st.sampled_from(["a", "b", "..", ".", "", "link", "up", "root"])


@given(st.lists(STEPS, max_size=8))
def test_no_path_leads_out_of_the_root(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    root = tmp_path_factory.mktemp("root") / "r"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "link").symlink_to("../../..")
    (root / "link").symlink_to("a/../..")
    (root / "up").symlink_to("/../..")
    (root / "a" / "root").symlink_to("/")
    place = place_in(root, "/" + "/".join(steps))
    assert place == root or root in place.parents
    assert ".." not in place.parts
