"""Reads untrusted YAML: a missing value or one of another type is None, and nothing raises."""

import posixpath
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import yaml

PLACEHOLDER: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
MAX_SHOWN: Final = 120
# PyYAML's constructors also raise the others, for scalars like `!!int ""` and for deep nesting.
_YAML_FAULTS: Final = (
    yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(ns|us|µs|ms|s|m|h)")


@dataclass(frozen=True)
class ParsedYaml:
    """One parsed file: its value, or the error."""

    value: Any = None
    fault: str | None = None


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, as Kubernetes does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key, count in Counter(keys).items() if count > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} occurs twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> ParsedYaml:
    try:
        return ParsedYaml(yaml.load(text, _Loader))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        return ParsedYaml(fault=f"{line}{error.problem or 'it is not YAML'}")
    except _YAML_FAULTS as error:
        return ParsedYaml(fault=f"Kubernetes could not read this YAML ({type(error).__name__})")


def dig(value: Any, *keys: str | int) -> Any:
    """Follow keys and indexes; None if one is missing."""
    for key in keys:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and -len(value) <= key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def mappings(value: Any) -> list[dict[Any, Any]]:
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def shown(value: Any) -> str:
    """Format a scalar for evidence. Never a tree: aliases can make a small file huge."""
    if value is None:
        return "not set"
    if isinstance(value, str | int | float | bool):
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__


def seconds(duration: str) -> float | None:
    """Parse a Go duration such as 1m30s."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def is_placeholder(text: Any) -> bool:
    return isinstance(text, str) and PLACEHOLDER.fullmatch(text) is not None


def unexpected_keys(value: Mapping[Any, Any], allowed: tuple[str, ...]) -> list[str]:
    return [shown(key) for key in value if key not in allowed]


@dataclass(frozen=True)
class ContainerMount:
    """A container's mount with its volume."""

    path: str
    is_read_only: bool
    host_path: str | None
    host_type: str | None
    secret_name: str | None

    def on_host(self, path: str) -> str | None:
        """Translate a path inside the container."""
        if self.host_path is None:
            return None
        below = posixpath.relpath(path, self.path)
        return posixpath.normpath(posixpath.join(self.host_path, below))


@dataclass
class Flags:
    """A container's command line, parsed like the programs' flag library."""

    program: str = ""
    values: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def integer(self, name: str) -> int | None:
        text = self.values.get(name, "")
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def parse_flags(container: Mapping[Any, Any]) -> Flags:
    words: list[Any] = []
    for key in ("command", "args"):
        value = container.get(key)
        words += value if isinstance(value, list) else []
    if not all(isinstance(word, str) for word in words):
        return Flags(faults=["an item of its command line is not a string"])
    flags = Flags(program=words[0] if words else "")
    rest = iter(words[1:])
    for word in rest:
        _take_flag(flags, word, rest)
    return flags


def _take_flag(flags: Flags, word: str, rest: Iterator[str]) -> None:
    name, equals, value = word.partition("=")
    if not name.startswith("--") or name == "--":
        flags.faults.append(f"{shown(word)} is not a flag")
        return
    if name in flags.values:
        flags.faults.append(f"{name} occurs twice")
    flags.values[name] = value if equals else next(rest, "")


class PodSpec:
    """A pod's spec with one container, and that container's flags and mounts."""

    def __init__(self, spec: Any) -> None:
        self.spec: dict[Any, Any] = spec if isinstance(spec, dict) else {}

    @cached_property
    def containers(self) -> list[dict[Any, Any]]:
        return mappings(self.spec.get("containers"))

    @cached_property
    def container(self) -> dict[Any, Any]:
        return self.containers[0] if self.containers else {}

    @cached_property
    def flags(self) -> Flags:
        return parse_flags(self.container)

    @cached_property
    def mounts(self) -> list[ContainerMount]:
        volumes = {shown(volume.get("name")): volume for volume in mappings(self.spec.get("volumes"))}
        mounts = mappings(self.container.get("volumeMounts"))
        return [_mount(mount, volumes.get(shown(mount.get("name")), {})) for mount in mounts]

    def mount_of(self, path: str) -> ContainerMount | None:
        """Return the mount that contains a path of the container: the longest one."""
        holding = [mount for mount in self.mounts if is_within(path, mount.path)]
        return max(holding, key=lambda mount: len(mount.path), default=None)


def is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _mount(mount: Mapping[Any, Any], volume: Mapping[Any, Any]) -> ContainerMount:
    def text(*keys: str) -> str | None:
        value = dig(volume, *keys)
        return value if isinstance(value, str) else None

    path = mount.get("mountPath")
    return ContainerMount(
        path=path if isinstance(path, str) and path.startswith("/") else "/dev/null",
        is_read_only=mount.get("readOnly") is True,
        host_path=text("hostPath", "path"),
        host_type=text("hostPath", "type"),
        secret_name=text("secret", "secretName"),
    )
