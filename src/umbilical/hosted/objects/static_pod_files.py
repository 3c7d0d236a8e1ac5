"""What a kube-apiserver that is a static pod needs on its node: such pods get no Secrets and no ConfigMaps."""

import posixpath
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.certificates import authorities
from umbilical.hosted.objects.egress_selector import egress_selector
from umbilical.hosted.objects.identities import identities_text
from umbilical.hosted.objects.server_sidecar import TMP_VOLUME
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.hosted.pki.certificate_set import HostedSet
from umbilical.hosted.pki.table import CLIENT, CLUSTER, SERVER
from umbilical.manifests.objects import Object
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree, yaml_bytes

DIRECTORY: Final = "/etc/kubernetes/konnectivity"
LOCAL_URL: Final = f"https://127.0.0.1:{names.FRONTEND_PORT}"
"""The server in the same pod: on a node's network, names of Services mean nothing."""
_FOLDERS: Final = {
    "cluster-certs": "cluster",
    "server-certs": "server",
    "konnectivity-client": "client",
    "konnectivity-ca": "ca",
    "egress-selector-config": "egress-selector",
}
_PAIRS: Final = {"cluster": CLUSTER, "server": SERVER, "client": CLIENT}
_IDENTITIES: Final = "identities"


def static_volumes(spec: HostedSpec) -> list[Object]:
    folders = {**_FOLDERS, "agent-identities": _IDENTITIES} if spec.is_ours else _FOLDERS
    return [
        *({"name": name, "hostPath": {"path": _path(folder), "type": "Directory"}} for name, folder in folders.items()),
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]


def add_static_files(tree: AssetTree, root: str, spec: HostedSpec, certificates: HostedSet) -> None:
    """Put the files below `root`, which stands for the node's own."""
    for folder, leaf in _PAIRS.items():
        pair = certificates.leaves[leaf.id]
        tree.add(root + _path(folder, "tls.crt"), pair.certificate, PUBLIC_MODE)
        tree.add(root + _path(folder, "tls.key"), pair.key, SECRET_MODE)
    for key, bundle in authorities(certificates).items():
        tree.add(root + _path("ca", key), bundle, PUBLIC_MODE)
    egress = yaml_bytes(egress_selector(spec, LOCAL_URL))
    tree.add(root + _path("egress-selector", names.EGRESS_KEY), egress, PUBLIC_MODE)
    if spec.is_ours:
        tree.add(root + _path(_IDENTITIES, names.IDENTITIES_KEY), identities_text(spec).encode(), PUBLIC_MODE)


def _path(*parts: str) -> str:
    return posixpath.join(DIRECTORY, *parts)
