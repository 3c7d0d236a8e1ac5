"""What the rendered tree says about its release: version, images, and the commands of the machine-config script."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.applied import dig, entries, mapping, text
from umbilical.hardway.lint.facts import Facts, Unreadable

SCRIPT: Final = f"{layout.MACHINE_CONFIG}/render.sh"
REFERENCES: Final = f"{layout.MACHINE_CONFIG}/image-references"
_WORKLOADS: Final = (("spec",), ("spec", "template", "spec"))
_POD_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


def release_version(facts: Facts) -> str:
    """The version by which the release calls itself."""
    version = text(image_references(facts), "metadata", "name")
    if not version:
        raise Unreadable(f"{REFERENCES} does not name a version")
    return version


def image_references(facts: Facts) -> dict[str, Any]:
    try:
        found = json.loads(facts.content(REFERENCES))
    except (ValueError, RecursionError):
        raise Unreadable(f"{REFERENCES} is not JSON") from None
    return found if isinstance(found, dict) else {}


def references(facts: Facts) -> Iterator[tuple[str, str]]:
    """Each tag of the release with its image."""
    for tag in entries(image_references(facts), "spec", "tags"):
        yield text(tag, "name"), text(tag, "from", "name")


def podman_commands(facts: Facts) -> list[list[str]]:
    """Commands of the script that run containers, word by word."""
    try:
        lines = facts.text(SCRIPT).replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.lstrip().startswith("podman run ")]
    except ValueError as error:
        raise Unreadable(f"{SCRIPT} cannot be read: {error}") from None


def value_of(command: list[str], flag: str) -> str:
    """What a flag of a command is set to, with = or as the next word; empty where it is not there."""
    for place, word in enumerate(command):
        if word.startswith(f"--{flag}="):
            return word.partition("=")[2]
        if word == f"--{flag}" and place + 1 < len(command):
            return command[place + 1]
    return ""


def container_images(facts: Facts) -> Iterator[tuple[str, str]]:
    """Every image that a pod names, static or applied, with the artifact that names it."""
    for folder in (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in facts.below(folder):
            if not asset.path.endswith((".yaml", ".yml")):
                continue
            for document in facts.documents(asset.path):
                yield from ((asset.path, image) for image in _images(document))


def _images(document: dict[str, Any]) -> Iterator[str]:
    # Kinds that are no workload may have a field of that name which means something else.
    if document.get("kind") not in ("Pod", "DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job"):
        return
    for path in _WORKLOADS:
        for name in _POD_LISTS:
            for one in entries(mapping(document, *path), name):
                yield str(dig(one, "image"))
