"""How one thing of the hard way is explained, and the forms of that: text, JSON, Markdown.

A `Topic` stands beside the table row, flag or file that it is about; an `Entry` is what `umbilical explain` prints.
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


def stage_topic(number: int, what: str, readers: str, without: str, by_hand: str, installer: str) -> Topic:
    return Topic(TopicKind.STAGE, f"{number:02}", number, what, readers, without, by_hand, installer)


@dataclass(frozen=True)
class CommandFlag:
    """One flag of a program, with its reason: command lines are made from tables of these."""

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
"""Names of programs, and what programs print."""


@dataclass(frozen=True)
class Explanation:
    kind: ExplanationKind
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
        place = f"stage {self.stage:02}" if self.stage is not None and self.kind is not ExplanationKind.STAGE else ""
        return ", ".join(word for word in (self.kind.value, self.scope, place) if word)


def sentence(text: str) -> str:
    """Begin with a capital and end with a full stop; names that are spelled in small letters stay as they are."""
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
    "installer": "The real installer",
}
# Names that Markdown would take for emphasis: snake_case, wildcards, <angle brackets>.
_DELICATE: Final = re.compile(r"(?<!`)(?:[\w./:@$*{}=-]*[_*<>][\w./:@$*{}=<>-]*)(?!`)")


def as_text(entries: Sequence[Explanation]) -> str:
    return "\n".join(_text(entry) for entry in entries)


def as_json(entries: Sequence[Explanation]) -> str:
    value = {"apiVersion": API_VERSION, "kind": "Explanation", "entries": [_value(entry) for entry in entries]}
    return json.dumps(value, indent=2) + "\n"


def as_markdown(entries: Sequence[Explanation]) -> str:
    return "\n".join(f"## `{entry.name}`\n\n*{entry.belongs}*\n\n{body(entry)}" for entry in entries)


def body(entry: Explanation) -> str:
    """An explanation without its heading, as a list; commands in fences of their own."""
    told = [f"- **{HEADINGS[heading]}:** {prose(text)}" for heading, text in entry.rows if heading != "by hand"]
    fence = f"\n```console\n$ {entry.by_hand}\n```\n" if entry.by_hand else ""
    return "\n".join(told) + "\n" + fence


def prose(text: str) -> str:
    """Make words safe for Markdown: what it would read as signs becomes code. What is code already stays."""
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
            # Never wrapped: it is there to be copied.
            lines.append(f"{lead}$ {text}")
        else:
            lines.append(_wrapped(text, lead))
    return "\n".join(lines) + "\n"


def _wrapped(text: str, lead: str) -> str:
    # Flags and paths stay in one piece.
    return textwrap.fill(
        text, WIDTH, initial_indent=lead, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False
    )


def _value(entry: Explanation) -> dict[str, object]:
    told = {heading.replace(" ", "_"): text for heading, text in entry.rows}
    return {"name": entry.name, "kind": entry.kind.value, "stage": entry.stage, "scope": entry.scope, **told}
