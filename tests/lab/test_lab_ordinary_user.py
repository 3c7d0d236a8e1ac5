"""A whole lab by somebody who is not root: nothing of his is root's, and root's lab is not his."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.labs import machine_picture, processes_naming, running

USER = 61234
NODES = ("--masters", "1", "--workers", "0")
pytestmark = [
    pytest.mark.usefixtures("own_machine"),
    pytest.mark.root,
    pytest.mark.real("unshare", "nsenter", "setpriv", "ip", "nft"),
]


@functools.cache
def python() -> str | None:
    """Find a Python that others may run too: root's own often lies in its home, which is closed to them."""
    candidates = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
    return next((path for path in candidates if _as_user(path, "-c", "import umbilical.lab.lab").returncode == 0), None)


def _as_user(program: str, *words: str, home: Path = Path("/")) -> "subprocess.CompletedProcess[str]":
    become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all"]
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # By a shell: setpriv itself still has root's power over files when it looks for the program.
    command = [*become, "--", "/bin/sh", "-c", 'exec "$@"', "sh", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment, check=False, cwd="/")


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if python() is None:
        pytest.skip("no Python here that another user may run")
    folder = tmp_path_factory.mktemp("user")
    # Pytest closes the directories above to others.
    closed = [path for path in folder.parents if not path.stat().st_mode & 0o001]
    for path in closed:
        path.chmod(0o711)
    os.chown(folder, USER, USER)
    yield folder
    for path in closed:
        path.chmod(0o700)


def umbilical(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    program = python()
    assert program is not None
    return _as_user(program, "-P", "-m", "umbilical", *words, home=home)


def test_a_lab_lives_and_ends_without_root(home: Path) -> None:
    before = machine_picture()
    up = umbilical(home, "lab", "up", *NODES)
    assert up.returncode == 0, up.stderr
    place = home / ".local/state/umbilical/labs/lab"
    assert "2 nodes on 10.91.0.0/24, without root, in a user namespace" in up.stdout
    assert {path.stat().st_uid for path in place.rglob("*") if not path.is_symlink()} == {USER}
    inside = umbilical(home, "lab", "shell", "master-0", "--", "sh", "-c", "id -u; hostname; nft list tables; exit 3")
    assert (inside.returncode, inside.stdout.splitlines()[:2]) == (3, ["0", "master-0"]), inside.stderr
    assert "lab: up, without root" in umbilical(home, "lab", "status").stdout
    # Files that the node closed to their owner go with the lab all the same.
    make = "mkdir -p /opt/a/b/c /opt/d; touch /opt/a/b/c/e; ln -s / /opt/d/link"
    close = f"{make}; chmod -R 0 /opt/d; chmod 0 /opt/a/b /opt/a"
    assert umbilical(home, "lab", "shell", "master-0", "--", "sh", "-c", close).returncode == 0
    assert machine_picture() == before
    down = umbilical(home, "lab", "down")
    assert (down.returncode, down.stdout, down.stderr) == (0, f"{place} removed\n", "")
    assert not place.exists()
    assert processes_naming(place) == []
    assert machine_picture() == before


def test_what_is_not_ours_in_a_lab_is_told_when_it_cannot_be_removed(home: Path) -> None:
    place = home / "lab"
    (place / "nodes" / "roots").mkdir(parents=True)
    (place / "nodes" / "roots" / "file").touch()
    (place / "state.json").touch()
    os.chown(place, USER, USER)
    refused = umbilical(home, "lab", "down", "--dir", str(place))
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (4, f"UMB813 {place} was not removed completely")
    assert (place / "state.json").exists()


def test_the_lab_of_somebody_else_is_closed(home: Path) -> None:
    with running(home / "roots") as lab:
        for command in (["status"], ["down"], ["shell", "bootstrap"], ["up", *NODES]):
            refused = umbilical(home, "lab", *command, "--dir", str(lab.directory.path))
            assert refused.returncode == 4
            assert refused.stderr.splitlines()[-3].startswith(("UMB813 ", "UMB815 ")), refused.stderr
        assert lab.exec("master-0", ["hostname"]).text == "master-0\n"
