"""All stages in their order: every module `sNN_name` of this room is one, with its words and its inverses."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Final

from umbilical.hardway import stages as room
from umbilical.hardway import undoing
from umbilical.hardway.explain.topic import Topic
from umbilical.hardway.stage import Stage

_STAGE: Final = re.compile(r"s\d\d_\w+")


@cache
def stages() -> tuple[Stage, ...]:
    return tuple(module.STAGE for module in _modules())


def topics() -> tuple[Topic, ...]:
    """How the stages are explained, in their order."""
    return tuple(topic for module in _modules() for topic in _topics(module))


def undoers() -> Mapping[str, undoing.Undoer]:
    """All inverses by name; a stage module may bring its own as UNDOERS."""
    found = dict(undoing.UNDOERS)
    for module in _modules():
        found.update(getattr(module, "UNDOERS", {}))
    return found


def _topics(module: ModuleType) -> tuple[Topic, ...]:
    found: tuple[Topic, ...] = getattr(module, "TOPICS", ()) or (module.TOPIC,)
    return found


def _modules() -> list[ModuleType]:
    names = sorted(module.name for module in iter_modules(room.__path__) if _STAGE.fullmatch(module.name))
    return [import_module(f"{room.__name__}.{name}") for name in names]
