"""Objects that are applied, in their order, by what they are called; values read without trust in their shape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umbilical.hardway.lint.facts import Facts, Unreadable


def dig(value: Any, *path: str | int) -> Any:
    """Follow keys and places; None where one is not there."""
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
class Applied:
    place: int
    """In the order in which objects are created."""
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


def applied(facts: Facts) -> list[Applied]:
    return [Applied(place, path, value) for place, (path, value) in enumerate(facts.manifests)]


def find(facts: Facts, kind: str, name: str, namespace: str = "", group: str = "") -> Applied | None:
    key = (group, kind, namespace, name)
    return next((one for one in applied(facts) if one.key == key), None)


def need(facts: Facts, kind: str, name: str, namespace: str = "", group: str = "") -> Applied:
    """Return an object.

    Raises:
        Unreadable: it is not applied.
    """
    found = find(facts, kind, name, namespace, group)
    if found is None:
        where = f"{namespace}/" if namespace else ""
        raise Unreadable(f"no {kind} {where}{name}{f' ({group})' if group else ''} is applied")
    return found
