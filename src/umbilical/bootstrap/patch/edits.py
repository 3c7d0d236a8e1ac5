"""The lines that a patch inserts into bootkube.sh, and their removal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.bootstrap.names import EGRESS_FILE, OWN
from umbilical.bootstrap.patch.anchors import Anchor, AnchorMatch, find_anchors
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_ON_HOST
from umbilical.fault import RenderError

OVERRIDE_FLAG: Final = "--config-override-files"


@dataclass(frozen=True)
class Insertion:
    """Whole lines that we insert into the script."""

    anchor: Anchor
    index: int
    """Index of the original line that follows them, from 0."""
    text: str
    """Each line ends with a line break."""

    @property
    def line_count(self) -> int:
        return self.text.count("\n")


REASONS: Final = {
    Anchor.LIBRARIES: "source the tunnel's functions",
    Anchor.APISERVER_STAGE: "create certificates and the server before kube-apiserver is rendered",
    Anchor.RENDER_COMMAND: "pass the egress file to kube-apiserver",
    Anchor.CONFIG_COPY: "copy the egress file next to kube-apiserver's configuration",
    Anchor.CLUSTER_BOOTSTRAP: "write the agents' manifests right before they are created",
    Anchor.END: "delete the agents and stop the server at the end",
}


def insertions(script: str) -> list[Insertion]:
    """Plan the edits of an unpatched script. Raises RenderError: an anchor is missing, repeated or out of order."""
    lines = script.split("\n")
    return [_insertion(found, lines) for found in find_anchors(lines).values()]


def insert(script: str, planned: Sequence[Insertion]) -> str:
    lines = script.split("\n")
    for insertion in sorted(planned, key=lambda planned: planned.index, reverse=True):
        lines[insertion.index : insertion.index] = insertion.text.removesuffix("\n").split("\n")
    return "\n".join(lines)


def remove(script: str, texts: Sequence[str]) -> str:
    """Remove our lines, wherever they are now. Raises RenderError: one of them does not occur exactly once."""
    lines = script.split("\n")
    for text in texts:
        block = text.removesuffix("\n").split("\n")
        starts = [index for index in range(len(lines)) if lines[index : index + len(block)] == block]
        if len(starts) != 1:
            raise _edited_since(block, len(starts))
        del lines[starts[0] : starts[0] + len(block)]
    return "\n".join(lines)


def _edited_since(block: Sequence[str], count: int) -> RenderError:
    blank = " with the blank line after it" if len(block) > 1 else ""
    return RenderError(
        "UMB129",
        "the patch was not removed from bootkube.sh",
        f"its line {block[0].strip()!r}{blank} occurs {count} times, not once: the script was edited after the patch",
        "make the installer write the config again, or edit bootkube.sh by hand",
    )


def _insertion(found: AnchorMatch, lines: Sequence[str]) -> Insertion:
    match found.anchor:
        case Anchor.LIBRARIES:
            return _after(found, f". {OWN.library}")
        case Anchor.APISERVER_STAGE:
            return _before(found, OWN.setup_function, found.index)
        case Anchor.RENDER_COMMAND:
            # As the first flag: the last one differs between releases.
            return _after(found, f"{OVERRIDE_FLAG}={OWN.override_in_render_container} \\")
        case Anchor.CONFIG_COPY:
            return _after(found, f"cp {OWN.egress} {BOOTSTRAP_CONFIGS_ON_HOST}/{EGRESS_FILE}")
        case Anchor.CLUSTER_BOOTSTRAP:
            return _before(found, OWN.manifests_function, found.index)
        case Anchor.END:
            return _before(found, OWN.cleanup_function, _above_comment(found.index, lines))


def _after(found: AnchorMatch, line: str) -> Insertion:
    return Insertion(found.anchor, found.index + 1, f"{found.indent}{line}\n")


def _before(found: AnchorMatch, call: str, index: int) -> Insertion:
    return Insertion(found.anchor, index, f"{call}\n\n")


def _above_comment(index: int, lines: Sequence[str]) -> int:
    """Return the index above a comment that belongs to the line."""
    while index > 0 and lines[index - 1].startswith("#"):
        index -= 1
    return index
