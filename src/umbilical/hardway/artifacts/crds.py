"""Which custom resource definitions have to be there before operators come, out of all that a release brings.

A release holds several variants of one definition, by cluster profile and by feature set. Applying all of them in the
order of their names leaves those of the technology preview behind: the last one wins.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from umbilical.fault import RenderError
from umbilical.manifests.objects import Object

KIND: Final = "CustomResourceDefinition"
PROFILE: Final = "include.release.openshift.io/self-managed-high-availability"
FEATURE_SET: Final = "release.openshift.io/feature-set"
BOOTSTRAP_REQUIRED: Final = "release.openshift.io/bootstrap-required"
DEFAULT_SET: Final = "Default"
"""How annotations call the feature set whose name in a FeatureGate is empty."""
VERSION_OPERATOR: Final = ("clusteroperators.config.openshift.io", "clusterversions.config.openshift.io")
"""What the version operator's own render step adds."""
OPERATOR_NETWORK: Final = "networks.operator.openshift.io"
"""In neither set, and yet needed: we create the network operator's object before the version operator runs."""
BY_NAME: Final = (*VERSION_OPERATOR, OPERATOR_NETWORK)
REQUIRED_COUNTS: Final[Mapping[str, int]] = {"4.18": 22}
"""Release line -> how many definitions are marked as needed for the bootstrap; counted in openshift/api."""

_BOUNDARY: Final = re.compile(rb"^---(?:[ \t].*)?\r?$", re.MULTILINE)
_IS_CRD: Final = re.compile(rb"^kind:[ \t]*[\"']?CustomResourceDefinition[\"']?[ \t]*\r?$", re.MULTILINE)
_FEATURE_SETS: Final = re.compile(rb"^ +release\.openshift\.io/feature-set: *([\"']?[A-Za-z][^\n]*)$", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Crd:
    name: str
    """`infrastructures.config.openshift.io`"""
    content: bytes = field(repr=False)
    """The document as the release has it, comments and all."""
    required: bool
    """Marked as needed for the bootstrap."""


def holds_crd(content: bytes) -> bool:
    return _IS_CRD.search(content) is not None


def split_documents(content: bytes) -> list[bytes]:
    """Cut a YAML stream at its boundaries; what is empty or only comments is left out."""
    pieces = (piece.strip(b"\r\n") + b"\n" for piece in _BOUNDARY.split(content))
    return [piece for piece in pieces if re.search(rb"^[^#\s]", piece, re.MULTILINE)]


def bootstrap_crds(files: Mapping[str, bytes], feature_set: str = "") -> tuple[Crd, ...]:
    """Choose, in the order of names, one document for each definition that is needed before operators come.

    Raises RenderError: UMB717, two documents of one name are left, one that is needed is missing, or one is no YAML.
    """
    found: dict[str, tuple[str, Crd]] = {}
    chosen_set = feature_set or DEFAULT_SET
    for file, piece in _candidates(files, chosen_set):
        crd = _read(file, piece, chosen_set)
        if crd is None or not (crd.required or crd.name in BY_NAME):
            continue
        if crd.name in found:
            why = f"{found[crd.name][0]} and {file} both hold a variant for this profile and feature set"
            raise _unusable(f"there are two definitions of {crd.name}", why)
        found[crd.name] = (file, crd)
    missing = [name for name in BY_NAME if name not in found]
    if missing or len(found) == len(BY_NAME):
        wanted = ", ".join(missing) or "any definition that is marked as needed for the bootstrap"
        raise _unusable("the release lacks definitions", f"no file holds {wanted}")
    return tuple(found[name][1] for name in sorted(found))


def is_included(document: Object, feature_set: str = DEFAULT_SET) -> bool:
    """Say whether a document is for self-managed clusters and for this feature set."""
    annotations = _annotations(document)
    sets = annotations.get(FEATURE_SET)
    names = [one.strip() for one in sets.split(",")] if isinstance(sets, str) else None
    return annotations.get(PROFILE) == "true" and (names is None or feature_set in names)


def is_required(document: Object) -> bool:
    return _annotations(document).get(BOOTSTRAP_REQUIRED) == "true"


def release_line(version: str) -> str:
    """Give `4.18` of `4.18.0`."""
    return ".".join(version.split(".")[:2])


def _candidates(files: Mapping[str, bytes], feature_set: str) -> Iterator[tuple[str, bytes]]:
    # Schemas are long, and a release has hundreds of files: only what may be chosen is read as YAML.
    words = (BOOTSTRAP_REQUIRED.encode(), *(name.encode() for name in BY_NAME))
    for file in sorted(files):
        if not any(word in files[file] for word in words):
            continue
        for piece in split_documents(files[file]):
            if holds_crd(piece) and not _is_for_others(piece, feature_set):
                yield file, piece


def _is_for_others(piece: bytes, feature_set: str) -> bool:
    """See at a glance that a variant is for other feature sets. Whoever is not sure reads it."""
    found = _FEATURE_SETS.search(piece)
    return found is not None and feature_set.encode() not in found[1]


def _read(file: str, piece: bytes, feature_set: str) -> Crd | None:
    try:
        document = yaml.load(piece, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"{file} cannot be read", str(error).splitlines()[0]) from None
    name = document.get("metadata", {}).get("name") if isinstance(document, dict) else None
    if not isinstance(name, str):
        raise _unusable(f"{file} cannot be read", "a definition in it has no name")
    return Crd(name, piece, is_required(document)) if is_included(document, feature_set) else None


def _annotations(document: Object) -> dict[str, Any]:
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _unusable(what: str, why: str) -> RenderError:
    return RenderError("UMB717", what, why, "extract the release again: umbilical explain 04")
