"""The node that a static pod runs on, paths of that node's files inside its pods, and tables of flags.

Each row of a table has its value for a node, its reason, and the symptom if it is missing.
"""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, ClusterNode, NodeRole
from umbilical.hardway.explain.entry import CommandFlag
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.static_pod import HostFile

CONFIG_FOLDER: Final = "config"
"""Below static-pods/<node id>/: configuration files, which are in NODE_CONFIGS on the node."""
_BUNDLES: Final = frozenset(f"{bundle.value}.crt" for bundle in Bundle)
# One image contains the three programs; a release has no tags with their names.
_RELEASE_TAGS: Final = {
    "kube-apiserver": "hyperkube",
    "kube-controller-manager": "hyperkube",
    "kube-scheduler": "hyperkube",
}


@dataclass(frozen=True)
class PodPlacement:
    inputs: Inputs
    node: ClusterNode

    @property
    def cluster(self) -> Cluster:
        return self.inputs.cluster

    @property
    def is_openshift(self) -> bool:
        return self.cluster.is_openshift

    @property
    def is_bootstrap(self) -> bool:
        return self.node.role is NodeRole.BOOTSTRAP

    @property
    def has_tunnel(self) -> bool:
        """Tell whether this node uses the tunnel: only the bootstrap node, masters have routes to pods."""
        return self.is_bootstrap and self.inputs.has_tunnel

    @property
    def every_address(self) -> str:
        """The wildcard address to bind to; the IPv6 one accepts IPv4 too."""
        versions = {self.node.address.version, self.cluster.networks.services.version}
        return "::" if 6 in versions else "0.0.0.0"

    @property
    def secrets_on_host(self) -> str:
        return layout.NODE_SECRETS if self.is_bootstrap else layout.MASTER_SECRETS

    @property
    def secrets(self) -> HostFile:
        """The mount of the secrets; its path is the same in every pod, so command lines do not depend on the node."""
        return HostFile("secrets", self.secrets_on_host, "Directory", mount_path=layout.POD_SECRETS)

    def image(self, program: str) -> str:
        """Return the pull spec of a program's image. Raises RenderError: UMB716, the release has no such image."""
        tag = _RELEASE_TAGS.get(program, program) if self.is_openshift else program
        if tag not in self.inputs.payload.images:
            why = f"release {self.inputs.payload.version} has no tag {tag}, which a static pod needs"
            remedy = "use a release that has it, or turn the component off in cluster.yaml"
            raise RenderError("UMB716", f"there is no image for {program}", why, remedy)
        return self.inputs.payload.images[tag]

    def command(self, program: str) -> tuple[str, ...]:
        return ("hyperkube", program) if self.is_openshift and program in _RELEASE_TAGS else (program,)


def certificate(row_id: str) -> str:
    """Return the path of a certificate inside a pod."""
    return _secret(f"{row_id}.crt")


def key(row_id: str) -> str:
    return _secret(f"{row_id}.key")


def public_key(row_id: str) -> str:
    return _secret(f"{row_id}.pub")


def bundle(which: Bundle) -> str:
    return _secret(f"{which.value}.crt")


def kubeconfig(name: str) -> str:
    """Return the path of a kubeconfig, on the node and in its pods."""
    return posixpath.join(layout.NODE_KUBECONFIGS, f"{name}.kubeconfig")


def secret_artifact(file: str) -> str:
    """Return the artifact of a file in POD_SECRETS; no file name is in both tls/ and tls/bundles/."""
    return posixpath.join(layout.BUNDLES if file in _BUNDLES else layout.TLS, file)


def _secret(file: str) -> str:
    return posixpath.join(layout.POD_SECRETS, file)


Condition = Callable[[PodPlacement], bool]


@dataclass(frozen=True)
class FlagRow:
    name: str
    """Name of a flag without dashes, or of an environment variable."""
    value: str | Callable[[PodPlacement], str]
    why: str
    without: str
    """Symptom if it is missing or wrong."""
    only: Condition | None = None
    """Condition for node or profile; None: wherever the program runs."""

    def flag(self, placement: PodPlacement) -> CommandFlag:
        value = self.value if isinstance(self.value, str) else self.value(placement)
        return CommandFlag(self.name, value, self.why, self.without)


@dataclass(frozen=True)
class ProgramFlags:
    """Flags and environment variables of a program, with their explanations."""

    name: str
    flags: tuple[FlagRow, ...]
    installer: str
    """How the real installer makes this command line."""
    environment: tuple[FlagRow, ...] = ()

    def command_line(self, placement: PodPlacement) -> tuple[str, ...]:
        return tuple(str(flag) for flag in flags(self.flags, placement))

    def variables(self, placement: PodPlacement) -> dict[str, str]:
        return {flag.name: flag.value for flag in flags(self.environment, placement)}


def flags(table: Sequence[FlagRow], placement: PodPlacement) -> tuple[CommandFlag, ...]:
    return tuple(row.flag(placement) for row in table if row.only is None or row.only(placement))


def on_openshift(placement: PodPlacement) -> bool:
    return placement.is_openshift


def on_kubernetes(placement: PodPlacement) -> bool:
    return not placement.is_openshift


def by_profile(*, openshift: str, kubernetes: str) -> Callable[[PodPlacement], str]:
    return lambda placement: openshift if placement.is_openshift else kubernetes


VERBOSITY: Final = FlagRow("v", "2", "log level for normal operation", "only errors are logged")
