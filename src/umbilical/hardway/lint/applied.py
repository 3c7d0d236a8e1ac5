"""Applied objects in order, and the release's version, images and commands.

Values may have any type: accessors return empty values for missing or wrong ones.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.lint.facts import LintFacts, Unreadable


def dig(value: Any, *path: str | int) -> Any:
    """Follow keys and indexes; None if one is missing."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def mapping(value: Any, *path: str | int) -> dict[str, Any]:
    found = dig(value, *path)
    return found if isinstance(found, dict) else {}


def entries(value: Any, *path: str | int) -> list[Any]:
    found = dig(value, *path)
    return found if isinstance(found, list) else []


def text(value: Any, *path: str | int) -> str:
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


@dataclass(frozen=True)
class AppliedObject:
    place: int
    """Position in the order of application."""
    path: str
    value: Mapping[str, Any] = field(repr=False)

    @property
    def group(self) -> str:
        return text(self.value, "apiVersion").rpartition("/")[0]

    @property
    def version(self) -> str:
        return text(self.value, "apiVersion").rpartition("/")[2]

    @property
    def kind(self) -> str:
        return text(self.value, "kind")

    @property
    def namespace(self) -> str:
        return text(self.value, "metadata", "namespace")

    @property
    def name(self) -> str:
        return text(self.value, "metadata", "name")

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.group, self.kind, self.namespace, self.name

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


def applied(facts: LintFacts) -> list[AppliedObject]:
    return [AppliedObject(place, path, value) for place, (path, value) in enumerate(facts.manifests)]


def find(facts: LintFacts, kind: str, name: str, namespace: str = "", group: str = "") -> AppliedObject | None:
    key = (group, kind, namespace, name)
    return next((one for one in applied(facts) if one.key == key), None)


def need(facts: LintFacts, kind: str, name: str, namespace: str = "", group: str = "") -> AppliedObject:
    """Return an object. Raises Unreadable: no manifest has it."""
    found = find(facts, kind, name, namespace, group)
    if found is None:
        where = f"{namespace}/" if namespace else ""
        raise Unreadable(f"no manifest has {kind} {where}{name}{f' ({group})' if group else ''}")
    return found


SCRIPT: Final = f"{layout.MACHINE_CONFIG}/render.sh"
REFERENCES: Final = f"{layout.MACHINE_CONFIG}/image-references"
_WORKLOADS: Final = (("spec",), ("spec", "template", "spec"))
_POD_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


def release_version(facts: LintFacts) -> str:
    """Return the release's own version."""
    version = text(image_references(facts), "metadata", "name")
    if not version:
        raise Unreadable(f"{REFERENCES} has no version")
    return version


def image_references(facts: LintFacts) -> dict[str, Any]:
    try:
        found = json.loads(facts.content(REFERENCES))
    except (ValueError, RecursionError):
        raise Unreadable(f"{REFERENCES} is not JSON") from None
    return found if isinstance(found, dict) else {}


def references(facts: LintFacts) -> Iterator[tuple[str, str]]:
    for tag in entries(image_references(facts), "spec", "tags"):
        yield text(tag, "name"), text(tag, "from", "name")


def podman_commands(facts: LintFacts) -> list[list[str]]:
    """Return the `podman run` commands of the script as lists of words."""
    try:
        lines = facts.text(SCRIPT).replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.lstrip().startswith("podman run ")]
    except ValueError as error:
        raise Unreadable(f"{SCRIPT} is not a valid script: {error}") from None


def value_of(command: list[str], flag: str) -> str:
    """Return a flag's value, after = or as the next word; empty if the flag is missing."""
    for place, word in enumerate(command):
        if word.startswith(f"--{flag}="):
            return word.partition("=")[2]
        if word == f"--{flag}" and place + 1 < len(command):
            return command[place + 1]
    return ""


def container_images(facts: LintFacts) -> Iterator[tuple[str, str]]:
    """List every image of static pods and applied workloads, with its artifact."""
    for folder in (layout.MANIFESTS, layout.STATIC_PODS, layout.LATE_STATIC_PODS):
        for asset in facts.below(folder):
            if not asset.path.endswith((".yaml", ".yml")):
                continue
            for document in facts.documents(asset.path):
                yield from ((asset.path, image) for image in _images(document))


def _images(document: dict[str, Any]) -> Iterator[str]:
    # Other kinds may have a field `image` with another meaning.
    if document.get("kind") not in ("Pod", "DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job"):
        return
    for path in _WORKLOADS:
        for name in _POD_LISTS:
            for one in entries(mapping(document, *path), name):
                yield str(dig(one, "image"))
