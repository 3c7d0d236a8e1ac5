"""Adds the tunnel to an installer's bootstrap config, and removes it byte for byte. Refuses unknown configs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT, SERVICE_RECORD
from umbilical.bootstrap.patch.anchors import release_line
from umbilical.bootstrap.patch.config_facts import ClusterFacts, TunnelState, cluster_facts, tunnel_state_of
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG, Insertion, insert, insertions, remove
from umbilical.bootstrap.patch.plan import Plan, changes_of, check_size
from umbilical.bootstrap.patch.receipt import AGAIN, Receipt, digests_of, find_receipt, sha256
from umbilical.bootstrap.render.render import render
from umbilical.bootstrap.spec import Shape, TunnelSpec
from umbilical.fault import RenderError
from umbilical.ignition.config import Config, check_version, faults
from umbilical.ignition.data_url import format_data_url, is_data_url
from umbilical.ignition.document import IgnitionDocument
from umbilical.manifests.tree import SECRET_MODE, Asset, AssetTree

IN_PLACE: Final = "BOOTSTRAP_INPLACE=true"
SHOWN_FAULTS: Final = 3


@dataclass(frozen=True)
class Patch:
    document: IgnitionDocument
    plan: Plan


def patch(document: IgnitionDocument, spec: TunnelSpec, platform: str | None = None) -> Patch:
    """Return the document with the tunnel. An older patch in it is replaced.

    Machine networks, IP family and platform come from the config where they are not given.

    Raises:
        RenderError: the config cannot be patched; the message has the reason.
        IgnitionError: its version is not supported, or it cannot be edited.
    """
    _check_shape(spec)
    state = tunnel_state_of(document.config)
    is_patched = state is TunnelState.PATCHED
    original = undo(document) if is_patched else document
    script = _checked_script(original.config)
    facts = cluster_facts(original.config)
    spec = facts.complete(spec)
    _check_family(spec, facts)
    tree = render(spec, OWN)
    _check_free(original.config, tree)
    planned = tuple(insertions(script))
    receipt = _receipt(original, script, planned, tree)
    receipt = receipt.continuing(find_receipt(document.config)) if is_patched else receipt
    patched = original.with_content(BOOTKUBE, insert(script, planned).encode())
    patched = patched.with_files([_entry(asset) for asset in (*tree, Asset(RECEIPT, receipt.encode(), SECRET_MODE))])
    platform = platform or facts.platform
    check_size(len(original.content), len(patched.content), platform)
    _check_faultless(original.config, patched.config)
    missing = () if _bootkube(document) == _bootkube(patched) else planned
    plan = Plan(
        spec=spec,
        tunnel_state=state,
        cluster=facts,
        release=release_line(script),
        platform=platform,
        changes=changes_of(document.config, patched.config, missing),
        insertions=missing,
        size_before=len(document.content),
        size_after=len(patched.content),
        changes_nothing=patched.content == document.content,
    )
    return Patch(patched, plan)


def undo(document: IgnitionDocument) -> IgnitionDocument:
    """Remove the tunnel. Without other changes since, the bytes are those from before the first patch.

    Raises RenderError: the document is not patched, or its patch was edited.
    """
    receipt = _receipt_of(document.config)
    script = remove(_script(document.config), list(receipt.insertions.values()))
    present = {file.path for file in document.config.files}
    document = document.without_files([path for path in receipt.files if path in present])
    if receipt.entry is not None and sha256(script.encode()) == receipt.script_sha256:
        return document.with_entry_text(BOOTKUBE, receipt.entry)
    return document.with_content(BOOTKUBE, script.encode())


def _check_shape(spec: TunnelSpec) -> None:
    if spec.shape is Shape.KUBERNETES:
        raise RenderError(
            "UMB131",
            "patch does not support shape kubernetes",
            "an OpenShift bootstrap node renders kube-apiserver itself; there is no manifest to add mounts to",
            "umbilical bootstrap render --shape kubernetes",
        )


def _check_family(spec: TunnelSpec, facts: ClusterFacts) -> None:
    """The node searches an address of the cluster's first IP family; a given one may be of the second."""
    families = [network.version for network in facts.service_networks]
    allowed = families if spec.node_ip is not None else families[:1]
    if allowed and spec.family not in allowed:
        shown = ", ".join(str(network) for network in facts.service_networks)
        raise RenderError(
            "UMB133",
            f"an IPv{spec.family} address for agents does not fit the cluster",
            f"the cluster's service network is {shown}",
            "give --node-ip or --machine-network of that IP family, or remove these options",
        )


def _checked_script(config: Config) -> str:
    """Return bootkube.sh. Raises RenderError: the config cannot be patched."""
    check_version(config)
    if config.is_pointer:
        raise RenderError(
            "UMB122",
            "the config is a pointer config",
            "ignition.config names another config that is fetched at boot and contains bootkube.sh",
            "patch the bootstrap.ign that it points to, before the upload",
        )
    script = _script(config)
    if IN_PLACE in script.split("\n"):
        raise RenderError(
            "UMB123",
            "the config is for bootstrap-in-place",
            f"bootkube.sh has {IN_PLACE}: no node, and so no agent, joins while the bootstrap API server runs",
            "no action needed: single-node installations need no tunnel",
        )
    _check_native(config, script)
    _check_record(script)
    return script


def _check_native(config: Config, script: str) -> None:
    state = tunnel_state_of(config)
    if state is TunnelState.INLINE:
        raise RenderError(
            "UMB125",
            "bootkube.sh already has a tunnel",
            "it is inline, as in the first plan: shell blocks write the server's pod and the agents' manifests",
            "check that tunnel: umbilical bootstrap verify FILE; or patch the file of an installer without it",
        )
    if state is TunnelState.NATIVE_ON:
        raise RenderError(
            "UMB124",
            "the installer's own tunnel is on",
            f"bootkube.sh passes {OVERRIDE_FLAG}, or the installer's library has the tunnel's steps",
            "no patch needed; check the installer's tunnel: umbilical bootstrap verify FILE",
        )
    if OVERRIDE_FLAG in script:
        raise RenderError(
            "UMB125",
            f"bootkube.sh already passes {OVERRIDE_FLAG}",
            "another change overrides kube-apiserver's configuration, and only one override can apply",
            "remove that change first",
        )


def _check_record(script: str) -> None:
    sources = ([".", SERVICE_RECORD], ["source", SERVICE_RECORD])
    if not any(line.split() in sources for line in script.split("\n")):
        raise RenderError(
            "UMB121",
            "bootkube.sh was not recognised: it has no service record",
            f"no line sources {SERVICE_RECORD}, whose functions the tunnel's steps call; early installers of release 4 "
            "do not have it",
            "patch the output of an installer of release 4.12 or later",
        )


def _script(config: Config) -> str:
    found = config.files_at(BOOTKUBE)
    if len(found) != 1:
        why = f"it has {len(found)} files with that path; is it a master.ign, a worker.ign or another config?"
        raise RenderError("UMB120", f"{BOOTKUBE} was not found exactly once", why, "give the installer's bootstrap.ign")
    source = found[0].source
    if source is None or not is_data_url(source):
        kind = "missing" if source is None else f"fetched by {source.partition(':')[0]}:"
        why = f"its content is {kind}, not in the config itself"
        raise RenderError("UMB120", f"{BOOTKUBE} was not patched", why, "give the bootstrap.ign that contains it")
    return found[0].text()


def _bootkube(document: IgnitionDocument) -> bytes:
    return document.config.files_at(BOOTKUBE)[0].content()


def _check_free(config: Config, tree: AssetTree) -> None:
    taken = [file.path for file in config.files if file.path in tree or file.path == RECEIPT]
    if taken:
        raise RenderError(
            "UMB125",
            f"the config already has {taken[0]}",
            f"it has {len(taken)} files at paths that a patch writes, but no receipt of a patch",
            AGAIN,
        )


def _check_faultless(before: Config, after: Config) -> None:
    found = faults(after)
    if not found:
        return
    old = faults(before)
    when = "even without the patch" if old else "with the patch"
    more = f" (and {len(found) - SHOWN_FAULTS} more)" if len(found) > SHOWN_FAULTS else ""
    why = "; ".join(found[:SHOWN_FAULTS]) + more
    raise RenderError("UMB127", f"Ignition would reject the config {when}", why, AGAIN)


def _receipt(original: IgnitionDocument, script: str, planned: tuple[Insertion, ...], tree: AssetTree) -> Receipt:
    patched = insert(script, planned).encode()
    text = original.entry_text(BOOTKUBE)
    return Receipt(
        original_sha256=sha256(original.content),
        script_sha256=sha256(script.encode()),
        files=(*(asset.path for asset in tree), RECEIPT),
        insertions={insertion.anchor.value: insertion.text for insertion in planned},
        entry=None if _comes_back(text, script.encode(), patched) else text,
        lines=digests_of(script),
    )


def _comes_back(entry: str, script: bytes, patched: bytes) -> bool:
    """Whether encoding the entry again gives the same text; gzip and unusual escapes do not."""
    alone = IgnitionDocument(f'{{"ignition":{{"version":"3.2.0"}},"storage":{{"files":[{entry}]}}}}'.encode())
    return alone.with_content(BOOTKUBE, patched).with_content(BOOTKUBE, script).entry_text(BOOTKUBE) == entry


def _receipt_of(config: Config) -> Receipt:
    if config.file(RECEIPT) is None and tunnel_state_of(config) is TunnelState.PATCHED:
        why = f"bootkube.sh sources {OWN.library}, but {RECEIPT} is missing"
        raise RenderError("UMB129", "the patch was not removed", why, AGAIN)
    return find_receipt(config)


def _entry(asset: Asset) -> Mapping[str, Any]:
    """Return an Ignition file entry with the installer's order of keys, owner and encoding."""
    return {
        "overwrite": True,
        "path": asset.path,
        "user": {"name": "root"},
        "contents": {"source": format_data_url(asset.content)},
        "mode": asset.mode,
    }
