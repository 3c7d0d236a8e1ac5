"""The pure form of a compiled installation: sources are loaded although compiled modules lie beside them.

A path hook for this package's own folders leaves every other package as it is. A module of its own, because it is
loaded only when asked for.
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
    """From now on, load modules that lie in these folders, or below, from their sources only."""
    roots = tuple(folders)

    def is_ours(path: str) -> bool:
        return any(path == root or path.startswith(root + os.sep) for root in roots)

    def source_finder(path: str) -> FileFinder:
        if not is_ours(path):
            raise ImportError("not a folder of this package", path=path)
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES))

    sys.path_hooks.insert(0, source_finder)
    # This very module was found by a finder that prefers compiled ones, and finders are kept by folder.
    for path in [known for known in sys.path_importer_cache if is_ours(known)]:
        del sys.path_importer_cache[path]
