"""The lines of bootkube.sh that edits use as anchors: each occurs exactly once in every release from 4.12 on. The
script does not name its release, but steps and flags that were added over time show it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from umbilical.fault import RenderError

PLAN_COMMAND: Final = "umbilical bootstrap plan --show-anchors FILE"
SHOWN_LINES: Final = 5


class Anchor(Enum):
    """In the order of the script."""

    LIBRARIES = "A1"
    APISERVER_STAGE = "A2"
    RENDER_COMMAND = "A3"
    CONFIG_COPY = "A4"
    CLUSTER_BOOTSTRAP = "A5"
    END = "A6"


@dataclass(frozen=True)
class AnchorPattern:
    """The text of an anchor's line. Inside a block any indentation matches."""

    text: str
    """The line, or its beginning."""
    is_beginning: bool = False
    is_indented: bool = False

    def matches(self, line: str) -> bool:
        return self._fits(line.lstrip(" \t") if self.is_indented else line)

    def resembles(self, line: str) -> bool:
        """Whether the line matches apart from its indentation."""
        return self._fits(line.strip())

    def _fits(self, line: str) -> bool:
        return line.startswith(self.text) if self.is_beginning else line == self.text


PATTERNS: Final[dict[Anchor, tuple[AnchorPattern, ...]]] = {
    Anchor.LIBRARIES: (
        AnchorPattern(". /usr/local/bin/bootstrap-verify-api-server-urls.sh"),
        # For 4.11 and older, without that library.
        AnchorPattern(". /usr/local/bin/release-image.sh"),
    ),
    Anchor.APISERVER_STAGE: (AnchorPattern("if [ ! -f kube-apiserver-bootstrap.done ]"),),
    Anchor.RENDER_COMMAND: (AnchorPattern("/usr/bin/cluster-kube-apiserver-operator render \\", is_indented=True),),
    Anchor.CONFIG_COPY: (
        AnchorPattern(
            "cp kube-apiserver-bootstrap/config /etc/kubernetes/bootstrap-configs/kube-apiserver-config.yaml",
            is_indented=True,
        ),
    ),
    Anchor.CLUSTER_BOOTSTRAP: (
        AnchorPattern('REQUIRED_PODS="openshift', is_beginning=True),
        AnchorPattern('echo "Starting cluster-bootstrap..."'),
    ),
    Anchor.END: (AnchorPattern("touch /opt/openshift/.bootkube.done"),),
}


@dataclass(frozen=True)
class AnchorMatch:
    anchor: Anchor
    index: int
    """Of the line, from 0."""
    line: str

    @property
    def indent(self) -> str:
        return self.line[: len(self.line) - len(self.line.lstrip(" \t"))]


@dataclass(frozen=True)
class AnchorSearch:
    """The result of the search for one anchor."""

    anchor: Anchor
    pattern: AnchorPattern
    matches: tuple[int, ...]
    lookalikes: tuple[int, ...]
    """Lines that differ only in indentation."""


def search(lines: Sequence[str]) -> list[AnchorSearch]:
    """Search for every anchor; the first pattern that occurs counts."""
    return [_search_one(anchor, lines) for anchor in Anchor]


def find_anchors(lines: Sequence[str]) -> dict[Anchor, AnchorMatch]:
    """Find every anchor. Raises RenderError: one does not occur exactly once, or their order is wrong."""
    found = {}
    for seen in search(lines):
        if len(seen.matches) != 1:
            raise _not_once(seen, lines)
        index = seen.matches[0]
        found[seen.anchor] = AnchorMatch(seen.anchor, index, lines[index])
    _check_order(list(found.values()))
    return found


def _search_one(anchor: Anchor, lines: Sequence[str]) -> AnchorSearch:
    # A line with another indentation was moved, not removed: no fallback then.
    attempts = [_attempt(anchor, pattern, lines) for pattern in PATTERNS[anchor]]
    return next((attempt for attempt in attempts if attempt.matches or attempt.lookalikes), attempts[0])


def _attempt(anchor: Anchor, pattern: AnchorPattern, lines: Sequence[str]) -> AnchorSearch:
    alike = [index for index, line in enumerate(lines) if pattern.resembles(line)]
    matches = tuple(index for index in alike if pattern.matches(lines[index]))
    return AnchorSearch(anchor, pattern, matches, tuple(index for index in alike if index not in matches))


def _check_order(found: Sequence[AnchorMatch]) -> None:
    for earlier, later in pairwise(found):
        if earlier.index >= later.index:
            raise _not_recognised(
                f"anchor {later.anchor.value} comes before {earlier.anchor.value}",
                f"line {later.index + 1} is {later.line.strip()!r}, line {earlier.index + 1} {earlier.line.strip()!r}",
            )


def _not_once(seen: AnchorSearch, lines: Sequence[str]) -> RenderError:
    every = sorted((*seen.matches, *seen.lookalikes))
    shown = "; ".join(f"line {index + 1}: {lines[index]!r}" for index in every[:SHOWN_LINES]) or "no similar line"
    wanted = f"{seen.pattern.text}..." if seen.pattern.is_beginning else seen.pattern.text
    what = f"anchor {seen.anchor.value} occurs {len(seen.matches)} times, not once"
    return _not_recognised(what, f"searched for {wanted!r}; {shown}")


def _not_recognised(what: str, why: str) -> RenderError:
    return RenderError("UMB121", f"bootkube.sh was not recognised: {what}", why, PLAN_COMMAND)


_SIGNS: Final = (
    ("4.12", PATTERNS[Anchor.LIBRARIES][0].text),
    ("4.13", "touch node-tuning-bootstrap.done"),
    ("4.15", "touch api-bootstrap.done"),
    ("4.16", "touch api-dns-resolved.done"),
    ("4.18", "KUBERNETES_VERSION="),
    ("4.19", "touch auth-api-bootstrap.done"),
    ("4.21", "--log-driver=k8s-file"),
    ("4.23", ". /usr/local/bin/konnectivity.sh"),
)


def release_line(bootkube: str) -> str:
    """Return the releases that have such a script, such as "4.16 to 4.17". Only for display."""
    words = [line.strip() for line in bootkube.split("\n")]
    seen = [index for index, (_, sign) in enumerate(_SIGNS) if any(_shows(line, sign) for line in words)]
    if not seen:
        return "4.11 or older"
    since = _SIGNS[seen[-1]][0]
    if seen[-1] + 1 == len(_SIGNS):
        return f"{since} or newer"
    until = _line_before(_SIGNS[seen[-1] + 1][0])
    return since if since == until else f"{since} to {until}"


def _shows(line: str, sign: str) -> bool:
    return line.startswith(sign) or f" {sign} " in line


def _line_before(release: str) -> str:
    major, minor = release.split(".")
    return f"{major}.{int(minor) - 1}"
