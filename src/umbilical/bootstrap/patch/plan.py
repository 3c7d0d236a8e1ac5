"""What a patch changes and why: `plan` shows it, `patch` summarises it. Also the size limit of the result: some
platforms carry the whole file in a Secret of at most 1 MiB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT
from umbilical.bootstrap.patch.config_facts import FEATURE_GATES, ClusterFacts, TunnelState
from umbilical.bootstrap.patch.edits import REASONS, Insertion
from umbilical.bootstrap.patch.receipt import OWN_PREFIXES
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.fault import RenderError
from umbilical.ignition.config import Config

SECRET_PLATFORMS: Final = frozenset({"aws", "powervs", "vsphere"})
"""Platforms with the file in Cluster API's bootstrap Secret; the others use a bucket, an image or a disk."""
SECRET_BYTES: Final = 1024 * 1024
# `create cluster` adds one manifest to the file and encodes it again before it goes into the Secret.
RESERVED_BYTES: Final = 8 * 1024
LIMIT_BYTES: Final = SECRET_BYTES - RESERVED_BYTES
WARNING_BYTES: Final = 900 * 1024


def check_size(before: int, after: int, platform: str | None) -> None:
    """Check the size. Raises RenderError: the platform cannot carry the file to the node."""
    if platform not in SECRET_PLATFORMS or after <= LIMIT_BYTES:
        return
    raise RenderError(
        "UMB126",
        f"the patched config would have {after} bytes; the limit on {platform} is {LIMIT_BYTES}",
        f"it goes to the node in a Secret of at most 1 MiB; without the tunnel it has {before} bytes",
        "remove extra manifests from openshift/ and create them after the installation",
    )


def size_warning(after: int, platform: str | None) -> str | None:
    if after <= WARNING_BYTES or (platform is not None and platform not in SECRET_PLATFORMS):
        return None
    where = platform or "AWS, PowerVS and vSphere"
    return f"{after // 1024} KiB: the limit on {where} is {LIMIT_BYTES // 1024} KiB, with little left for manifests"


PURPOSES: Final = {
    OWN.egress: "selects the traffic that kube-apiserver sends through the tunnel",
    OWN.override: "adds the egress file to kube-apiserver's arguments",
    OWN.server_pod: "the server, a static pod next to kube-apiserver",
    OWN.namespace: "the agents' namespace, deleted with them",
    OWN.agent_secret: "the agents' certificate, filled in on the node",
    OWN.agent_daemon_set: "an agent on every node, which dials pods and webhooks",
    OWN.library: "the functions that bootkube.sh calls",
    OWN.certificate_script: "creates the certificates on the node, for one day",
    RECEIPT: "what undo needs to restore the file exactly",
}


@dataclass(frozen=True)
class FileChange:
    sign: str
    """`+` for a new file, `~` for a changed one, `-` for a removed one."""
    path: str
    lines: str
    """Number of lines, or the change of it."""
    why: str


@dataclass(frozen=True)
class Plan:
    spec: TunnelSpec
    """Completed with values from the config."""
    tunnel_state: TunnelState
    """Of the given config."""
    cluster: ClusterFacts
    release: str
    """Range of releases with such a bootkube.sh."""
    platform: str | None
    changes: tuple[FileChange, ...]
    insertions: tuple[Insertion, ...]
    """Only those that are not in bootkube.sh yet."""
    size_before: int
    size_after: int
    changes_nothing: bool
    """It is already patched with the same spec."""

    def count(self, sign: str) -> int:
        return sum(change.sign == sign for change in self.changes)

    @property
    def address(self) -> str:
        if self.spec.node_ip is not None:
            return str(self.spec.node_ip)
        networks = ", ".join(str(network) for network in self.spec.machine_networks)
        where = f" in {networks}" if networks else ""
        return f"the node's IPv{self.spec.family} address{where}, found when it boots"

    def notes(self) -> list[str]:
        return list(_notes(self))


def changes_of(before: Config, after: Config, insertions: Sequence[Insertion]) -> tuple[FileChange, ...]:
    """Compare our files in two configs; a patch changes no others."""
    old, new = _our_files(before), _our_files(after)
    changed = [_change(path, old.get(path), content) for path, content in new.items() if old.get(path) != content]
    gone = [_change(path, content, None) for path, content in old.items() if path not in new]
    if not insertions:
        return (*changed, *gone)
    lines = sum(insertion.line_count for insertion in insertions)
    why = f"calls the tunnel's functions at {len(insertions)} places"
    return (*changed, *gone, FileChange("~", BOOTKUBE, f"+{lines} lines", why))


def plan_value(plan: Plan) -> dict[str, Any]:
    """Return a plan as a JSON value."""
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
        yield "the config is already patched with these options: nothing changes"
    elif plan.tunnel_state is TunnelState.PATCHED:
        yield "the config is patched with other options or by another version: that patch is replaced"
    if plan.tunnel_state is TunnelState.NATIVE_OFF:
        gates = " or ".join(FEATURE_GATES)
        yield f"the installer has its own tunnel, switched off; the feature gate {gates} would switch it on instead"
    for overlap in plan.cluster.overlaps(plan.spec):
        yield f"{overlap} overlap: for an address in both, an agent may reach another machine than kube-apiserver means"
    warning = size_warning(plan.size_after, plan.platform)
    if warning is not None:
        yield warning
