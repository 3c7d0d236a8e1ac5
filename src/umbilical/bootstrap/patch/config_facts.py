"""Facts in a bootstrap config: the cluster's platform, machine networks and first IP family; and the state of the
tunnel: none, the installer's own (off or on), or patched by us."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import yaml

from umbilical.bootstrap.names import BOOTKUBE, NATIVE, OWN, RECEIPT, STAGES
from umbilical.bootstrap.patch.edits import OVERRIDE_FLAG
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.fault import IgnitionError
from umbilical.ignition.config import Config
from umbilical.manifests.objects import IpNetwork

CLUSTER_CONFIG: Final = "/opt/openshift/manifests/cluster-config.yaml"
NETWORK_CONFIG: Final = "/opt/openshift/manifests/cluster-network-02-config.yml"


@dataclass(frozen=True)
class ClusterFacts:
    """Missing or unreadable values are None or empty: a patch works without them."""

    platform: str | None = None
    machine_networks: tuple[IpNetwork, ...] = ()
    service_networks: tuple[IpNetwork, ...] = ()

    @property
    def use_ipv6(self) -> bool:
        """The first service network decides, as in the installer."""
        return bool(self.service_networks) and self.service_networks[0].version == 6

    def complete(self, spec: TunnelSpec) -> TunnelSpec:
        """Fill in missing fields of the spec. A given address or network also decides the IP family."""
        if spec.node_ip is not None or spec.machine_networks:
            return spec
        return spec.replace(use_ipv6=spec.use_ipv6 or self.use_ipv6, machine_networks=self.machine_networks)


def cluster_facts(config: Config) -> ClusterFacts:
    install_config = _mapping(_parse(_mapping(_manifest(config, CLUSTER_CONFIG), "data").get("install-config")))
    networking = _mapping(install_config, "networking")
    machines = networking.get("machineNetwork")
    cidrs = [_mapping(machine).get("cidr") for machine in machines] if isinstance(machines, list) else []
    services = _mapping(_manifest(config, NETWORK_CONFIG), "spec").get("serviceNetwork")
    return ClusterFacts(
        platform=next((str(name) for name in _mapping(install_config, "platform")), None),
        machine_networks=_networks(cidrs),
        service_networks=_networks(services or networking.get("serviceNetwork")),
    )


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


def tunnel_state_of(config: Config) -> TunnelState:
    """Classify by the scripts: the installer writes all its files even if its tunnel is off."""
    bootkube = _text(config, BOOTKUBE)
    if config.file(RECEIPT) is not None or f". {OWN.library}\n" in bootkube:
        return TunnelState.PATCHED
    if config.file(NATIVE.library) is None and "konnectivity_" not in bootkube:
        return TunnelState.NONE
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
