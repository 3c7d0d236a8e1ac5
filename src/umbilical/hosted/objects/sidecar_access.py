"""What sidecars may do in the hosted cluster: get Services, as an account of their own, and nothing else.

HyperShift hands each of them a cluster administrator's kubeconfig for the same purpose. Ours is split: the kubeconfig
holds no secret and names files beside it, which come out of the account's token Secret, copied from one cluster to
the other.
"""

from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.components import Names, Proxy, chosen
from umbilical.hosted.objects.objects import KEY_MODE, metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, config_map, manifest
from umbilical.manifests.tree import yaml_bytes

ACCOUNT: Final = "konnectivity-proxy"
TOKEN_SECRET: Final = "konnectivity-proxy-token"
"""In kube-system of the hosted cluster, where its controller fills it in; copied to the control-plane namespace."""
KUBECONFIG_MAP: Final = "konnectivity-proxy-kubeconfig"
KUBECONFIG_KEY: Final = "kubeconfig"
KUBECONFIG_DIRECTORY: Final = "/etc/kubernetes/secrets/kubeconfig"
_RBAC: Final = "rbac.authorization.k8s.io"


def needs_access(proxy: Proxy) -> bool:
    """Whether a proxy looks for Services, the DNS of the hosted cluster among them."""
    return proxy.names is not Names.AGENT


def is_needed(spec: HostedSpec) -> bool:
    return any(needs_access(proxy) for component in chosen(spec) for proxy in component.proxies)


def management_access(spec: HostedSpec) -> list[Object]:
    """The kubeconfig, for the control-plane namespace."""
    if not is_needed(spec):
        return []
    text = yaml_bytes(_kubeconfig(spec)).decode()
    return [config_map(metadata(spec, KUBECONFIG_MAP, spec.namespace), {KUBECONFIG_KEY: text})]


def hosted_access(spec: HostedSpec) -> list[Object]:
    """The account with its right and its token, for the hosted cluster."""
    if not is_needed(spec):
        return []
    namespace = names.HOSTED_NAMESPACE
    annotations = {"kubernetes.io/service-account.name": ACCOUNT}
    head = {"name": ACCOUNT, "labels": dict(spec.labels)}
    account = metadata(spec, ACCOUNT, namespace)
    token = metadata(spec, TOKEN_SECRET, namespace, annotations=annotations)
    services = {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    return [
        manifest("v1", "ServiceAccount", account, automountServiceAccountToken=False),
        manifest(f"{_RBAC}/v1", "ClusterRole", head, rules=[services]),
        manifest(f"{_RBAC}/v1", "ClusterRoleBinding", head, roleRef=reference, subjects=[subject]),
        manifest("v1", "Secret", token, type="kubernetes.io/service-account-token"),
    ]


def access_notes(spec: HostedSpec) -> list[str]:
    """What is left to do by hand, or by whoever has both clusters at hand: a token cannot be rendered."""
    if not is_needed(spec):
        return []
    source = f"{names.HOSTED_NAMESPACE}/{TOKEN_SECRET}"
    left = f"sidecars resolve no names before Secret {source} of the hosted cluster is copied to {spec.namespace}"
    return [f"{left}: hosted apply copies it if it has both kubeconfigs"]


def kubeconfig_volume(name: str) -> Object:
    """Kubeconfig, token and CA in one directory.

    The Secret may be missing: a component must not wait for the right to look up names of a cluster that it brings up.
    """
    sources = [
        {"configMap": {"name": KUBECONFIG_MAP, "items": [{"key": KUBECONFIG_KEY, "path": KUBECONFIG_KEY}]}},
        {"secret": {"name": TOKEN_SECRET, "optional": True, "items": [_same("token"), _same("ca.crt")]}},
    ]
    return {"name": name, "projected": {"defaultMode": KEY_MODE, "sources": sources}}


def _same(key: str) -> Object:
    return {"key": key, "path": key}


def _kubeconfig(spec: HostedSpec) -> Object:
    # By the Service's short name: it is the one that kube-apiserver's certificate has for its own namespace.
    server = f"https://{names.KUBE_APISERVER}:{spec.kube_apiserver.ports[0]}"
    cluster = {"server": server, "certificate-authority": f"{KUBECONFIG_DIRECTORY}/ca.crt"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "hosted", "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"tokenFile": f"{KUBECONFIG_DIRECTORY}/token"}}],
        "contexts": [{"name": "hosted", "context": {"cluster": "hosted", "user": ACCOUNT}}],
        "current-context": "hosted",
    }
