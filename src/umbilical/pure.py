"""Loads the sources of a compiled installation instead of its compiled modules (UMBILICAL_PURE=1).

A path hook for this package's folders; other packages are not affected. A module of its own, because it is loaded only
on request.
"""

import os
import sys
from collections.abc import Iterable
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)


def prefer_sources(folders: Iterable[str]) -> None:
    """Load modules in or below these folders from their sources only."""
    roots = tuple(folders)

    def is_ours(path: str) -> bool:
        return any(path == root or path.startswith(root + os.sep) for root in roots)

    def source_finder(path: str) -> FileFinder:
        if not is_ours(path):
            raise ImportError("not a folder of this package", path=path)
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES))

    sys.path_hooks.insert(0, source_finder)
    # Finders are cached by folder, and the cached ones prefer compiled modules.
    for path in [known for known in sys.path_importer_cache if is_ours(known)]:
        del sys.path_importer_cache[path]
