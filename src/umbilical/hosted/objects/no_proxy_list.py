"""What no proxy may be asked for, as comma lists in the form that Go programs read.

Four readers: the HTTP proxy (which hosts the user's proxy is not for), the component beside it (which hosts the tunnel
is not for), both proxies and kube-apiserver (which hosts the management cluster's proxy is not for).
"""

from collections.abc import Iterable
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import HostedSpec

LOOPBACK: Final = ("127.0.0.1", "localhost")
GUEST_SUFFIXES: Final = (".svc", ".cluster.local", ".hypershift.local")
"""Names that only the hosted cluster or its control plane knows."""
METADATA: Final = "169.254.169.254"
"""Where a cloud's machines ask who they are: an address of the link, whichever cloud it is."""
CONTROL_PLANE: Final = (names.KUBE_APISERVER, "etcd-client", "audit-webhook")
"""Services beside the components, by the short names under which those know them."""


def for_user_proxy(spec: HostedSpec) -> str:
    """What the HTTP proxy sends through the tunnel and not to the user's proxy behind it."""
    networks = [str(network) for network in spec.networks.all if network.prefixlen > 0]
    return _joined([*LOOPBACK, *GUEST_SUFFIXES, METADATA, *networks, *spec.proxy.no_proxy])


def for_component(spec: HostedSpec, more: Iterable[str] = ()) -> str:
    """What a component dials by itself: whatever stands in its own namespace never enters the tunnel."""
    suffixes = (f".{spec.namespace}.svc", f".{spec.namespace}.svc.{spec.cluster_domain}")
    return _joined([*LOOPBACK, *CONTROL_PLANE, *suffixes, *more])


def for_sidecar(spec: HostedSpec) -> str:
    """What a proxy dials without the management cluster's: the servers and the hosted API are beside it."""
    return for_component(spec, (names.SERVER_LOCAL, *spec.management_proxy.no_proxy))


def for_kube_apiserver(spec: HostedSpec, management: Iterable[str] = ()) -> str:
    """What kube-apiserver sends to the tunnel's server though its pod has a proxy: all of the hosted cluster.

    Without the machines' networks a proxy that looks into TLS would answer for kubelets (OCPBUGS-86693).
    """
    networks = [str(network) for network in spec.networks.all if network.prefixlen > 0]
    own = (names.KUBE_APISERVER, names.SERVER_LOCAL, names.SERVER)
    return _joined([*management, *LOOPBACK, *own, *networks])


def _joined(entries: Iterable[str]) -> str:
    """Sorted, so that what is rendered does not change with the order of a spec; blanks are the user's, not Go's."""
    return ",".join(sorted({entry.strip() for entry in entries if entry.strip()}))
