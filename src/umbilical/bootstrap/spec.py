"""The single input of every asset: shape, names, ports and addresses of the tunnel. Validated on creation."""

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
# Host directory and its mount in the bootstrap kube-apiserver pod: the only directory that both ends can see.
BOOTSTRAP_CONFIGS_ON_HOST: Final = "/etc/kubernetes/bootstrap-configs"
BOOTSTRAP_CONFIGS_IN_POD: Final = "/etc/kubernetes/config"
KUBERNETES_SOCKET_DIRECTORY: Final = "/etc/kubernetes/konnectivity-server"
# The signer is valid for one day, like kube-apiserver's own bootstrap certificates.
MAX_CERTIFICATE_HOURS: Final = 24


class Shape(Enum):
    OPENSHIFT = "openshift"
    """As in the installer: gRPC over the socket, a separate namespace, agents in the pod network."""
    SEED = "seed"
    """As in the first plan: HTTP CONNECT over the socket, kube-system, agents in the host network."""
    KUBERNETES = "kubernetes"
    """kubeadm-like: adds the flag and the mounts to a given kube-apiserver static pod."""


class Mode(Enum):
    GRPC = "grpc"
    HTTP_CONNECT = "http-connect"

    @property
    def proxy_protocol(self) -> str:
        """The value of `proxyProtocol` in an EgressSelectorConfiguration."""
        return "GRPC" if self is Mode.GRPC else "HTTPConnect"


@dataclass(frozen=True)
class Resources:
    """Resource requests of both pods. No limits: a throttled tunnel stalls the installation."""

    cpu: str = "40m"
    memory: str = "50Mi"


@dataclass(frozen=True)
class TunnelSpec:
    """Create it with `for_shape`, which has each shape's defaults."""

    shape: Shape
    mode: Mode
    namespace: str
    """Of the agents; the server is a static pod in kube-system, without an API object."""
    host_network: bool
    """Of the agents. On OpenShift it needs an SCC binding of their service account."""
    socket_directory: str
    """On the host; the server creates its socket there."""
    image: str | None = None
    """None: the payload's `apiserver-network-proxy`, looked up on the node."""
    node_ip: IpAddress | None = None
    """None: found on the node, from the route and the machine networks."""
    use_ipv6: bool = False
    """IP family that is searched on the node: IPv6 if the first service network is."""
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
        """IP version of the address that agents dial: 4 or 6."""
        if self.node_ip is not None:
            return self.node_ip.version
        return 6 if self.use_ipv6 else 4

    @property
    def owns_namespace(self) -> bool:
        """Whether the namespace is created and deleted with the tunnel."""
        return self.namespace != "kube-system"

    @property
    def socket_on_host(self) -> str:
        return posixpath.join(self.socket_directory, SOCKET_NAME)

    @property
    def socket_in_kube_apiserver(self) -> str:
        return posixpath.join(self.socket_directory_in_kube_apiserver, SOCKET_NAME)

    @property
    def socket_directory_in_kube_apiserver(self) -> str:
        """The same directory as mounted in kube-apiserver's pod."""
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
    """Return a shape's defaults with some fields changed. Raises RenderError: one is not valid, or two conflict."""
    return TunnelSpec(shape=shape, **{**_DEFAULTS[shape], **changes})


def _check_names(spec: TunnelSpec) -> None:
    if not LABEL.fullmatch(spec.namespace):
        raise _unusable("namespace", spec.namespace, "it is not a DNS label: at most 63 of a-z, 0-9, hyphen")
    if spec.image is not None and not IMAGE.fullmatch(spec.image):
        raise _unusable("image", spec.image, "an image reference contains only letters, digits and . _ : / @ -")
    for name, value in (("cpu", spec.resources.cpu), ("memory", spec.resources.memory)):
        if not QUANTITY.fullmatch(value):
            raise _unusable(f"resources: {name}", value, "it is not a quantity such as 40m or 50Mi")
    unknown = [name for name in spec.strategies if name not in STRATEGIES]
    if unknown or not spec.strategies or len(set(spec.strategies)) != len(spec.strategies):
        raise _unusable("strategies", ",".join(spec.strategies), f"allowed, each at most once: {', '.join(STRATEGIES)}")


def _check_ports(spec: TunnelSpec) -> None:
    ports = {"agent port": spec.agent_port, "health port": spec.health_port, "admin port": spec.admin_port}
    for name, port in ports.items():
        if port not in PORT_RANGE:
            raise _unusable(name, port, f"it is outside {PORT_RANGE.start}..{PORT_RANGE.stop - 1}")
        if port in RESERVED_PORTS:
            raise _unusable(name, port, "a bootstrap node uses it for another program")
    if len(set(ports.values())) != len(ports):
        shown = ", ".join(f"{name} {port}" for name, port in ports.items())
        raise _unusable("ports", shown, "two of the ports are equal")


def _check_socket_directory(spec: TunnelSpec) -> None:
    path = spec.socket_directory
    if not re.fullmatch(r"(/[A-Za-z0-9][A-Za-z0-9._-]*)+", path):
        raise _unusable("socket directory", path, "it is not an absolute path without blanks, . and ..")
    # sun_path has 108 bytes including the final NUL; both mount paths must fit.
    if max(len(spec.socket_on_host), len(spec.socket_in_kube_apiserver)) > 107:
        raise _unusable("socket directory", path, "the socket's path would exceed 107 bytes, the limit of Unix")
    inside = path == BOOTSTRAP_CONFIGS_ON_HOST or path.startswith(f"{BOOTSTRAP_CONFIGS_ON_HOST}/")
    if spec.shape is not Shape.KUBERNETES and not inside:
        why = f"kube-apiserver's pod mounts no other writable host directory than {BOOTSTRAP_CONFIGS_ON_HOST}"
        raise _unusable("socket directory", path, why)


def _check_certificates(spec: TunnelSpec) -> None:
    if not 1 <= spec.certificate_hours <= MAX_CERTIFICATE_HOURS:
        why = f"allowed: 1 to {MAX_CERTIFICATE_HOURS}, like the installer's own certificates"
        raise _unusable("certificate hours", spec.certificate_hours, why)


def _unusable(field: str, value: object, why: str) -> RenderError:
    return RenderError("UMB110", f"{field} {value} is not valid", why, "umbilical bootstrap render --help")
