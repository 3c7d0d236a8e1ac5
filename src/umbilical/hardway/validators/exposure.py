"""Finds secret files of a cluster's directory that git does not ignore, by `git check-ignore`."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.ledger import RECORD
from umbilical.hardway.undoing import ARTIFACTS
from umbilical.hardway.workspace import IDENTITY_FILE as IDENTITY
from umbilical.manifests.tree import SECRET_MODE, Asset

SECONDS: Final = 60.0
_NOTHING_IGNORED: Final = 1


def exposed(folder: Path, cluster: Cluster, assets: Mapping[str, Asset]) -> tuple[str, ...]:
    """List the secret files, existing or planned, that are inside a git work tree and not ignored."""
    if not _is_work_tree(folder):
        return ()
    wanted = sorted(secret_files(cluster, assets))
    hidden = _ignored(folder, wanted)
    return tuple(path for path in wanted if path not in hidden)


def secret_files(cluster: Cluster, assets: Mapping[str, Asset]) -> set[str]:
    """List the secret files, relative to cluster.yaml."""
    found = {f"{ARTIFACTS}/{path}" for path, asset in assets.items() if asset.mode == SECRET_MODE}
    # The record also holds a kubeconfig.
    found |= {f"{RECORD}/{IDENTITY}", f"{RECORD}/admin.kubeconfig"}
    inside = (cluster.access.pull_secret_file, cluster.access.ssh_key_file)
    return found | {path for path in inside if path and not Path(path).is_absolute() and ".." not in Path(path).parts}


def _is_work_tree(folder: Path) -> bool:
    """Tell whether the directory is inside a git work tree; git itself may be missing."""
    places = folder.resolve()
    return any((place / ".git").exists() for place in (places, *places.parents))


def _ignored(folder: Path, paths: Iterable[str]) -> set[str]:
    """Return the paths that git ignores. A tracked file is never ignored, whatever the rules are."""
    names = b"".join(path.encode() + b"\0" for path in paths)
    command = ["git", "-C", str(folder), "check-ignore", "--stdin", "-z"]
    try:
        done = subprocess.run(command, input=names, capture_output=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        return set()
    if done.returncode > _NOTHING_IGNORED:
        return set()
    return {name.decode() for name in done.stdout.split(b"\0") if name}
