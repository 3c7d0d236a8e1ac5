"""The lines of explanations with a cluster's own values in place of the words that stand for them."""

import re
from dataclasses import replace
from typing import Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.hardway.explain.entry import Entry, EntryKind

_PATH: Final = re.compile(r"(?<![\w/.-])(artifacts/|auth/|cluster\.yaml|release/)")


def filled(entry: Entry, cluster: Cluster, folder: str, asked: str = "") -> Entry:
    """Put addresses, names and the cluster's directory into the line that is to be typed."""
    line = entry.by_hand
    for word, value in _values(cluster, entry, asked).items():
        line = value.join(re.split(rf"(?<![A-Z]){word}(?![A-Z]|-[A-Z])", line))
    line = line.replace("172.30.0.1:", f"{cluster.service_ip}:")
    return replace(entry, by_hand=_PATH.sub(lambda match: _below(folder, match.group()), line))


def _below(folder: str, path: str) -> str:
    whole = f"artifacts/{path}" if path == "auth/" else path
    return whole if folder in ("", ".") else f"{folder.rstrip('/')}/{whole}"


def _values(cluster: Cluster, entry: Entry, asked: str) -> dict[str, str]:
    first_worker = cluster.routers[0]
    node = next((one for one in cluster.nodes if _names(one.id, asked)), cluster.masters[0])
    is_about_ids = entry.kind in (EntryKind.CERTIFICATE, EntryKind.FILE)
    return {
        "BOOTSTRAP": str(cluster.bootstrap.address),
        "MASTER": str(cluster.masters[0].address),
        "WORKER": str(first_worker.address),
        "NODE-ADDRESS": str(node.address),
        "NODE": node.id if is_about_ids else str(node.address),
        "DOMAIN": cluster.domain,
        "RESOLVER": str(cluster.networks.dns),
        "DIR": ".",
    }


def _names(node_id: str, asked: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(node_id)}(?![0-9])", asked) is not None
