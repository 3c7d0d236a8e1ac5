"""The row of a settings table: everything about one setting of a daemon.

Our own commands, the drop-in programs and docs/flags.md are made from these rows. `cli` maps kinds of values to click
and pflag; this module loads neither.
"""

import inspect
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from umbilical.record import Record


class Value(Enum):
    """Kinds of values; in brackets upstream's form, where it differs."""

    TEXT = "text"
    ID = "id"
    """Text; the default is a random UUID."""
    SECRET = "secret"
    """A URL that may contain a password; never shown."""
    SELECTOR = "selector"
    FILE = "file"
    OUTPUT = "output"
    """A file that the daemon writes."""
    SWITCH = "switch"
    COUNT = "count"
    LIMIT = "limit"
    """A count; 0: none."""
    PORT = "port"
    """HyperShift's uint32."""
    FRACTION = "fraction"
    SECONDS = "seconds"
    """A duration such as 500ms or 1h30m."""
    SIZE = "size"
    """Bytes, such as 512Mi; `auto` is 0."""
    ITEMS = "items"
    """Repeatable [comma-separated]."""
    LISTEN = "listen"
    """HOST:PORT; without a host, every interface [two flags]."""
    LISTENERS = "listeners"
    SERVER = "server"
    SERVERS = "servers"
    """HOST:PORT to connect to, repeatable [two flags]."""
    PLACE = "place"
    """Where to listen: unix:PATH or HOST:PORT."""
    TARGETS = "targets"
    """Where to connect: unix:PATH or HOST:PORT, repeatable."""


REPEATABLE: Final = frozenset({Value.ITEMS, Value.LISTENERS, Value.SERVERS, Value.TARGETS})


class Upstream(Record):
    """A flag of the program that ours replaces; fields not given are those of the setting."""

    name: str
    kind: Value | None = None
    default: str | None = None
    help: str = ""
    deprecated: str = ""
    alias_of: str = ""


class Setting(Record):
    field: str
    """Path in the daemon's settings; empty: accepted without effect."""
    kind: Value
    native: str = ""
    """The option of our own command; empty: only upstream's program has it."""
    default: str = ""
    """As on the command line; empty: none, off or derived from others."""
    help: str = ""
    why: str = ""
    """The reason of the default."""
    upstream: str | tuple[Upstream, ...] = ()
    environment: str = ""
    """The variable that upstream's program reads."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    may_be_unix: bool = False
    """A LISTEN of our own command may be a Unix socket, too."""

    @property
    def flags(self) -> tuple[Upstream, ...]:
        return (Upstream(self.upstream),) if isinstance(self.upstream, str) else self.upstream

    @property
    def parameter(self) -> str:
        """The name of the native option's value, with which its environment variable ends."""
        return self.field if self.kind is Value.ID else self.native.removeprefix("--").replace("-", "_")


Table = tuple[Setting, ...]
_R = TypeVar("_R", bound=Record)


def assemble(record: type[_R], values: Mapping[str, Any], prefix: str = "") -> _R:
    """Make a record from values by path; nested records are made from the paths below theirs."""
    named = {}
    for name, annotation in inspect.get_annotations(record).items():
        path = prefix + name
        if path in values:
            named[name] = values[path]
        elif any(key.startswith(f"{path}.") for key in values):
            named[name] = assemble(annotation, values, f"{path}.")
    return record(**named)
