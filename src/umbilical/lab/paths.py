"""Where a lab keeps its things: one directory, and nothing outside it."""

import os
import re
from pathlib import Path
from typing import Final

from umbilical.fault import LabError

DEFAULT_NAME: Final = "lab"
# It names a directory and cgroups.
LAB_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
LONGEST_NAME: Final = 40
STATE: Final = "state.json"
LOCK: Final = "lock"
# In the order in which `down` deletes; the state file is the last, so that what is left can still be recognised.
CONTENT: Final = ("nodes", "run", "logs", "bin", "images", "scene.json", "control.sock", "state.lock", LOCK, STATE)


class LabDirectory:
    """The names in it. Nothing is made or looked at here."""

    def __init__(self, path: Path) -> None:
        # The real path: a keeper is found by it, from whatever directory and by whatever links it is asked for.
        self.path = Path(os.path.realpath(path))

    @property
    def state_file(self) -> Path:
        return self.path / STATE

    @property
    def state_lock(self) -> Path:
        """Held for the moment in which somebody changes the state."""
        return self.path / "state.lock"

    @property
    def lock_file(self) -> Path:
        """Held by whoever makes the lab, and then by its keeper until it ends."""
        return self.path / LOCK

    @property
    def control_socket(self) -> Path:
        return self.path / "control.sock"

    @property
    def nodes(self) -> Path:
        return self.path / "nodes"

    def node_root(self, name: str) -> Path:
        """Where a node's own files lie. What it has of the machine is mounted, and seen by the node alone."""
        return self.nodes / name

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log_file(self, node: str, name: str) -> Path:
        return self.logs / node / f"{name}.log"

    @property
    def keeper_log(self) -> Path:
        return self.logs / "keeper.log"

    @property
    def bin(self) -> Path:
        """Programs that every node has in /usr/local/bin."""
        return self.path / "bin"

    @property
    def run(self) -> Path:
        """Empty for everyone but the keeper, who has a tmpfs there."""
        return self.path / "run"

    @property
    def network_namespaces(self) -> Path:
        return self.run / "netns"

    @property
    def scene_file(self) -> Path:
        return self.path / "scene.json"

    @property
    def images(self) -> Path:
        return self.path / "images"


def labs_root() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "umbilical" / "labs"


def default_directory(name: str = DEFAULT_NAME) -> Path:
    """Say where the lab of this name lies unless a directory is given.

    Raises:
        LabError: it cannot be the name of a lab.
    """
    if not LAB_NAME.fullmatch(name):
        why = "a lab's name is at most 40 small letters, digits and hyphens, no hyphen first or last"
        raise LabError("UMB810", f"{name!r} cannot be the name of a lab", why, "choose another --name")
    return labs_root() / name


def tidy_name(text: str) -> str:
    """Make a name for a lab from that of a directory, which may be any."""
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_NAME].strip("-")
    return kept or DEFAULT_NAME


def list_labs() -> list[Path]:
    """Return the directories of labs in the default place: those that are up, and what is left of others."""
    root = labs_root()
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
