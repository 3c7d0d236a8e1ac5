"""What the render commands read: file names are compiled into them, so these are exact."""

from collections.abc import Callable, Mapping
from typing import Final

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.artifacts.machine_config import commands
from umbilical.hardway.artifacts.manifests import config_resources as config
from umbilical.hardway.artifacts.manifests import installation
from umbilical.hardway.artifacts.manifests.feature_gate import feature_gate
from umbilical.hardway.artifacts.manifests.file import Make, yaml_stream
from umbilical.hardway.artifacts.release import IMAGE_REFERENCES
from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.tree import PUBLIC_MODE, SCRIPT_MODE, SECRET_MODE, AssetTree

MANIFESTS: Final[Mapping[str, tuple[Make, str]]] = {
    commands.FEATURE_GATE_FILE: (feature_gate, "The feature gates of this version."),
    "cluster-config.yaml": (installation.cluster_config, "The installer's configuration."),
    "cluster-dns-02-config.yml": (config.dns, "The cluster's domain."),
    "cluster-infrastructure-02-config.yml": (config.infrastructure, "Platform and topologies, status included."),
    "cluster-network-02-config.yml": (config.network, "The networks and their plugin."),
    "cluster-proxy-01-config.yaml": (config.proxy, "That there is no proxy."),
    commands.PULL_SECRET_FILE: (installation.pull_secret, "Access to registries, which goes onto every node."),
}
"""Name below manifests/ -> the same objects that are applied, and what they say."""
CERTIFICATES: Final[Mapping[str, tuple[Callable[[Inputs], bytes], str]]] = {
    "root-ca.crt": (
        lambda inputs: inputs.certificates["root-ca"].certificate,
        "By whom nodes know the machine config server.",
    ),
    f"{Bundle.CLIENT_CA.value}.crt": (
        lambda inputs: inputs.certificates.bundle(Bundle.CLIENT_CA),
        "Whose clients kubelets believe.",
    ),
}


def render_machine_config(inputs: Inputs, made: AssetTree) -> AssetTree:
    """Make machine-config/; in the kubernetes profile there is none."""
    tree = AssetTree()
    if not inputs.cluster.is_openshift:
        return tree
    folder = layout.MACHINE_CONFIG
    for name, (pem, _) in sorted(CERTIFICATES.items()):
        tree.add(f"{folder}/tls/{name}", pem(inputs), PUBLIC_MODE)
    for name, (make, _) in sorted(MANIFESTS.items()):
        mode = SECRET_MODE if name == commands.PULL_SECRET_FILE else PUBLIC_MODE
        tree.add(f"{folder}/manifests/{name}", yaml_stream(make(inputs)), mode)
    tree.add(f"{folder}/{IMAGE_REFERENCES}", inputs.payload.manifests[IMAGE_REFERENCES], PUBLIC_MODE)
    tree.add(f"{folder}/{commands.SCRIPT}", commands.script(inputs.payload), SCRIPT_MODE)
    return tree


def _topic(name: str, what: str, by_hand: str) -> Topic:
    return Topic(
        TopicKind.FILE,
        f"{layout.MACHINE_CONFIG}/{name}",
        commands.STAGE,
        what,
        f"{commands.SCRIPT}: the machine-config operator, which expects exactly this name.",
        "The operator ends with the name of the file that it cannot read.",
        by_hand,
        "The installer leaves the same file in /opt/openshift on the bootstrap node.",
    )


def _path(name: str) -> str:
    return f"artifacts/{layout.MACHINE_CONFIG}/{name}"


TOPICS: Final = (
    *(_topic(f"manifests/{name}", what, f"cat {_path(f'manifests/{name}')}") for name, (_, what) in MANIFESTS.items()),
    *(
        _topic(f"tls/{name}", what, f"openssl x509 -noout -subject -enddate -in {_path(f'tls/{name}')}")
        for name, (_, what) in CERTIFICATES.items()
    ),
)
