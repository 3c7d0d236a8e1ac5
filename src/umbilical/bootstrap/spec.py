"""The one input of every asset: which shape of the tunnel, with which names, ports and addresses. Checked when made."""

import dataclasses
import posixpath
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from umbilical.fault import RenderError
from umbilical.manifests.objects import AGENT_PORT, IMAGE, LABEL, PORT_RANGE, RESERVED_PORTS, IpAddress, IpNetwork

STRATEGIES: Final = ("default", "destHost", "defaultRoute")
SOCKET_NAME: Final = "konnectivity-server.socket"
QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|Ki|Mi|Gi)?")
# What the bootstrap kube-apiserver pod mounts of the host, and where: the only directory that both ends can see.
BOOTSTRAP_CONFIGS_ON_HOST: Final = "/etc/kubernetes/bootstrap-configs"
BOOTSTRAP_CONFIGS_IN_POD: Final = "/etc/kubernetes/config"
KUBERNETES_SOCKET_DIRECTORY: Final = "/etc/kubernetes/konnectivity-server"
# The signer lives one day, and kube-apiserver's own bootstrap certificates no longer.
MAX_CERTIFICATE_HOURS: Final = 24


class Shape(Enum):
    OPENSHIFT = "openshift"
    """As the installer landed it: gRPC over the socket, a namespace of its own, agents in the pod network."""
    SEED = "seed"
    """As it was first planned: HTTP CONNECT over the socket, kube-system, agents in the host network."""
    KUBERNETES = "kubernetes"
    """kubeadm-like: a kube-apiserver static pod that is given as a file gets the flag and the mounts."""


class Mode(Enum):
    GRPC = "grpc"
    HTTP_CONNECT = "http-connect"

    @property
    def proxy_protocol(self) -> str:
        """Kubernetes' word for it in an EgressSelectorConfiguration."""
        return "GRPC" if self is Mode.GRPC else "HTTPConnect"


@dataclass(frozen=True)
class Resources:
    """Requests of both pods; there are no limits, since a throttled tunnel stalls the installation."""

    cpu: str = "40m"
    memory: str = "50Mi"


@dataclass(frozen=True)
class TunnelSpec:
    """Use `for_shape`: it knows each shape's defaults."""

    shape: Shape
    mode: Mode
    namespace: str
    """Of the agents; the server is a static pod in kube-system and never reaches an API."""
    host_network: bool
    """Of the agents. On OpenShift their service account may not use it without an SCC binding."""
    socket_directory: str
    """On the host, where the server makes its socket."""
    image: str | None = None
    """None: the payload's `apiserver-network-proxy`, asked for at run time."""
    node_ip: IpAddress | None = None
    """None: found at run time, from the route and the machine networks."""
    use_ipv6: bool = False
    """Which family is looked for at run time: IPv6 where the first service network is."""
    machine_networks: tuple[IpNetwork, ...] = ()
    agent_port: int = AGENT_PORT
    health_port: int = 2041
    admin_port: int = 8095
    strategies: tuple[str, ...] = ("destHost", "defaultRoute")
    resources: Resources = Resources()
    certificate_hours: int = MAX_CERTIFICATE_HOURS

    def __post_init__(self) -> None:
        _check_names(self)
        _check_ports(self)
        _check_socket_directory(self)
        _check_certificates(self)

    @property
    def family(self) -> int:
        """4 or 6: of the address that agents dial."""
        if self.node_ip is not None:
            return self.node_ip.version
        return 6 if self.use_ipv6 else 4

    @property
    def owns_namespace(self) -> bool:
        """Whether the namespace comes and goes with the tunnel."""
        return self.namespace != "kube-system"

    @property
    def socket_on_host(self) -> str:
        return posixpath.join(self.socket_directory, SOCKET_NAME)

    @property
    def socket_in_kube_apiserver(self) -> str:
        return posixpath.join(self.socket_directory_in_kube_apiserver, SOCKET_NAME)

    @property
    def socket_directory_in_kube_apiserver(self) -> str:
        """The same directory by the name that kube-apiserver's pod knows it under."""
        if self.shape is Shape.KUBERNETES:
            return self.socket_directory
        below = posixpath.relpath(self.socket_directory, BOOTSTRAP_CONFIGS_ON_HOST)
        return posixpath.normpath(posixpath.join(BOOTSTRAP_CONFIGS_IN_POD, below))

    def replace(self, **changes: Any) -> "TunnelSpec":
        return dataclasses.replace(self, **changes)


_DEFAULTS: Final[dict[Shape, dict[str, Any]]] = {
    Shape.OPENSHIFT: {
        "mode": Mode.GRPC,
        "namespace": "openshift-bootstrap-konnectivity",
        "host_network": False,
        "socket_directory": BOOTSTRAP_CONFIGS_ON_HOST,
    },
    Shape.SEED: {
        "mode": Mode.HTTP_CONNECT,
        "namespace": "kube-system",
        "host_network": True,
        "socket_directory": BOOTSTRAP_CONFIGS_ON_HOST,
    },
    Shape.KUBERNETES: {
        "mode": Mode.GRPC,
        "namespace": "kube-system",
        "host_network": True,
        "socket_directory": KUBERNETES_SOCKET_DIRECTORY,
    },
}


def for_shape(shape: Shape, **changes: Any) -> TunnelSpec:
    """Take a shape's defaults with some fields changed. Raises RenderError: one is unusable, or two conflict."""
    return TunnelSpec(shape=shape, **{**_DEFAULTS[shape], **changes})


def _check_names(spec: TunnelSpec) -> None:
    if not LABEL.fullmatch(spec.namespace):
        raise _unusable("namespace", spec.namespace, "it is no DNS label: a-z, 0-9 and hyphens, at most 63")
    if spec.image is not None and not IMAGE.fullmatch(spec.image):
        raise _unusable("image", spec.image, "an image reference holds letters, digits and . _ : / @ - only")
    for name, value in (("cpu", spec.resources.cpu), ("memory", spec.resources.memory)):
        if not QUANTITY.fullmatch(value):
            raise _unusable(f"resources: {name}", value, "it is no quantity like 40m or 50Mi")
    unknown = [name for name in spec.strategies if name not in STRATEGIES]
    if unknown or not spec.strategies or len(set(spec.strategies)) != len(spec.strategies):
        raise _unusable("strategies", ",".join(spec.strategies), f"each at most once of {', '.join(STRATEGIES)}")


def _check_ports(spec: TunnelSpec) -> None:
    ports = {"agent port": spec.agent_port, "health port": spec.health_port, "admin port": spec.admin_port}
    for name, port in ports.items():
        if port not in PORT_RANGE:
            raise _unusable(name, port, f"it must lie in {PORT_RANGE.start}..{PORT_RANGE.stop - 1}")
        if port in RESERVED_PORTS:
            raise _unusable(name, port, "a bootstrap node needs it for something else")
    if len(set(ports.values())) != len(ports):
        shown = ", ".join(f"{name} {port}" for name, port in ports.items())
        raise _unusable("ports", shown, "two of them are the same")


def _check_socket_directory(spec: TunnelSpec) -> None:
    path = spec.socket_directory
    if not re.fullmatch(r"(/[A-Za-z0-9][A-Za-z0-9._-]*)+", path):
        raise _unusable("socket directory", path, "it must be an absolute path without blanks, . and ..")
    # sun_path holds 108 bytes with its end mark, on either side of the mount.
    if max(len(spec.socket_on_host), len(spec.socket_in_kube_apiserver)) > 107:
        raise _unusable("socket directory", path, "the socket's path would be longer than Unix allows (107 bytes)")
    inside = path == BOOTSTRAP_CONFIGS_ON_HOST or path.startswith(f"{BOOTSTRAP_CONFIGS_ON_HOST}/")
    if spec.shape is not Shape.KUBERNETES and not inside:
        why = f"of the host, the bootstrap kube-apiserver's pod sees {BOOTSTRAP_CONFIGS_ON_HOST} and no other"
        raise _unusable("socket directory", path, f"{why} directory that the server may write to")


def _check_certificates(spec: TunnelSpec) -> None:
    if not 1 <= spec.certificate_hours <= MAX_CERTIFICATE_HOURS:
        why = f"1 to {MAX_CERTIFICATE_HOURS} hours: the tunnel must not outlive the day of the installation"
        raise _unusable("certificate hours", spec.certificate_hours, why)


def _unusable(field: str, value: object, why: str) -> RenderError:
    return RenderError("UMB110", f"{field} {value} cannot be used", why, "umbilical bootstrap render --help")
