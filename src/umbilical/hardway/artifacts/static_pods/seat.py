"""Where a static pod stands, how that node's files are called inside of its pods, and tables of its flags.

Each row of a table has its value for a node, its reason, and what one sees without it.
"""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, Node, Role
from umbilical.hardway.explain.entry import CommandFlag
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.manifests.static_pod import HostFile

CONFIG_FOLDER: Final = "config"
"""Below static-pods/<node id>/: what is no pod, and lies in NODE_CONFIGS of the node."""
_BUNDLES: Final = frozenset(f"{bundle.value}.crt" for bundle in Bundle)
# One image has the three programs; there are no release tags of their names.
_RELEASE_TAGS: Final = {
    "kube-apiserver": "hyperkube",
    "kube-controller-manager": "hyperkube",
    "kube-scheduler": "hyperkube",
}


@dataclass(frozen=True)
class Seat:
    inputs: Inputs
    node: Node

    @property
    def cluster(self) -> Cluster:
        return self.inputs.cluster

    @property
    def is_openshift(self) -> bool:
        return self.cluster.is_openshift

    @property
    def is_bootstrap(self) -> bool:
        return self.node.role is Role.BOOTSTRAP

    @property
    def has_tunnel(self) -> bool:
        """Of this node: masters reach the cluster's pods by themselves."""
        return self.is_bootstrap and self.inputs.has_tunnel

    @property
    def every_address(self) -> str:
        """What to bind to; the IPv6 one takes IPv4 as well."""
        versions = {self.node.address.version, self.cluster.networks.services.version}
        return "::" if 6 in versions else "0.0.0.0"

    @property
    def secrets_on_host(self) -> str:
        return layout.NODE_SECRETS if self.is_bootstrap else layout.MASTER_SECRETS

    @property
    def secrets(self) -> HostFile:
        """Under one name in every pod, so that a command line is the same on the bootstrap node and on a master."""
        return HostFile("secrets", self.secrets_on_host, "Directory", mount_path=layout.POD_SECRETS)

    def image(self, program: str) -> str:
        """Return the pull spec of a program's image. Raises RenderError: UMB716, the release has none."""
        tag = _RELEASE_TAGS.get(program, program) if self.is_openshift else program
        if tag not in self.inputs.payload.images:
            why = f"the images of {self.inputs.payload.version} have no tag {tag}, and a static pod needs it"
            raise RenderError(
                "UMB716", f"there is no image for {program}", why, "name a release that has it, or switch the part off"
            )
        return self.inputs.payload.images[tag]

    def command(self, program: str) -> tuple[str, ...]:
        return ("hyperkube", program) if self.is_openshift and program in _RELEASE_TAGS else (program,)


def certificate(row_id: str) -> str:
    """Return where a pod sees a certificate of the PKI table."""
    return _secret(f"{row_id}.crt")


def key(row_id: str) -> str:
    return _secret(f"{row_id}.key")


def public_key(row_id: str) -> str:
    return _secret(f"{row_id}.pub")


def bundle(which: Bundle) -> str:
    return _secret(f"{which.value}.crt")


def kubeconfig(name: str) -> str:
    """Return where a kubeconfig lies, on a node as in its pods."""
    return posixpath.join(layout.NODE_KUBECONFIGS, f"{name}.kubeconfig")


def secret_artifact(file: str) -> str:
    """Return the artifact of a file of POD_SECRETS: names are kept, and none stands in both folders."""
    return posixpath.join(layout.BUNDLES if file in _BUNDLES else layout.TLS, file)


def _secret(file: str) -> str:
    return posixpath.join(layout.POD_SECRETS, file)


Condition = Callable[[Seat], bool]


@dataclass(frozen=True)
class Row:
    name: str
    """Without the dashes; of an environment variable its name."""
    value: str | Callable[[Seat], str]
    why: str
    without: str
    """What one sees if it is missing or wrong."""
    only: Condition | None = None
    """On which nodes, in which profile; None: on all that run the program."""

    def flag(self, seat: Seat) -> CommandFlag:
        value = self.value if isinstance(self.value, str) else self.value(seat)
        return CommandFlag(self.name, value, self.why, self.without)


@dataclass(frozen=True)
class Program:
    """What a program is told, and what explanations need to say about it."""

    name: str
    flags: tuple[Row, ...]
    installer: str
    """How the real installer comes by this command line."""
    environment: tuple[Row, ...] = ()

    def command_line(self, seat: Seat) -> tuple[str, ...]:
        return tuple(str(flag) for flag in flags(self.flags, seat))

    def variables(self, seat: Seat) -> dict[str, str]:
        return {flag.name: flag.value for flag in flags(self.environment, seat)}


def flags(table: Sequence[Row], seat: Seat) -> tuple[CommandFlag, ...]:
    return tuple(row.flag(seat) for row in table if row.only is None or row.only(seat))


def on_openshift(seat: Seat) -> bool:
    return seat.is_openshift


def on_kubernetes(seat: Seat) -> bool:
    return not seat.is_openshift


def by_profile(*, openshift: str, kubernetes: str) -> Callable[[Seat], str]:
    return lambda seat: openshift if seat.is_openshift else kubernetes


VERBOSITY: Final = Row("v", "2", "what a person needs who reads the log, and no more", "only errors are logged")
