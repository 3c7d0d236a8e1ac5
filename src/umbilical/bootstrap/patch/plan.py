"""What a patch changes and why, as values: for `plan` to show, and for `patch` to sum up. Also how big the result may
be: some platforms carry the whole file in a Secret, and those end at 1 MiB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT
from umbilical.bootstrap.patch.config_facts import FEATURE_GATES, TunnelState
from umbilical.bootstrap.patch.edits import REASONS, Insertion
from umbilical.bootstrap.patch.receipt import OWN_PREFIXES
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.fault import RenderError
from umbilical.ignition.config import Config

SECRET_PLATFORMS: Final = frozenset({"aws", "powervs", "vsphere"})
"""Where Cluster API's bootstrap Secret holds the file; the others fetch it from a bucket, an image or a disk."""
SECRET_BYTES: Final = 1024 * 1024
# `create cluster` adds one manifest to the file and marshals it anew before it goes into the Secret.
RESERVED_BYTES: Final = 8 * 1024
LIMIT_BYTES: Final = SECRET_BYTES - RESERVED_BYTES
WARNING_BYTES: Final = 900 * 1024


def check_size(before: int, after: int, platform: str | None) -> None:
    """Refuse what the platform cannot carry. Raises RenderError: the file would not reach the node."""
    if platform not in SECRET_PLATFORMS or after <= LIMIT_BYTES:
        return
    raise RenderError(
        "UMB126",
        f"the patched config would be {after} bytes long, {platform} carries {LIMIT_BYTES}",
        f"it goes to the node in a Secret, which holds 1 MiB; it is {before} bytes long without the tunnel",
        "take extra manifests out of openshift/ and create them after the installation",
    )


def size_warning(after: int, platform: str | None) -> str | None:
    if after <= WARNING_BYTES or (platform is not None and platform not in SECRET_PLATFORMS):
        return None
    where = platform or "AWS, PowerVS and vSphere"
    return f"{after // 1024} KiB: {where} can carry {LIMIT_BYTES // 1024} KiB, and little is left for manifests"


PURPOSES: Final = {
    OWN.egress: "which traffic kube-apiserver sends through the tunnel",
    OWN.override: "names the egress file among kube-apiserver's arguments",
    OWN.server_pod: "the server, a static pod beside kube-apiserver",
    OWN.namespace: "the agents' namespace, which goes away with them",
    OWN.agent_secret: "the agents' certificate, filled in on the node",
    OWN.agent_daemon_set: "an agent on every node, reaching pods and webhooks",
    OWN.library: "the functions that bootkube.sh calls",
    OWN.certificate_script: "makes the certificates on the node, for a day",
    RECEIPT: "what undo needs to restore the file exactly",
}


@dataclass(frozen=True)
class FileChange:
    sign: str
    """`+` a file that is new, `~` one that changes, `-` one that goes."""
    path: str
    lines: str
    """How many it has, or gains."""
    why: str


@dataclass(frozen=True)
class Plan:
    spec: TunnelSpec
    """With what was left open filled in from the config."""
    tunnel_state: TunnelState
    """Of the config as it was given."""
    release: str
    platform: str | None
    changes: tuple[FileChange, ...]
    insertions: tuple[Insertion, ...]
    """Those that are not in bootkube.sh yet."""
    size_before: int
    size_after: int
    changes_nothing: bool
    """It is patched with the same spec already."""

    def count(self, sign: str) -> int:
        return sum(change.sign == sign for change in self.changes)

    @property
    def address(self) -> str:
        """Say what agents dial, in words."""
        if self.spec.node_ip is not None:
            return str(self.spec.node_ip)
        networks = ", ".join(str(network) for network in self.spec.machine_networks)
        where = f" in {networks}" if networks else ""
        return f"the node's IPv{self.spec.family} address{where}, found when it boots"

    def notes(self) -> list[str]:
        """Say in a line each what the user should know before applying it."""
        return list(_notes(self))


def changes_of(before: Config, after: Config, insertions: Sequence[Insertion]) -> tuple[FileChange, ...]:
    """Compare our files in two configs; that no other differs is the patch's own promise."""
    old, new = _our_files(before), _our_files(after)
    changed = [_change(path, old.get(path), content) for path, content in new.items() if old.get(path) != content]
    gone = [_change(path, content, None) for path, content in old.items() if path not in new]
    if not insertions:
        return (*changed, *gone)
    lines = sum(insertion.line_count for insertion in insertions)
    why = f"{len(insertions)} places call the tunnel's functions"
    return (*changed, *gone, FileChange("~", BOOTKUBE, f"+{lines} lines", why))


def plan_value(plan: Plan) -> dict[str, Any]:
    """Give a plan as what JSON can hold."""
    return {
        "apiVersion": "umbilical.dev/v1alpha1",
        "kind": "BootstrapPlan",
        "profile": plan.tunnel_state.value,
        "release": plan.release,
        "platform": plan.platform,
        "changesNothing": plan.changes_nothing,
        "changes": [
            {"sign": change.sign, "path": change.path, "lines": change.lines, "why": change.why}
            for change in plan.changes
        ],
        "insertions": [
            {
                "anchor": insertion.anchor.value,
                "beforeLine": insertion.index + 1,
                "text": insertion.text,
                "why": REASONS[insertion.anchor],
            }
            for insertion in plan.insertions
        ],
        "bytesBefore": plan.size_before,
        "bytesAfter": plan.size_after,
        "shape": plan.spec.shape.value,
        "mode": plan.spec.mode.value,
        "namespace": plan.spec.namespace,
        "agentPort": plan.spec.agent_port,
        "nodeIP": str(plan.spec.node_ip) if plan.spec.node_ip is not None else None,
        "machineNetworks": [str(network) for network in plan.spec.machine_networks],
        "notes": plan.notes(),
    }


def _our_files(config: Config) -> dict[str, bytes]:
    return {file.path: file.content() for file in config.files if file.path.startswith(OWN_PREFIXES)}


def _change(path: str, old: bytes | None, new: bytes | None) -> FileChange:
    purpose = PURPOSES.get(path, "part of the tunnel")
    counts = [content.count(b"\n") for content in (old, new) if content is not None]
    if old is None:
        return FileChange("+", path, f"new, {counts[0]} lines", purpose)
    if new is None:
        return FileChange("-", path, f"{counts[0]} lines", purpose)
    return FileChange("~", path, f"{counts[0]} -> {counts[1]} lines", purpose)


def _notes(plan: Plan) -> Iterator[str]:
    if plan.changes_nothing:
        yield "this config is patched in the same way already: nothing changes"
    elif plan.tunnel_state is TunnelState.PATCHED:
        yield "this config is patched in another way: that patch is taken out first, then this one put in"
    if plan.tunnel_state is TunnelState.NATIVE_OFF:
        gates = " or ".join(FEATURE_GATES)
        yield f"this installer has a tunnel of its own, switched off: the feature gate {gates} is the other way"
    warning = size_warning(plan.size_after, plan.platform)
    if warning is not None:
        yield warning
