"""A tree of files to write (path, bytes, mode), and the YAML writer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from umbilical.fault import RenderError

SECRET_MODE: Final = 0o600
SCRIPT_MODE: Final = 0o555
PUBLIC_MODE: Final = 0o644


@dataclass(frozen=True)
class Asset:
    """One file. `repr` omits its content, which may be a key."""

    path: str
    content: bytes = field(repr=False)
    mode: int


class AssetTree:
    """Files by absolute path on the node, in the order of `add`."""

    def __init__(self) -> None:
        self._assets: dict[str, Asset] = {}

    def add(self, path: str, content: bytes, mode: int = SECRET_MODE) -> None:
        """Add a file. Raises RenderError: the path is taken."""
        if path in self._assets:
            why = "two parts of the spec use the same path"
            raise RenderError("UMB111", f"{path} would be written twice", why, "use another name for one of them")
        self._assets[path] = Asset(path, content, mode)

    def add_yaml(self, path: str, value: Mapping[str, Any], mode: int = SECRET_MODE) -> None:
        self.add(path, yaml_bytes(value), mode)

    def __iter__(self) -> Iterator[Asset]:
        return iter(self._assets.values())

    def __len__(self) -> int:
        return len(self._assets)

    def __contains__(self, path: object) -> bool:
        return path in self._assets

    def __getitem__(self, path: str) -> Asset:
        return self._assets[path]


class _Dumper(yaml.SafeDumper):
    """Block style, indented lists, no aliases: like manifests written by hand."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def yaml_bytes(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Write one YAML document. Keys stay in the order given, so that metadata comes before spec."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=4096)
    return text.encode()
