"""Frozen records like `@dataclass(frozen=True)`, without code generation at import.

A dataclass compiles six methods when its module is imported, which takes half a millisecond; a daemon has dozens. Type
checkers treat a Record as a dataclass. Defaults are shared, so they must be immutable.
"""

import inspect
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True)
class Record:
    """A subclass declares its fields as annotations, in the order of its positional arguments."""

    _field_names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = tuple(inspect.get_annotations(cls))
        cls._field_names = (*cls._field_names, *own)
        cls._defaults = cls._defaults | {name: cls.__dict__[name] for name in own if name in cls.__dict__}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        names = self._field_names
        if len(arguments) > len(names) or not named.keys() <= set(names[len(arguments) :]):
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}, each once")
        values = self._defaults | dict(zip(names, arguments, strict=False)) | named
        if len(values) < len(names):
            missing = ", ".join(name for name in names if name not in values)
            raise TypeError(f"{type(self).__name__} needs {missing}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot delete {name}")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._field_names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._field_names)
        return f"{type(self).__name__}({fields})"
