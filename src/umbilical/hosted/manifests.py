"""Rendered files back as objects, in the order in which they are applied."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from umbilical.cluster.apply import Document, read_document
from umbilical.fault import HostedError

_SUFFIXES: Final = (".yaml", ".yml", ".json")
# Whom others lean on comes first: a pod must not start before its rights, keys and settings are there.
_ORDER: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "Service",
    "Endpoints",
    "EndpointSlice",
    "NetworkPolicy",
    "Route",
    "PodDisruptionBudget",
    "Deployment",
    "DaemonSet",
    "StatefulSet",
    "Pod",
)
_NO_OBJECT: Final = frozenset({"Kustomization", "Component"})
"""Kinds that kustomize reads and no API serves."""


def read_manifests(folder: Path) -> list[Document]:
    """Read every object in a cluster's directory, in the order in which they are to be applied.

    Raises:
        HostedError: there is none, a file cannot be read, or holds something else.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
        found = [document for path in files for document in _read(path)]
    except OSError as error:
        why = error.strerror or str(error)
        raise HostedError("UMB565", f"cannot read {error.filename or folder}", why, f"ls -lR {folder}") from None
    if not found:
        why = "there is no file with a Kubernetes object in it"
        raise HostedError("UMB565", f"nothing to apply in {folder}", why, "umbilical hosted render --help")
    return sorted(found, key=lambda document: _rank(document.kind))


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _read(path: Path) -> Iterator[Document]:
    for content in _contents(path):
        if isinstance(content, dict) and content.get("kind") in _NO_OBJECT:
            continue
        document = read_document(content)
        if document is None:
            why = "something in it has no apiVersion, kind or metadata.name"
            raise HostedError("UMB565", f"{path} is no manifest", why, "render the directory again")
        yield document


def _contents(path: Path) -> Iterator[Any]:
    import yaml

    try:
        contents = list(yaml.safe_load_all(path.read_bytes()))
    except yaml.YAMLError as error:
        # PyYAML's message quotes the line at fault, which may be one of a Secret.
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        why = "it is no YAML" if line is None else f"line {line + 1} is no YAML"
        raise HostedError("UMB565", f"{path} is no manifest", why, "render the directory again") from None
    for content in contents:
        if isinstance(content, dict) and content.get("kind") == "List":
            yield from content.get("items") or ()
        elif content is not None:
            yield content
