"""Renders the files of a node from one spec: paths, bytes and modes, in the order of their use."""

import posixpath
from typing import Final

from umbilical.bootstrap.certificates import Certificates
from umbilical.bootstrap.names import OWN, STATIC_POD, TunnelNames
from umbilical.bootstrap.render.kube_apiserver import (
    EGRESS_PATH,
    egress_selector,
    kube_apiserver_override,
    read_static_pod,
    with_egress_selector,
)
from umbilical.bootstrap.render.objects import agent_daemon_set, agent_secret, namespace, server_pod
from umbilical.bootstrap.shell.scripts import certificate_script, library
from umbilical.bootstrap.spec import Shape, TunnelSpec
from umbilical.fault import RenderError
from umbilical.manifests.tree import SCRIPT_MODE, SECRET_MODE, AssetTree

__all__ = ["Certificates", "check_kubernetes", "render", "render_kubernetes"]

KUBERNETES_DIRECTORY: Final = "/etc/kubernetes/konnectivity"
KUBE_APISERVER_POD: Final = "/etc/kubernetes/manifests/kube-apiserver.yaml"
# Namespaces that exist without the tunnel: the cleanup must not delete them.
_FOREIGN_NAMESPACES: Final = frozenset({"default", "kube-public", "kube-node-lease", "openshift", "openshift-config"})


def render(spec: TunnelSpec, names: TunnelNames = OWN, certificates: Certificates | None = None) -> AssetTree:
    """Render the files of an OpenShift bootstrap node; with `certificates` the node creates none.

    Raises RenderError: the spec has another shape, or values that cannot work there.
    """
    _check(spec)
    if spec.shape is Shape.KUBERNETES:
        raise _contradiction("this shape needs a kube-apiserver manifest", "add --kube-apiserver FILE")
    tree = AssetTree()
    tree.add_yaml(names.egress, egress_selector(spec))
    tree.add_yaml(names.override, kube_apiserver_override())
    tree.add_yaml(names.server_pod, server_pod(spec, posixpath.join(names.pki_directory, "server"), certificates))
    if spec.owns_namespace:
        tree.add_yaml(names.namespace, namespace(spec))
    tree.add_yaml(names.agent_secret, agent_secret(spec, certificates))
    tree.add_yaml(names.agent_daemon_set, agent_daemon_set(spec))
    tree.add(names.library, library(spec, names, makes_certificates=certificates is None), SCRIPT_MODE)
    if certificates is None:
        tree.add(names.certificate_script, certificate_script(), SCRIPT_MODE)
    else:
        _add_pki(tree, posixpath.join(names.pki_directory, "server"), certificates)
    return tree


def render_kubernetes(spec: TunnelSpec, kube_apiserver_manifest: bytes, certificates: Certificates) -> AssetTree:
    """Render the tunnel for a kubeadm-like control plane. The agents' objects are applied with kubectl.

    Raises RenderError: the manifest is not kube-apiserver's, or the spec lacks an image or an address.
    """
    check_kubernetes(spec)
    server_pki = posixpath.join(KUBERNETES_DIRECTORY, "pki")
    agent = posixpath.join(KUBERNETES_DIRECTORY, "agent")
    tree = AssetTree()
    tree.add_yaml(EGRESS_PATH, egress_selector(spec))
    _add_pki(tree, server_pki, certificates)
    tree.add_yaml(STATIC_POD, server_pod(spec, server_pki, certificates))
    tree.add_yaml(KUBE_APISERVER_POD, with_egress_selector(read_static_pod(kube_apiserver_manifest), spec))
    if spec.owns_namespace:
        tree.add_yaml(f"{agent}/konnectivity-namespace.yaml", namespace(spec))
    tree.add_yaml(f"{agent}/konnectivity-agent-certs-secret.yaml", agent_secret(spec, certificates))
    tree.add_yaml(f"{agent}/konnectivity-agent-daemonset.yaml", agent_daemon_set(spec))
    return tree


def check_kubernetes(spec: TunnelSpec) -> None:
    """Raise the errors of `render_kubernetes` before certificates are created."""
    _check(spec)
    if spec.shape is not Shape.KUBERNETES:
        raise _contradiction(f"shape {spec.shape.value} changes no manifest", "remove --kube-apiserver")
    if spec.image is None:
        raise _contradiction("there is no release payload that names the image", "add --image REFERENCE")
    if spec.node_ip is None:
        raise _contradiction("no script on the node finds its address", "add --node-ip ADDRESS")


def _add_pki(tree: AssetTree, directory: str, certificates: Certificates) -> None:
    tree.add(posixpath.join(directory, "ca.crt"), certificates.authority, SECRET_MODE)
    tree.add(posixpath.join(directory, "tls.crt"), certificates.server.certificate, SECRET_MODE)
    tree.add(posixpath.join(directory, "tls.key"), certificates.server.key, SECRET_MODE)


def _check(spec: TunnelSpec) -> None:
    if spec.shape is Shape.OPENSHIFT and spec.host_network:
        why = "no SCC of the agents' service account allows the host network, so no pod would be created"
        raise _contradiction(why, "remove --host-network, or use --shape seed")
    if spec.shape is Shape.SEED and spec.owns_namespace:
        why = "shape seed needs kube-system, where no SCC applies and the host network is allowed"
        raise _contradiction(why, "remove --namespace, or use --shape openshift")
    if any("%" in str(place) for place in (spec.node_ip, *spec.machine_networks)):
        # A zone can contain any character, and these texts go into a script.
        raise _contradiction("an address has a zone, which is valid on one machine only", "remove %ZONE")
    if spec.node_ip is not None and (spec.node_ip.is_unspecified or spec.node_ip.is_multicast):
        raise _contradiction(f"no agent can dial {spec.node_ip}", "give the node's address: --node-ip ADDRESS")
    if spec.namespace in _FOREIGN_NAMESPACES:
        why = f"the cleanup deletes the namespace, and {spec.namespace} must stay"
        raise _contradiction(why, "give a namespace only for the tunnel: --namespace NAME")


def _contradiction(why: str, remedy: str) -> RenderError:
    return RenderError("UMB113", "the tunnel was not rendered", why, remedy)
