"""A small repository to be cloned over HTTP."""

import os
import subprocess
from pathlib import Path
from typing import Final

CONTENT: Final = "content\n" * 10_000


def make_bare_repository(folder: Path) -> None:
    """Leave `repository.git` with one file there, as a server of plain files can hand it out."""
    work, bare = folder / "work", folder / "repository.git"
    git("init", "-q", str(work))
    (work / "file").write_text(CONTENT)
    git("-C", str(work), "add", "file")
    git("-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(work), "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", str(work), str(bare))
    git("-C", str(bare), "update-server-info")


def git(*arguments: str, **environment: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        ["git", *arguments], env=inherited | environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
