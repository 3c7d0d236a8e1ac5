"""Facts in a bootstrap config: the cluster's platform, networks and infra id; the installer's release; and the state of
the tunnel: none, the installer's own (off or on), patched by us, or inline as in the first plan."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import yaml

from umbilical.bootstrap.names import BOOTKUBE, INLINE, NATIVE, OWN, RECEIPT, STAGES, STATIC_POD
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.fault import IgnitionError, RenderError
from umbilical.ignition.config import Config
from umbilical.manifests.objects import IpNetwork

CLUSTER_CONFIG: Final = "/opt/openshift/manifests/cluster-config.yaml"
NETWORK_CONFIG: Final = "/opt/openshift/manifests/cluster-network-02-config.yml"
INFRASTRUCTURE_CONFIG: Final = "/opt/openshift/manifests/cluster-infrastructure-02-config.yml"
INSTALLER_CONFIG: Final = "/opt/openshift/openshift/openshift-install-manifests.yaml"
_RELEASE: Final = re.compile(r"v?([1-9][0-9]?\.[0-9]{1,2})\.")
# For platforms and infra ids, which become parts of paths and commands.
SAFE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class ClusterFacts:
    """Missing or unreadable values are None or empty: a patch works without them."""

    platform: str | None = None
    machine_networks: tuple[IpNetwork, ...] = ()
    pod_networks: tuple[IpNetwork, ...] = ()
    service_networks: tuple[IpNetwork, ...] = ()
    infra_id: str | None = None
    release: str | None = None
    """Major and minor version of the installer; development builds have none."""

    @property
    def use_ipv6(self) -> bool:
        """The first service network decides, as in the installer."""
        return bool(self.service_networks) and self.service_networks[0].version == 6

    def complete(self, spec: TunnelSpec) -> TunnelSpec:
        """Fill in missing fields of the spec. A given address or network also decides the IP family.

        Raises RenderError: the given address is not a machine's.
        """
        self._check_address(spec)
        if spec.node_ip is not None or spec.machine_networks:
            return spec
        return spec.replace(use_ipv6=spec.use_ipv6 or self.use_ipv6, machine_networks=self.machine_networks)

    def overlaps(self, spec: TunnelSpec) -> Iterator[str]:
        """Describe the networks that have addresses in common: such an address is ambiguous for an agent."""
        named = [
            *(("machine", network) for network in spec.machine_networks or self.machine_networks),
            *(("pod", network) for network in self.pod_networks),
            *(("service", network) for network in self.service_networks),
        ]
        for index, (kind, network) in enumerate(named):
            for other_kind, other in named[index + 1 :]:
                if kind != other_kind and network.overlaps(other):
                    yield f"{kind} network {network} and {other_kind} network {other}"

    def _check_address(self, spec: TunnelSpec) -> None:
        for kind, networks in (("pod", self.pod_networks), ("service", self.service_networks)):
            for network in networks:
                if spec.node_ip is not None and spec.node_ip in network:
                    raise RenderError(
                        "UMB133",
                        f"agents cannot dial the bootstrap machine at {spec.node_ip}",
                        f"the address is in the cluster's {kind} network {network}, which has no machines",
                        "give --node-ip with an address of the machine, or leave it out: the node then finds it",
                    )


def cluster_facts(config: Config) -> ClusterFacts:
    install_config = _mapping(_parse(_mapping(_manifest(config, CLUSTER_CONFIG), "data").get("install-config")))
    networking = _mapping(install_config, "networking")
    network = _mapping(_manifest(config, NETWORK_CONFIG), "spec")
    return ClusterFacts(
        platform=next((str(name) for name in _mapping(install_config, "platform")), None),
        machine_networks=_networks(_cidrs(networking.get("machineNetwork"))),
        pod_networks=_networks(_cidrs(network.get("clusterNetwork") or networking.get("clusterNetwork"))),
        service_networks=_networks(network.get("serviceNetwork") or networking.get("serviceNetwork")),
        infra_id=_infra_id(_mapping(_manifest(config, INFRASTRUCTURE_CONFIG), "status").get("infrastructureName")),
        release=installer_release(_manifest(config, INSTALLER_CONFIG)),
    )


def installer_release(manifest: Mapping[str, Any]) -> str | None:
    """Return the release in the installer's ConfigMap `openshift-install-manifests`, such as `4.18`."""
    found = _RELEASE.match(str(_mapping(manifest, "data").get("version")))
    return found[1] if found else None


def _infra_id(value: object) -> str | None:
    return value if isinstance(value, str) and SAFE_NAME.fullmatch(value) else None


def _cidrs(items: object) -> list[object]:
    return [_mapping(item).get("cidr") for item in items] if isinstance(items, list) else []


def _manifest(config: Config, path: str) -> Mapping[str, Any]:
    file = config.file(path)
    try:
        return _mapping(_parse(file.text())) if file is not None else {}
    except IgnitionError:
        return {}


def _parse(text: object) -> object:
    try:
        return yaml.safe_load(text) if isinstance(text, str) else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _mapping(value: object, key: str | None = None) -> Mapping[str, Any]:
    if key is not None:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _networks(values: object) -> tuple[IpNetwork, ...]:
    found: list[IpNetwork] = []
    for value in values if isinstance(values, list) else []:
        try:
            found.append(ipaddress.ip_network(str(value), strict=False))
        except ValueError:
            continue
    return tuple(found)


FEATURE_GATES: Final = ("CRDCompatibilityRequirementOperator", "ClusterAPIMachineManagement")
"""Either of them switches the installer's own tunnel on; both need a preview feature set."""


class TunnelState(Enum):
    NONE = "none"
    NATIVE_OFF = "native-off"
    """The installer has its own tunnel, with feature gates off: the files exist, the functions are empty."""
    NATIVE_ON = "native-on"
    PATCHED = "patched"
    INLINE = "inline"
    """The first plan's tunnel: shell blocks in bootkube.sh write the server's pod and the agents' manifests."""


def tunnel_state_of(config: Config) -> TunnelState:
    """Classify by the scripts: the installer writes all its files even if its tunnel is off."""
    bootkube = _text(config, BOOTKUBE)
    if config.file(RECEIPT) is not None or f". {OWN.library}\n" in bootkube:
        return TunnelState.PATCHED
    if config.file(NATIVE.library) is None and "konnectivity_" not in bootkube:
        is_inline = STATIC_POD in bootkube or f"{OVERRIDE_FLAG}={INLINE.override_in_render_container}" in bootkube
        return TunnelState.INLINE if is_inline else TunnelState.NONE
    has_flag = f"{OVERRIDE_FLAG}={NATIVE.override_in_render_container}" in bootkube
    library = _text(config, NATIVE.library)
    has_stages = any(stage in library for stage in STAGES)
    # One of the two counts as on: patching next to a tunnel that may run is worse than refusing.
    return TunnelState.NATIVE_ON if has_flag or has_stages else TunnelState.NATIVE_OFF


def _text(config: Config, path: str) -> str:
    """Read a script; an unreadable one is empty here, and reported elsewhere."""
    file = config.file(path)
    if file is None:
        return ""
    try:
        return file.content().decode("utf-8", "replace")
    except IgnitionError:
        return ""
