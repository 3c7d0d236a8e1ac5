"""FeatureGate `cluster`, with the status that every operator looks for: which gates hold for the version it runs in."""

import re
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.hardway.artifacts.inputs import Inputs, Payload
from umbilical.hardway.artifacts.manifests.objects import head
from umbilical.manifests.objects import Object, manifest

FILE: Final = re.compile(r"(?:.*[_/])?featureGate-(?:([0-9]+)(?:-([0-9]+))?-)?SelfManagedHA-Default\.yaml")
"""Newer releases say for which major versions a file is: `featureGate-4-10-...` for 4 to 10, `featureGate-11-...`."""
CONFIG_API: Final = "config.openshift.io/v1"


def feature_gate(inputs: Inputs) -> list[Object]:
    """Make the object as the release's own render step would.

    Raises:
        RenderError: UMB719, the release does not say which gates there are.
    """
    gates = _release_gates(inputs.payload)
    entry = {"version": inputs.payload.version, "enabled": gates["enabled"], "disabled": gates["disabled"]}
    annotations = {"include.release.openshift.io/self-managed-high-availability": "true"}
    return [
        manifest(
            CONFIG_API,
            "FeatureGate",
            head("cluster", annotations=annotations),
            spec={"featureSet": ""},
            status={"featureGates": [entry]},
        )
    ]


def is_for(name: str, major: int) -> bool:
    """Say whether a file of this name has the gates of self-managed clusters of this major version."""
    found = FILE.fullmatch(name)
    if found is None or found[1] is None:
        return found is not None
    return int(found[1]) <= major <= int(found[2] or found[1])


def _release_gates(payload: Payload) -> dict[str, list[Object]]:
    major = int(payload.version.partition(".")[0])
    files = [name for name in sorted(payload.manifests) if is_for(name, major)]
    if len(files) != 1:
        raise _unusable(f"{len(files)} files for {major}.x are called like featureGate-SelfManagedHA-Default.yaml")
    try:
        value = yaml.safe_load(payload.manifests[files[0]])
        (entry,) = value["status"]["featureGates"]
        return {
            name: sorted(map(_gate, entry[name]), key=lambda gate: gate["name"]) for name in ("enabled", "disabled")
        }
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, TypeError):
        raise _unusable(f"{files[0]} has no status with one list of gates") from None


def _gate(value: Any) -> dict[str, str]:
    if not isinstance(value["name"], str):
        raise ValueError("a gate's name is no text")
    return {"name": value["name"]}


def _unusable(why: str) -> RenderError:
    remedy = "extract the release again: umbilical explain 04"
    return RenderError("UMB719", "nobody says which feature gates the release has", why, remedy)
