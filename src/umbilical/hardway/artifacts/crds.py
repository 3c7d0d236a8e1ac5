"""Chooses the CRDs of a release that must exist before its operators run.

A release contains several variants of a CRD, by cluster profile and by feature set. If all were applied in the order
of their names, the technology preview's variant would remain, because it comes last.
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
"""Name in annotations of the default feature set; a FeatureGate writes it as the empty string."""
VERSION_OPERATOR: Final = ("clusteroperators.config.openshift.io", "clusterversions.config.openshift.io")
"""CRDs that the version operator's own render step adds."""
OPERATOR_NETWORK: Final = "networks.operator.openshift.io"
"""Not marked as required, but we create the network operator's object before the version operator runs."""
BY_NAME: Final = (*VERSION_OPERATOR, OPERATOR_NETWORK)
REQUIRED_COUNTS: Final[Mapping[str, int]] = {"4.18": 22}
"""Release line -> number of CRDs marked as required for the bootstrap; counted in openshift/api."""

_BOUNDARY: Final = re.compile(rb"^---(?:[ \t].*)?\r?$", re.MULTILINE)
_IS_CRD: Final = re.compile(rb"^kind:[ \t]*[\"']?CustomResourceDefinition[\"']?[ \t]*\r?$", re.MULTILINE)
_FEATURE_SETS: Final = re.compile(rb"^ +release\.openshift\.io/feature-set: *([\"']?[A-Za-z][^\n]*)$", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Crd:
    name: str
    """`infrastructures.config.openshift.io`"""
    content: bytes = field(repr=False)
    """The document of the release, including its comments."""
    required: bool
    """Marked as required for the bootstrap."""


def holds_crd(content: bytes) -> bool:
    return _IS_CRD.search(content) is not None


def split_documents(content: bytes) -> list[bytes]:
    """Split a YAML stream into documents; empty ones and those with only comments are left out."""
    pieces = (piece.strip(b"\r\n") + b"\n" for piece in _BOUNDARY.split(content))
    return [piece for piece in pieces if re.search(rb"^[^#\s]", piece, re.MULTILINE)]


def bootstrap_crds(files: Mapping[str, bytes], feature_set: str = "") -> tuple[Crd, ...]:
    """Return one document for each CRD that must exist before operators run, ordered by name.

    Raises RenderError: UMB717, a CRD is missing, has two matching variants, or is not valid YAML.
    """
    found: dict[str, tuple[str, Crd]] = {}
    chosen_set = feature_set or DEFAULT_SET
    for file, piece in _candidates(files, chosen_set):
        crd = _read(file, piece, chosen_set)
        if crd is None or not (crd.required or crd.name in BY_NAME):
            continue
        if crd.name in found:
            why = f"{found[crd.name][0]} and {file} both contain a variant for this profile and feature set"
            raise _unusable(f"the release has two CRDs {crd.name}", why)
        found[crd.name] = (file, crd)
    missing = [name for name in BY_NAME if name not in found]
    if missing or len(found) == len(BY_NAME):
        wanted = ", ".join(missing) or "a CRD that is marked as required for the bootstrap"
        raise _unusable("the release lacks CRDs", f"no file contains {wanted}")
    return tuple(found[name][1] for name in sorted(found))


def is_included(document: Object, feature_set: str = DEFAULT_SET) -> bool:
    """Tell whether a document is for self-managed clusters and for this feature set."""
    annotations = _annotations(document)
    sets = annotations.get(FEATURE_SET)
    names = [one.strip() for one in sets.split(",")] if isinstance(sets, str) else None
    return annotations.get(PROFILE) == "true" and (names is None or feature_set in names)


def is_required(document: Object) -> bool:
    return _annotations(document).get(BOOTSTRAP_REQUIRED) == "true"


def release_line(version: str) -> str:
    """Return `4.18` for `4.18.0`."""
    return ".".join(version.split(".")[:2])


def _candidates(files: Mapping[str, bytes], feature_set: str) -> Iterator[tuple[str, bytes]]:
    # A release has hundreds of long files; only candidates are parsed as YAML.
    words = (BOOTSTRAP_REQUIRED.encode(), *(name.encode() for name in BY_NAME))
    for file in sorted(files):
        if not any(word in files[file] for word in words):
            continue
        for piece in split_documents(files[file]):
            if holds_crd(piece) and not _is_for_others(piece, feature_set):
                yield file, piece


def _is_for_others(piece: bytes, feature_set: str) -> bool:
    """Tell without parsing that a variant is for other feature sets; False if that is not certain."""
    found = _FEATURE_SETS.search(piece)
    return found is not None and feature_set.encode() not in found[1]


def _read(file: str, piece: bytes, feature_set: str) -> Crd | None:
    try:
        document = yaml.load(piece, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable(f"{file} was not read", f"it is not YAML: {str(error).splitlines()[0]}") from None
    name = document.get("metadata", {}).get("name") if isinstance(document, dict) else None
    if not isinstance(name, str):
        raise _unusable(f"{file} was not read", "a CRD in it has no name")
    return Crd(name, piece, is_required(document)) if is_included(document, feature_set) else None


def _annotations(document: Object) -> dict[str, Any]:
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _unusable(what: str, why: str) -> RenderError:
    return RenderError("UMB717", what, why, "extract the release again: umbilical explain 04")
