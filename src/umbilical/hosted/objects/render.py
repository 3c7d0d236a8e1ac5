"""Renders the objects of both clusters from a spec and its certificates, one file for each object."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.agents import (
    agent_daemon_set,
    control_plane_agent,
    hosted_accounts,
    management_accounts,
    namespace_labels,
)
from umbilical.hosted.objects.alerts import hosted_rules, rules
from umbilical.hosted.objects.components import management_proxy_secret, proxy_secret
from umbilical.hosted.objects.control_plane_files import (
    add_static_files,
    egress_config_map,
    fingerprint,
    hosted_certificates,
    identities_config_map,
    management_certificates,
)
from umbilical.hosted.objects.dashboard import dashboard
from umbilical.hosted.objects.kube_apiserver_manifest import read_manifest
from umbilical.hosted.objects.monitoring import hosted_monitors, monitors
from umbilical.hosted.objects.server import flag_patch, patched, strategic_patch
from umbilical.hosted.objects.services import aggregated_apis, network_policies, routes, services
from umbilical.hosted.objects.sidecars import access_notes, hosted_access, management_access, sidecar_patches
from umbilical.hosted.objects.spec import HostedSpec, Workload
from umbilical.hosted.pki.certificate_set import HostedSet
from umbilical.hosted.pki.table import AGENT, CONTROL_PLANE_AGENT
from umbilical.manifests.objects import Object
from umbilical.manifests.tree import PUBLIC_MODE, SECRET_MODE, AssetTree, yaml_bytes

FILE: Final = "kustomization.yaml"
_GROUP: Final = "kustomize.config.k8s.io"


def base(files: Iterable[str]) -> Object:
    return {"apiVersion": f"{_GROUP}/v1beta1", "kind": "Kustomization", "resources": sorted(files)}


def component(patches: Mapping[str, Object]) -> Object:
    """`patches` are targets by file name, in the order to apply them."""
    entries = [{"path": path, "target": target} for path, target in patches.items()]
    return {"apiVersion": f"{_GROUP}/v1alpha1", "kind": "Component", "patches": entries}


def deployment_target(name: str) -> Object:
    return {"group": "apps", "version": "v1", "kind": "Deployment", "name": name}


MANAGEMENT: Final = "management"
HOSTED: Final = "hosted"
NODE: Final = "node"
"""Directory with the files for the root of a node with a static pod."""
PATCHES: Final = f"{MANAGEMENT}/patches"
STATIC_POD: Final = "/etc/kubernetes/manifests/kube-apiserver.yaml"
# Not .yaml: a patch is not an object, and `kubectl apply -f DIR` must skip it.
_PATCH: Final = ".patch"


class Format(Enum):
    FILES = "files"
    KUSTOMIZE = "kustomize"


def render(
    spec: HostedSpec, certificates: HostedSet, kube_apiserver: bytes | None = None, form: Format = Format.FILES
) -> AssetTree:
    """Render everything; a given manifest is patched. Raises RenderError: the manifest is invalid."""
    tree = AssetTree()
    _add_objects(tree, MANAGEMENT, management_objects(spec, certificates))
    _add_objects(tree, HOSTED, hosted_objects(spec, certificates))
    patches = _add_kube_apiserver(tree, spec, certificates, kube_apiserver) | _add_sidecars(tree, spec)
    if form is Format.KUSTOMIZE:
        _add_kustomizations(tree, patches)
    return tree


def management_objects(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    """Return the objects of the control-plane namespace, without kube-apiserver itself."""
    return [
        *management_accounts(spec),
        *management_certificates(spec, certificates),
        *(proxy_secret(spec, spec.namespace) if spec.components else []),
        *management_proxy_secret(spec),
        *management_access(spec),
        egress_config_map(spec),
        *([identities_config_map(spec)] if spec.is_ours else []),
        *services(spec),
        *routes(spec),
        *network_policies(spec),
        *control_plane_agent(spec, fingerprint(certificates, CONTROL_PLANE_AGENT)),
        *monitors(spec),
        *rules(spec),
        *dashboard(spec),
    ]


def hosted_objects(spec: HostedSpec, certificates: HostedSet) -> list[Object]:
    return [
        *namespace_labels(spec),
        *hosted_accounts(spec),
        *hosted_certificates(spec, certificates),
        *proxy_secret(spec, names.HOSTED_NAMESPACE),
        *hosted_access(spec),
        agent_daemon_set(spec, fingerprint(certificates, AGENT)),
        *aggregated_apis(spec),
        *hosted_monitors(spec),
        *hosted_rules(spec),
    ]


def notes(spec: HostedSpec) -> list[str]:
    """Return notes on what is left out, and what cannot be rendered."""
    return [*_unknown_addresses(spec), *access_notes(spec)]


def _unknown_addresses(spec: HostedSpec) -> list[str]:
    unknown = [api.service for api in spec.aggregated_apis if not api.addresses]
    if not unknown:
        return []
    left_out = "their objects and identifiers" if spec.known_addresses else "they and the control-plane agent"
    remedy = "add them to the spec, or give --management-kubeconfig"
    return [f"the addresses of {', '.join(unknown)} are not known, so {left_out} are left out: {remedy}"]


def _add_objects(tree: AssetTree, folder: str, objects: Iterable[Object]) -> None:
    for one in objects:
        kind, name = one["kind"], one["metadata"]["name"]
        mode = SECRET_MODE if kind == "Secret" else PUBLIC_MODE
        tree.add_yaml(f"{folder}/{kind.lower()}-{name}.yaml", one, mode)


def _add_kube_apiserver(
    tree: AssetTree, spec: HostedSpec, certificates: HostedSet, content: bytes | None
) -> dict[str, Object]:
    """Add its manifest, or patches for it; return the targets of patches by file name."""
    manifest = None if content is None else read_manifest(content, spec)
    if manifest is not None and spec.kube_apiserver.workload is Workload.STATIC_POD:
        add_static_files(tree, NODE, spec, certificates)
        tree.add_yaml(f"{NODE}{STATIC_POD}", patched(manifest, spec))
        return {}
    if manifest is not None:
        _add_objects(tree, MANAGEMENT, [patched(manifest, spec)])
        return {}
    name, flags = spec.kube_apiserver.name, flag_patch(spec)
    # Flags first: the JSON patch uses container indexes, which the other patch changes.
    targets = _add_patch(tree, f"{name}-flags", flags, name) if flags else {}
    return targets | _add_patch(tree, name, strategic_patch(spec), name)


def _add_sidecars(tree: AssetTree, spec: HostedSpec) -> dict[str, Object]:
    targets: dict[str, Object] = {}
    for name, patch in sidecar_patches(spec).items():
        targets |= _add_patch(tree, name, patch, name)
    return targets


def _add_patch(tree: AssetTree, file: str, patch: Object | list[Object], deployment: str) -> dict[str, Object]:
    """Add a patch; return its target by file name."""
    tree.add(f"{PATCHES}/{file}{_PATCH}", yaml_bytes(patch), PUBLIC_MODE)
    return {f"{file}{_PATCH}": deployment_target(deployment)}


def _add_kustomizations(tree: AssetTree, patches: dict[str, Object]) -> None:
    for folder in (MANAGEMENT, HOSTED):
        below = [asset.path.removeprefix(f"{folder}/") for asset in tree if asset.path.startswith(f"{folder}/")]
        files = [path for path in below if "/" not in path]
        tree.add_yaml(f"{folder}/{FILE}", base(files), PUBLIC_MODE)
    if patches:
        tree.add_yaml(f"{PATCHES}/{FILE}", component(patches), PUBLIC_MODE)
