"""From one spec to the files of a node: paths, bytes and modes, in the order in which they come into use."""

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
# They exist before the tunnel and are needed after it: cleaning up would delete them with all that is in them.
_FOREIGN_NAMESPACES: Final = frozenset({"default", "kube-public", "kube-node-lease", "openshift", "openshift-config"})


def render(spec: TunnelSpec, names: TunnelNames = OWN, certificates: Certificates | None = None) -> AssetTree:
    """Render what a bootstrap node of OpenShift needs; with `certificates` nothing is signed on the node.

    Raises RenderError: the spec is of another shape, or asks for what cannot work there.
    """
    _check(spec)
    if spec.shape is Shape.KUBERNETES:
        raise _contradiction("this shape changes a kube-apiserver manifest", "give it: --kube-apiserver FILE")
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
    """Render the tunnel beside a kubeadm-like control plane. What agents need is to be applied with kubectl.

    Raises RenderError: the manifest is not kube-apiserver's, or the spec leaves open what nothing finds out later.
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
    """Refuse what `render_kubernetes` would, before anybody makes certificates for it."""
    _check(spec)
    if spec.shape is not Shape.KUBERNETES:
        raise _contradiction(f"shape {spec.shape.value} changes no manifest", "leave --kube-apiserver out")
    if spec.image is None:
        raise _contradiction("no release payload names an image here", "give it: --image REFERENCE")
    if spec.node_ip is None:
        raise _contradiction("no script runs there that finds the node's address", "give it: --node-ip ADDRESS")


def _add_pki(tree: AssetTree, directory: str, certificates: Certificates) -> None:
    tree.add(posixpath.join(directory, "ca.crt"), certificates.authority, SECRET_MODE)
    tree.add(posixpath.join(directory, "tls.crt"), certificates.server.certificate, SECRET_MODE)
    tree.add(posixpath.join(directory, "tls.key"), certificates.server.key, SECRET_MODE)


def _check(spec: TunnelSpec) -> None:
    if spec.shape is Shape.OPENSHIFT and spec.host_network:
        why = "the agents' service account may use no SCC that allows the host network, so no pod would be made"
        raise _contradiction(why, "leave --host-network out, or take --shape seed")
    if spec.shape is Shape.SEED and spec.owns_namespace:
        why = "this shape lives in kube-system, where no SCC is applied and the host network is free"
        raise _contradiction(why, "leave --namespace out, or take --shape openshift")
    if any("%" in str(place) for place in (spec.node_ip, *spec.machine_networks)):
        # It may hold any character, and these texts go into a script.
        raise _contradiction("an address has a zone, which means something on one machine only", "leave %ZONE out")
    if spec.node_ip is not None and (spec.node_ip.is_unspecified or spec.node_ip.is_multicast):
        raise _contradiction(f"no agent can dial {spec.node_ip}", "give the address of one machine: --node-ip ADDRESS")
    if spec.namespace in _FOREIGN_NAMESPACES:
        why = f"the namespace goes with the tunnel, and {spec.namespace} must stay"
        raise _contradiction(why, "give a namespace of its own: --namespace NAME")


def _contradiction(why: str, remedy: str) -> RenderError:
    return RenderError("UMB113", "this tunnel cannot be rendered", why, remedy)
