"""A release directory whose definitions and feature gates are OpenShift's own, out of the module that publishes them.

What that module does not carry (images, constraints, operators) is the made-up release's.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support import hardway
from tests.support.hardway_nodes import machine_config_base
from tests.support.release_directory import release_files

import peers
from umbilical.hardway.artifacts import crds
from umbilical.hardway.artifacts.inputs import Inputs, ReleasePayload
from umbilical.hardway.artifacts.release import read_release
from umbilical.hardway.config.cluster import NodeRole

FEATURE_GATE: Final = "featureGate-"


def api_files(folder: str) -> dict[str, bytes]:
    """File name -> content of what cluster-config-api has in one of its two folders."""
    return {path.name: path.read_bytes() for path in sorted(_cached(folder).iterdir())}


def operators_files() -> dict[str, bytes]:
    """Definitions that come with the operators that own them."""
    documents = (one for module in peers.groups()["crds"] for one in module.documents)
    names = [one.name for one in documents if one.name.startswith("0000_")]
    return {name: _cached(name).read_bytes() for name in names}


def definitions() -> dict[str, bytes]:
    return {**api_files("crds"), **operators_files()}


@cache
def real_payload() -> ReleasePayload:
    made_up = {name: content for name, content in release_files().items() if not _is_replaced(name, content)}
    gates = {f"0000_50_cluster-config-api_{name}": content for name, content in api_files("featuregates").items()}
    return read_release({**made_up, **definitions(), **gates})


def real_inputs(masters: int = 3, workers: int = 2, **changes: Any) -> Inputs:
    """All that renderers are given, with that release and machine configs as its operator renders them."""
    bases = {role: machine_config_base(role) for role in (NodeRole.MASTER, NodeRole.WORKER)}
    return replace(hardway.inputs(masters=masters, workers=workers, **changes), payload=real_payload(), bases=bases)


def _is_replaced(name: str, content: bytes) -> bool:
    return FEATURE_GATE in name or crds.holds_crd(content)


def _cached(name: str) -> Path:
    path = peers.document(name)
    if path is None:
        pytest.skip(f"no {name}: run `make peers`")
    return path
