"""How one thing of the hard way is explained. Each stands beside the table row, flag or file that it tells about."""

from dataclasses import dataclass
from enum import Enum


class TopicKind(Enum):
    STAGE = "stage"
    FILE = "file"
    FLAG = "flag"
    CERTIFICATE = "certificate"


@dataclass(frozen=True)
class Topic:
    kind: TopicKind
    name: str
    """What a user types: `05`, `bootstrap.ign`, `--etcd-prefix`, `kubelet-signer`."""
    stage: int
    """In whose page it stands."""
    what: str
    readers: str
    """Who reads it."""
    without: str
    """What breaks if it is missing or wrong, with the words that one then sees where they are known."""
    by_hand: str
    """The exact line that shows it: openssl, etcdctl, kubectl, jq."""
    installer: str
    """How the real installer does it."""


@dataclass(frozen=True)
class Flag:
    """One flag of a program, with its reason: command lines are made from tables of these."""

    name: str
    """Without the dashes."""
    value: str
    why: str
    without: str = ""

    def __str__(self) -> str:
        return f"--{self.name}={self.value}"
