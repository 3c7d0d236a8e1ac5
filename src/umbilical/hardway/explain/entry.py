"""Explanations and their output as text, JSON and Markdown.

A `Topic` is next to the table row, flag or file that it explains; `umbilical explain` prints an `Explanation`.
"""

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from umbilical.checks.report import API_VERSION


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
    """Stage whose page contains it."""
    what: str
    readers: str
    without: str
    """What breaks if it is missing or wrong, with the error message if known."""
    by_hand: str
    """The exact command that shows it: openssl, etcdctl, kubectl, jq."""
    installer: str
    """How the OpenShift installer does it."""


def stage_topic(number: int, what: str, readers: str, without: str, by_hand: str, installer: str) -> Topic:
    return Topic(TopicKind.STAGE, f"{number:02}", number, what, readers, without, by_hand, installer)


@dataclass(frozen=True)
class CommandFlag:
    """A flag of a program with its reason; command lines are built from tables of these."""

    name: str
    """Without the dashes."""
    value: str
    why: str
    without: str = ""

    def __str__(self) -> str:
        return f"--{self.name}={self.value}"


class ExplanationKind(Enum):
    STAGE = "stage"
    FILE = "file"
    CERTIFICATE = "certificate"
    FLAG = "flag"
    RULE = "rule"
    CHECK = "check"
    """Of a stage, other than lint rules."""
    CONDITION = "condition"
    """P1 to P8 of the pivot."""
    LESSON = "lesson"
    CODE = "code"


_KINDS: Final = {
    TopicKind.STAGE: ExplanationKind.STAGE,
    TopicKind.FILE: ExplanationKind.FILE,
    TopicKind.CERTIFICATE: ExplanationKind.CERTIFICATE,
    TopicKind.FLAG: ExplanationKind.FLAG,
}


_SMALL: Final = frozenset(
    {"bash", "bootkube", "etcd", "etcdctl", "haproxy", "kubeadm", "kubectl", "kubelet", "kubelets", "libvirt", "oc"}
    | {"openssl", "systemd", "umbilical", "dial"}
)
"""Words that keep a small first letter."""


@dataclass(frozen=True)
class Explanation:
    kind: ExplanationKind
    name: str
    """`NODE`, `N` after a hyphen and `*` are placeholders."""
    what: str
    stage: int | None = None
    """Stage whose page contains it."""
    scope: str = ""
    """For example severity and profiles of a rule."""
    readers: str = ""
    without: str = ""
    by_hand: str = ""
    installer: str = ""
    fix: str = ""
    """What to do if it is wrong."""
    aliases: tuple[str, ...] = ()
    """Other names, with the same placeholders as in `name`."""

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The non-empty parts with their headings."""
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
        """Kind, scope and stage."""
        place = f"stage {self.stage:02}" if self.stage is not None and self.kind is not ExplanationKind.STAGE else ""
        return ", ".join(word for word in (self.kind.value, self.scope, place) if word)


def sentence(text: str) -> str:
    """Capitalise the first letter, except of program names, and add a full stop."""
    if not text:
        return ""
    first = re.split(r"[\s':,]", text, maxsplit=1)[0]
    begun = f"{text[0].upper()}{text[1:]}" if first.isalpha() and first not in _SMALL else text
    return begun if begun[-1] in ".!?`" else f"{begun}."


def from_topic(topic: Topic, aliases: tuple[str, ...] = ()) -> Explanation:
    return Explanation(
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


WIDTH: Final = 100
_INDENT: Final = " " * 11
HEADINGS: Final = {
    "what": "What it is",
    "readers": "Who reads it",
    "without": "What breaks without it",
    "fix": "What to do",
    "by hand": "By hand",
    "installer": "The OpenShift installer",
}
# Words that Markdown would format: snake_case, wildcards, <angle brackets>.
_DELICATE: Final = re.compile(r"(?<!`)(?:[\w./:@$*{}=-]*[_*<>][\w./:@$*{}=<>-]*)(?!`)")


def as_text(entries: Sequence[Explanation]) -> str:
    return "\n".join(_text(entry) for entry in entries)


def as_json(entries: Sequence[Explanation]) -> str:
    value = {"apiVersion": API_VERSION, "kind": "Explanation", "entries": [_value(entry) for entry in entries]}
    return json.dumps(value, indent=2) + "\n"


def as_markdown(entries: Sequence[Explanation]) -> str:
    return "\n".join(f"## `{entry.name}`\n\n*{entry.belongs}*\n\n{body(entry)}" for entry in entries)


def body(entry: Explanation) -> str:
    """Format an explanation without its heading, as a list; the command in a fence."""
    told = [f"- **{HEADINGS[heading]}:** {prose(text)}" for heading, text in entry.rows if heading != "by hand"]
    fence = f"\n```console\n$ {entry.by_hand}\n```\n" if entry.by_hand else ""
    return "\n".join(told) + "\n" + fence


def prose(text: str) -> str:
    """Escape text for Markdown: words with special characters become code."""
    pieces = text.split("`")
    plain = (_DELICATE.sub(_as_code, piece) for piece in pieces[::2])
    whole = [
        piece for pair in zip(plain, [*(f"`{code}`" for code in pieces[1::2]), ""], strict=False) for piece in pair
    ]
    return "".join(whole)


def _as_code(match: re.Match[str]) -> str:
    word = match.group().rstrip(".:")
    return f"`{word}`{match.group()[len(word) :]}"


def _text(entry: Explanation) -> str:
    lines = [f"{entry.name}  ({entry.belongs})"]
    for heading, text in entry.rows:
        lead = f"{heading:<{len(_INDENT)}}"
        if heading == "by hand":
            # Never wrapped, so that it can be copied.
            lines.append(f"{lead}$ {text}")
        else:
            lines.append(_wrapped(text, lead))
    return "\n".join(lines) + "\n"


def _wrapped(text: str, lead: str) -> str:
    # Flags and paths must not be split.
    return textwrap.fill(
        text, WIDTH, initial_indent=lead, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False
    )


def _value(entry: Explanation) -> dict[str, object]:
    told = {heading.replace(" ", "_"): text for heading, text in entry.rows}
    return {"name": entry.name, "kind": entry.kind.value, "stage": entry.stage, "scope": entry.scope, **told}
