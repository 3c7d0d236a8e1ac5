"""One file of manifests: its name, which decides when it is applied, what is in it, and what it is for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.manifests.objects import Object
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree, yaml_bytes

STAGE: Final = 7
Make = Callable[[Inputs], Sequence[Object]]


@dataclass(frozen=True)
class ManifestFile:
    name: str
    """`05-dns.yaml`: the number is the place in the order, see `render`."""
    make: Make
    """An empty list: there is no such file in this cluster."""
    what: str
    readers: str
    without: str
    by_hand: str
    installer: str

    @property
    def topic(self) -> Topic:
        words = (self.what, self.readers, self.without, self.by_hand, self.installer)
        return Topic(TopicKind.FILE, self.name, STAGE, *words)


def add_objects(tree: AssetTree, name: str, objects: Sequence[Object]) -> None:
    """Write a file of manifests, several documents in one where there are several objects."""
    is_secret = any(one["kind"] == "Secret" for one in objects)
    tree.add(f"{layout.MANIFESTS}/{name}", yaml_stream(objects), SECRET_MODE if is_secret else PUBLIC_MODE)


def yaml_stream(objects: Iterable[Object]) -> bytes:
    return b"---\n".join(yaml_bytes(one) for one in objects)
