"""Ignition's own validator on the config of every node."""

from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.judges.bench import Bench

PROGRAM: Final = "ignition-validate"


def ignition_faults(bench: Bench) -> list[str]:
    return [fault for node in bench.facts.cluster.nodes for fault in _faults(bench, node)]


def _faults(bench: Bench, node: Node) -> list[str]:
    path = layout.ignition(node)
    if path not in bench.facts.assets:
        return [f"{path} is missing"]
    said = bench.run(PROGRAM, bench.file(path))
    return [] if said.status == 0 else [f"{path}: {' | '.join(said.lines) or f'it ended with {said.status}'}"]
