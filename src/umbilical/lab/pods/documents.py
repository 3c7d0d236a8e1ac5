"""YAML as manifests are written: bounded, no aliases, every document an object. Nothing else gets through."""

from typing import Any, Final

import yaml

from umbilical.fault import PodError

# etcd takes no object above 1.5 MiB; a manifest longer than that is something else.
MAX_BYTES: Final = 1 << 20
# A pod has a dozen levels. Parsing takes the square of the depth.
MAX_DEPTH: Final = 100
MAX_DOCUMENTS: Final = 200
# libyaml is ten times as fast, and where PyYAML was built without it the other reads the same.
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING: Final = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING: Final = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def read_documents(content: bytes, title: str) -> list[dict[str, Any]]:
    """Read every object of a file; empty documents count for nothing.

    Raises:
        PodError: UMB830, it is no YAML, or not of objects.
    """
    if len(content) > MAX_BYTES:
        raise unreadable(title, f"it has {len(content)} bytes, and no object may have more than {MAX_BYTES}")
    try:
        _check_events(content, title)
        documents = [document for document in yaml.load_all(content, _Loader) if document is not None]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise unreadable(title, _first_line(error)) from None
    if not all(isinstance(document, dict) for document in documents):
        raise unreadable(title, "a document of it is no object")
    return documents


def unreadable(title: str, why: str) -> PodError:
    return PodError("UMB830", f"{title} cannot be read", why, "check it: kubectl apply --dry-run=client -f FILE")


def _check_events(content: bytes, title: str) -> None:
    depth = documents = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.AliasEvent):
            # They multiply on the way out, without end if one stands inside its own anchor.
            raise unreadable(title, "it uses YAML aliases")
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > MAX_DEPTH or documents > MAX_DOCUMENTS:
            raise unreadable(title, f"more than {MAX_DEPTH} levels, or more than {MAX_DOCUMENTS} documents")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join(lines[:2]) or type(error).__name__
