"""Kinds of values that a cluster's file may hold: each reads itself, and says itself in JSON Schema."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from umbilical.hardway.config.cluster import Switch
from umbilical.manifests.sections import Section

Schema = dict[str, Any]


class Kind(Protocol):
    def read(self, section: Section, key: str) -> Any:
        """Take the key's value; what is wrong is noted in the section."""
        ...

    @property
    def schema(self) -> Schema: ...


@dataclass(frozen=True)
class Text:
    rule: str
    """A regular expression for the whole of it."""
    hint: str

    def read(self, section: Section, key: str) -> str:
        return section.text(key, "", rule=self.rule, hint=self.hint)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^(?:{self.rule})$"}


@dataclass(frozen=True)
class Texts:
    rule: str
    hint: str

    def read(self, section: Section, key: str) -> tuple[str, ...]:
        return section.texts(key, rule=self.rule, hint=self.hint)

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "pattern": f"^(?:{self.rule})$"}}


@dataclass(frozen=True)
class Number:
    first: int
    last: int

    def read(self, section: Section, key: str) -> int:
        return section.number(key, self.first, range(self.first, self.last + 1))

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.first, "maximum": self.last}


@dataclass(frozen=True)
class Choice:
    options: type[Enum]

    def read(self, section: Section, key: str) -> Enum:
        return section.required_choice(key, self.options)

    @property
    def schema(self) -> Schema:
        return {"enum": [one.value for one in self.options]}


@dataclass(frozen=True)
class OnOff:
    """YAML 1.1 takes a bare `on` and `off` for booleans, so both spellings mean the same here."""

    def read(self, section: Section, key: str) -> Switch:
        value = section.take(key)
        spelled = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
        return Section({key: spelled}, section.path, section.problems).choice(key, Switch.AUTO)

    @property
    def schema(self) -> Schema:
        return {"enum": [*(one.value for one in Switch), True, False]}


@dataclass(frozen=True)
class Address:
    def read(self, section: Section, key: str) -> Any:
        return section.address(key)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}


@dataclass(frozen=True)
class Network:
    def read(self, section: Section, key: str) -> Any:
        return section.network(key)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"}


@dataclass(frozen=True)
class Constant:
    value: str

    def read(self, section: Section, key: str) -> str:
        return section.text(key, "", rule=re.escape(self.value), hint=f"it must be {self.value}")

    @property
    def schema(self) -> Schema:
        return {"const": self.value}


ADDRESS: Final = Address()
NETWORK: Final = Network()
ON_OFF: Final = OnOff()
