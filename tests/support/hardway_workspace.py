"""Directories of clusters for tests, as users have them; their keys are drawn quickly."""

from pathlib import Path
from typing import Any

from tests.support import hardway, hardway_config, release_directory
from tests.support.hardway_nodes import machine_config_base

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.machine_config import RENDERED, WORK
from umbilical.hardway.config.cluster import NodeRole


def make_directory(folder: Path, profile: str = "kubernetes", *, release: bool = True, **changes: Any) -> Path:
    """Write cluster.yaml, and for OpenShift a pull secret and an extracted release."""
    sizes = {"nodes__masters__count": 1, "nodes__workers__count": 1, "certificates__keyType": "ecdsa-p256"}
    folder.mkdir(parents=True, exist_ok=True)
    if profile == "openshift":
        sizes["release__directory"] = "release"
        (folder / "pull-secret.json").write_bytes(hardway.PULL_SECRET)
        if release:
            write_release(folder / "release")
    (folder / "cluster.yaml").write_bytes(hardway_config.content(profile, **{**sizes, **changes}))
    return folder


def write_release(folder: Path) -> None:
    folder.mkdir()
    for name, content in release_directory.release_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_machine_configs(folder: Path) -> None:
    """Leave what the containers of stage 04 render."""
    place = folder / "artifacts" / layout.MACHINE_CONFIG / WORK / RENDERED
    place.mkdir(parents=True)
    for role in (NodeRole.MASTER, NodeRole.WORKER):
        base = machine_config_base(role)
        (place / f"{base.name}.yaml").write_bytes(base.machine_config)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its mode, hidden ones included."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o7777) for path in files}
