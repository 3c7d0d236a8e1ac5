"""Puts the tunnel into an installer's bootstrap config, and takes it out to the byte. Refuses before it guesses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT, SERVICE_RECORD
from umbilical.bootstrap.patch.anchors import release_line
from umbilical.bootstrap.patch.config_facts import ClusterFacts, TunnelState, cluster_facts, tunnel_state_of
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG, Insertion, insert, insertions, remove
from umbilical.bootstrap.patch.plan import Plan, changes_of, check_size
from umbilical.bootstrap.patch.receipt import AGAIN, Receipt, find_receipt, sha256
from umbilical.bootstrap.render.render import render
from umbilical.bootstrap.spec import Shape, TunnelSpec
from umbilical.fault import RenderError
from umbilical.ignition.config import Config, check_version, faults
from umbilical.ignition.data_url import format_data_url, is_data_url
from umbilical.ignition.document import Document
from umbilical.manifests.tree import SECRET_MODE, Asset, AssetTree

IN_PLACE: Final = "BOOTSTRAP_INPLACE=true"
SHOWN_FAULTS: Final = 3


@dataclass(frozen=True)
class Patch:
    document: Document
    plan: Plan


def patch(document: Document, spec: TunnelSpec, platform: str | None = None) -> Patch:
    """Give the document with the tunnel in it. A document that is patched already is brought to this spec.

    What the spec leaves open (machine networks, IP family) and the platform are taken from the config itself.

    Raises:
        RenderError: it is no config that can be patched; the message says why.
        IgnitionError: its version is not supported, or it cannot be edited.
    """
    _check_shape(spec)
    state = tunnel_state_of(document.config)
    original = undo(document) if state is TunnelState.PATCHED else document
    script = _checked_script(original.config)
    facts = cluster_facts(original.config)
    spec = facts.complete(spec)
    _check_family(spec, facts)
    tree = render(spec, OWN)
    _check_free(original.config, tree)
    planned = tuple(insertions(script))
    receipt = _receipt(original, script, planned, tree)
    patched = original.with_content(BOOTKUBE, insert(script, planned).encode())
    patched = patched.with_files([_entry(asset) for asset in (*tree, Asset(RECEIPT, receipt, SECRET_MODE))])
    platform = platform or facts.platform
    check_size(len(original.content), len(patched.content), platform)
    _check_faultless(original.config, patched.config)
    missing = () if _bootkube(document) == _bootkube(patched) else planned
    plan = Plan(
        spec=spec,
        tunnel_state=state,
        release=release_line(script),
        platform=platform,
        changes=changes_of(document.config, patched.config, missing),
        insertions=missing,
        size_before=len(document.content),
        size_after=len(patched.content),
        changes_nothing=patched.content == document.content,
    )
    return Patch(patched, plan)


def undo(document: Document) -> Document:
    """Take the tunnel out. Where nothing else was changed since, the bytes are those from before the patch.

    Raises RenderError: the document is not patched, or what the patch left was edited.
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
            "shape kubernetes cannot be patched into a bootstrap config",
            "an OpenShift bootstrap node renders its kube-apiserver itself; there is no manifest to add mounts to",
            "umbilical bootstrap render --shape kubernetes",
        )


def _check_family(spec: TunnelSpec, facts: ClusterFacts) -> None:
    """An address is looked for in the cluster's first family; a given one may be of its second, too."""
    families = [network.version for network in facts.service_networks]
    allowed = families if spec.node_ip is not None else families[:1]
    if allowed and spec.family not in allowed:
        shown = ", ".join(str(network) for network in facts.service_networks)
        raise RenderError(
            "UMB133",
            f"agents would be told an IPv{spec.family} address",
            f"nodes would not use it: the cluster's service network is {shown}",
            "give a --node-ip or --machine-network of that family, or leave them out",
        )


def _checked_script(config: Config) -> str:
    """Read bootkube.sh of a config that may be patched; refuse any other."""
    check_version(config)
    if config.is_pointer:
        raise RenderError(
            "UMB122",
            "this is a pointer config",
            "ignition.config names another config that is fetched at boot, and bootkube.sh is in that one",
            "patch the bootstrap.ign that it points to, before it is uploaded",
        )
    script = _script(config)
    if IN_PLACE in script.split("\n"):
        raise RenderError(
            "UMB123",
            "this config is for bootstrap-in-place",
            f"bootkube.sh says {IN_PLACE}: no node joins while the bootstrap kube-apiserver runs, so no agent could",
            "nothing is to be done: single-node installations need no tunnel",
        )
    _check_native(config, script)
    _check_record(script)
    return script


def _check_native(config: Config, script: str) -> None:
    if tunnel_state_of(config) is TunnelState.NATIVE_ON:
        raise RenderError(
            "UMB124",
            "this installer has brought its own tunnel, and it is on",
            f"bootkube.sh passes {OVERRIDE_FLAG} or the installer's library has its stages",
            "umbilical bootstrap verify FILE",
        )
    if OVERRIDE_FLAG in script:
        raise RenderError(
            "UMB125",
            f"bootkube.sh passes {OVERRIDE_FLAG} already",
            "something else overrides kube-apiserver's configuration, and one override would hide the other",
            "take that change out first",
        )


def _check_record(script: str) -> None:
    sources = ([".", SERVICE_RECORD], ["source", SERVICE_RECORD])
    if not any(line.split() in sources for line in script.split("\n")):
        raise RenderError(
            "UMB121",
            "bootkube.sh is not recognised: it keeps no service record",
            f"no line sources {SERVICE_RECORD}, and the tunnel's stages call its functions; the first installers of "
            "release 4 had none",
            "patch the output of an installer of release 4.12 or later",
        )


def _script(config: Config) -> str:
    found = config.files_at(BOOTKUBE)
    if len(found) != 1:
        why = (
            f"there are {len(found)} files of that path; this may be a master.ign, worker.ign or no installer's config"
        )
        raise RenderError("UMB120", f"{BOOTKUBE} is not there once", why, "give the installer's bootstrap.ign")
    source = found[0].source
    if source is None or not is_data_url(source):
        kind = "nowhere" if source is None else f"{source.partition(':')[0]}:"
        why = f"its content comes from {kind}, not from the config itself"
        raise RenderError("UMB120", f"{BOOTKUBE} cannot be patched", why, "give the bootstrap.ign that carries it")
    return found[0].text()


def _bootkube(document: Document) -> bytes:
    return document.config.files_at(BOOTKUBE)[0].content()


def _check_free(config: Config, tree: AssetTree) -> None:
    taken = [file.path for file in config.files if file.path in tree or file.path == RECEIPT]
    if taken:
        raise RenderError(
            "UMB125",
            f"{taken[0]} is there already",
            f"{len(taken)} of the paths that a patch writes are taken by files that no patch left",
            AGAIN,
        )


def _check_faultless(before: Config, after: Config) -> None:
    found = faults(after)
    if not found:
        return
    old = faults(before)
    when = "before it was patched" if old else "once patched"
    more = f" (and {len(found) - SHOWN_FAULTS} more)" if len(found) > SHOWN_FAULTS else ""
    why = "; ".join(found[:SHOWN_FAULTS]) + more
    raise RenderError("UMB127", f"Ignition would refuse this config {when}", why, AGAIN)


def _receipt(original: Document, script: str, planned: tuple[Insertion, ...], tree: AssetTree) -> bytes:
    patched = insert(script, planned).encode()
    text = original.entry_text(BOOTKUBE)
    return Receipt(
        original_sha256=sha256(original.content),
        script_sha256=sha256(script.encode()),
        files=(*(asset.path for asset in tree), RECEIPT),
        insertions={insertion.anchor.value: insertion.text for insertion in planned},
        entry=None if _comes_back(text, script.encode(), patched) else text,
    ).encode()


def _comes_back(entry: str, script: bytes, patched: bytes) -> bool:
    """Tell whether changing the entry there and back gives the same text: gzip and odd escapes do not."""
    alone = Document(f'{{"ignition":{{"version":"3.2.0"}},"storage":{{"files":[{entry}]}}}}'.encode())
    return alone.with_content(BOOTKUBE, patched).with_content(BOOTKUBE, script).entry_text(BOOTKUBE) == entry


def _receipt_of(config: Config) -> Receipt:
    if config.file(RECEIPT) is None and tunnel_state_of(config) is TunnelState.PATCHED:
        why = f"bootkube.sh sources {OWN.library}, but {RECEIPT} is gone"
        raise RenderError("UMB129", "the patch in this config cannot be taken out", why, AGAIN)
    return find_receipt(config)


def _entry(asset: Asset) -> Mapping[str, Any]:
    """Write a file as the installer writes its own: its order of keys, owner and encoding."""
    return {
        "overwrite": True,
        "path": asset.path,
        "user": {"name": "root"},
        "contents": {"source": format_data_url(asset.content)},
        "mode": asset.mode,
    }
