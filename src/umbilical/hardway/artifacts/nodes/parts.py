"""What a node is given beyond its base: files, directories, units and who may log in."""

from dataclasses import dataclass, field

from umbilical.manifests.tree import AssetTree


@dataclass(frozen=True)
class Unit:
    name: str
    contents: str
    is_enabled: bool = True


@dataclass
class Parts:
    """Collected by those who make them, and written once."""

    files: AssetTree = field(default_factory=AssetTree)
    """By absolute path on the node."""
    directories: dict[str, int] = field(default_factory=dict)
    """Path -> mode."""
    units: list[Unit] = field(default_factory=list)
    ssh_keys: tuple[str, ...] = ()
    last: AssetTree = field(default_factory=AssetTree)
    """Files that stand behind all others, the base's included."""
