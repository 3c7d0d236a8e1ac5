"""Options of a scenario, and the tunnel's files and objects, rendered as for a real installation.

Server, Secret and DaemonSet have the shape of the options; kube-apiserver's part always has the shape `kubernetes`,
because the lab runs upstream's kube-apiserver.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import yaml

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.bootstrap.render.kube_apiserver import egress_selector, read_static_pod, with_egress_selector
from umbilical.bootstrap.render.render import render
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_ON_HOST, Shape, TunnelSpec, for_shape
from umbilical.lab.images import KONNECTIVITY, UMBILICAL
from umbilical.manifests.tree import AssetTree, yaml_bytes
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import Backend, KeyType
from umbilical.pki.tunnel_set import DAY, TunnelAuthority, TunnelLeaf, TunnelRole, create_authority, load_authority

OURS: Final = UMBILICAL
UPSTREAM: Final = KONNECTIVITY


@dataclass(frozen=True)
class ScenarioOptions:
    shape: Shape = Shape.OPENSHIFT
    server_image: str = OURS
    agent_image: str = OURS
    is_stand_in: bool = False
    """Run without Kubernetes: `lab-admission-caller` calls the webhook."""
    dial_version: int | None = None
    """IP version of the address that agents dial; None: that of the bootstrap node's first address."""

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape.value,
            "serverImage": self.server_image,
            "agentImage": self.agent_image,
            "isStandIn": self.is_stand_in,
            "dialVersion": self.dial_version,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ScenarioOptions":
        return cls(
            Shape(content["shape"]),
            content["serverImage"],
            content["agentImage"],
            bool(content["isStandIn"]),
            content.get("dialVersion"),
        )


AGENT_OBJECTS: Final = (OWN.namespace, OWN.agent_secret, OWN.agent_daemon_set)


@dataclass(frozen=True)
class TunnelParts:
    spec: TunnelSpec
    """For server and agents."""
    authority: TunnelAuthority
    certificates: Certificates
    files: AssetTree
    """For the bootstrap node, with the server's static pod in the manifests directory."""
    objects: tuple[dict[str, Any], ...]
    """Namespace, Secret and DaemonSet for the cluster."""

    @property
    def kube_apiserver_spec(self) -> TunnelSpec:
        """Spec with the socket path as kube-apiserver's container sees it."""
        return for_shape(
            Shape.KUBERNETES, mode=self.spec.mode, socket_directory=BOOTSTRAP_CONFIGS_ON_HOST, node_ip=self.spec.node_ip
        )

    @property
    def egress_file(self) -> bytes:
        """Content of kube-apiserver's `EGRESS_PATH`."""
        return yaml_bytes(egress_selector(self.kube_apiserver_spec))

    def kube_apiserver_pod(self, static_pod: bytes) -> bytes:
        """Return kube-apiserver's manifest, changed to use the tunnel for cluster traffic."""
        return yaml_bytes(with_egress_selector(read_static_pod(static_pod), self.kube_apiserver_spec))


def make_parts(options: ScenarioOptions, bootstrap_address: str, backend: Backend, now: datetime) -> TunnelParts:
    """Create a new CA and its certificates, and render the tunnel."""
    authority = create_authority(backend, now, DAY, KeyType.ECDSA_P256)
    return render_parts(options, bootstrap_address, authority, issue(authority, bootstrap_address, now))


def render_parts(
    options: ScenarioOptions, bootstrap_address: str, authority: TunnelAuthority, certificates: Certificates
) -> TunnelParts:
    spec = for_shape(options.shape, node_ip=ipaddress.ip_address(bootstrap_address), image=options.server_image)
    tree = render(spec, certificates=certificates)
    agents = render(spec.replace(image=options.agent_image), certificates=certificates)
    files = AssetTree()
    for asset in tree:
        content = agents[asset.path].content if asset.path == OWN.agent_daemon_set else asset.content
        files.add(asset.path, content, asset.mode)
    files.add(STATIC_POD, tree[OWN.server_pod].content)
    objects = tuple(yaml.safe_load(agents[path].content) for path in AGENT_OBJECTS if path in agents)
    return TunnelParts(spec, authority, certificates, files, objects)


def issue(authority: TunnelAuthority, bootstrap_address: str, now: datetime) -> Certificates:
    """Issue the server's certificate and one for all agents."""
    server = TunnelLeaf(TunnelRole.SERVER, KeyType.ECDSA_P256, (bootstrap_address,))
    agent = TunnelLeaf(TunnelRole.AGENT, KeyType.ECDSA_P256)
    pairs = [authority.issue(leaf, now, DAY) for leaf in (server, agent)]
    return Certificates(authority.bundle, pairs[0], pairs[1])


def secrets_of(parts: TunnelParts) -> dict[str, str]:
    """Return what `restore_parts` needs, private keys included."""
    pairs = {
        "authority": parts.authority.signer.pair,
        "server": parts.certificates.server,
        "agent": parts.certificates.agent,
    }
    texts = {"bundle": parts.authority.bundle.decode()}
    for name, pair in pairs.items():
        texts |= {f"{name}.crt": pair.certificate.decode(), f"{name}.key": pair.key.decode()}
    return texts


def restore_parts(
    options: ScenarioOptions, bootstrap_address: str, backend: Backend, secrets: Mapping[str, str], now: datetime
) -> TunnelParts:
    """Restore a tunnel from the result of `secrets_of`."""

    def pair(name: str) -> KeyPair:
        return KeyPair(secrets[f"{name}.crt"].encode(), secrets[f"{name}.key"].encode())

    authority = load_authority(backend, pair("authority"), now)
    certificates = Certificates(secrets["bundle"].encode(), pair("server"), pair("agent"))
    return render_parts(options, bootstrap_address, authority, certificates)
