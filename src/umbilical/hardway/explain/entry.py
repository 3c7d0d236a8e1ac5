"""One explanation, whatever it is of: what `umbilical explain` prints and what the pages are made of."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from umbilical.hardway.explain.topic import Topic, TopicKind


class EntryKind(Enum):
    STAGE = "stage"
    FILE = "file"
    CERTIFICATE = "certificate"
    FLAG = "flag"
    RULE = "rule"
    CONDITION = "condition"
    """P1 to P8 of the pivot."""
    LESSON = "lesson"
    CODE = "code"


_KINDS: Final = {
    TopicKind.STAGE: EntryKind.STAGE,
    TopicKind.FILE: EntryKind.FILE,
    TopicKind.CERTIFICATE: EntryKind.CERTIFICATE,
    TopicKind.FLAG: EntryKind.FLAG,
}


_SMALL: Final = frozenset(
    {"bash", "bootkube", "etcd", "etcdctl", "haproxy", "kubeadm", "kubectl", "kubelet", "kubelets", "libvirt", "oc"}
    | {"openssl", "systemd", "umbilical", "dial"}
)
"""Names of programs, and what programs print."""


@dataclass(frozen=True)
class Entry:
    kind: EntryKind
    name: str
    """`NODE`, `N` after a hyphen and `*` in it stand for whatever is there."""
    what: str
    stage: int | None = None
    """In whose page it stands."""
    scope: str = ""
    """Of a rule its severity and profiles."""
    readers: str = ""
    without: str = ""
    by_hand: str = ""
    installer: str = ""
    fix: str = ""
    """What to do when it is wrong."""
    aliases: tuple[str, ...] = ()
    """Other words for it, with the same signs as in `name`."""

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, with its headings."""
        told = [
            ("what", self.what),
            ("readers", self.readers),
            ("without", self.without),
            ("fix", self.fix),
            ("by hand", self.by_hand),
            ("installer", self.installer),
        ]
        return [(heading, text) for heading, text in told if text]

    @property
    def belongs(self) -> str:
        """Kind and place in a few words."""
        place = f"stage {self.stage:02}" if self.stage is not None and self.kind is not EntryKind.STAGE else ""
        return ", ".join(word for word in (self.kind.value, self.scope, place) if word)


def sentence(text: str) -> str:
    """Begin with a capital and end with a full stop; names that are spelled in small letters stay as they are."""
    if not text:
        return ""
    first = re.split(r"[\s':,]", text, maxsplit=1)[0]
    begun = f"{text[0].upper()}{text[1:]}" if first.isalpha() and first not in _SMALL else text
    return begun if begun[-1] in ".!?`" else f"{begun}."


def from_topic(topic: Topic, aliases: tuple[str, ...] = ()) -> Entry:
    return Entry(
        kind=_KINDS[topic.kind],
        name=topic.name,
        what=sentence(topic.what),
        stage=topic.stage,
        readers=sentence(topic.readers),
        without=sentence(topic.without),
        by_hand=topic.by_hand,
        installer=sentence(topic.installer),
        aliases=(*aliases, *_other_names(topic)),
    )


def _other_names(topic: Topic) -> tuple[str, ...]:
    if topic.kind is TopicKind.CERTIFICATE:
        return tuple(f"{topic.name}.{ending}" for ending in ("crt", "key", "pub"))
    if topic.kind is TopicKind.FLAG:
        flag = topic.name.split()[-1]
        return tuple(dict.fromkeys((flag, flag.lstrip("-"))))
    last = topic.name.rpartition("/")[2]
    return (last,) if last != topic.name else ()
