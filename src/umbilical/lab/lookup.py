"""Finding what a user named: the nearest name for a wrong one, and things that are loaded when they are asked for."""

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any


def hint(name: str, known: Iterable[str]) -> str:
    """Say what a wrong name may have meant, or all that there is."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"


def load(package: str, modules: Mapping[str, str], things: str, name: str) -> Any:
    """Load the thing of that name from the module that the table gives; there it stands in the tuple `things`."""
    module = importlib.import_module(f"{package}.{modules[name]}")
    return next(thing for thing in getattr(module, things) if thing.name == name)
