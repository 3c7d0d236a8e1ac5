"""Patches that add proxies to components, one strategic merge patch per Deployment; and the sidecars' ServiceAccount in
the hosted cluster, which may get Services.
"""

from typing import Final

from umbilical.hosted.objects import components, names
from umbilical.hosted.objects.components import HEALTH_PORTS, NameResolution, ProxiedComponent, Proxy, ProxyKind, chosen
from umbilical.hosted.objects.forms import (
    KEY_MODE,
    UNPRIVILEGED,
    config_map_volume,
    metadata,
    mount,
    probe,
    requests,
    secret_volume,
)
from umbilical.hosted.objects.monitoring import PROXY_LABEL
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, config_map, manifest
from umbilical.manifests.tree import yaml_bytes

ACCOUNT: Final = "konnectivity-proxy"
TOKEN_SECRET: Final = "konnectivity-proxy-token"
"""In kube-system of the hosted cluster, filled by its token controller; copied to the control-plane namespace."""
KUBECONFIG_MAP: Final = "konnectivity-proxy-kubeconfig"
KUBECONFIG_KEY: Final = "kubeconfig"
KUBECONFIG_DIRECTORY: Final = "/etc/kubernetes/secrets/kubeconfig"
_RBAC: Final = "rbac.authorization.k8s.io"


def needs_access(proxy: Proxy) -> bool:
    """Return whether a proxy looks up Services, including that of the hosted cluster's DNS."""
    return proxy.resolution is not NameResolution.AGENT


def is_needed(spec: HostedSpec) -> bool:
    return any(needs_access(proxy) for component in chosen(spec) for proxy in component.proxies)


def management_access(spec: HostedSpec) -> list[Object]:
    """Return the kubeconfig, for the control-plane namespace."""
    if not is_needed(spec):
        return []
    text = yaml_bytes(_kubeconfig(spec)).decode()
    return [config_map(metadata(spec, KUBECONFIG_MAP, spec.namespace), {KUBECONFIG_KEY: text})]


def hosted_access(spec: HostedSpec) -> list[Object]:
    """Return the account with its role and token, for the hosted cluster."""
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
    """Return a note that the token must be copied: it cannot be rendered."""
    if not is_needed(spec):
        return []
    source = f"{names.HOSTED_NAMESPACE}/{TOKEN_SECRET}"
    left = f"sidecars cannot resolve names until Secret {source} of the hosted cluster is copied to {spec.namespace}"
    return [f"{left}: umbilical hosted apply with both kubeconfigs copies it"]


def kubeconfig_volume(name: str) -> Object:
    """Return a volume with kubeconfig, token and CA.

    The Secret is optional: a component must start before the cluster that creates the token.
    """
    sources = [
        {"configMap": {"name": KUBECONFIG_MAP, "items": [{"key": KUBECONFIG_KEY, "path": KUBECONFIG_KEY}]}},
        {"secret": {"name": TOKEN_SECRET, "optional": True, "items": [_same("token"), _same("ca.crt")]}},
    ]
    return {"name": name, "projected": {"defaultMode": KEY_MODE, "sources": sources}}


def _same(key: str) -> Object:
    return {"key": key, "path": key}


def _kubeconfig(spec: HostedSpec) -> Object:
    # The Service's short name is in kube-apiserver's certificate.
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


PROGRAMS: Final = {
    ProxyKind.SOCKS5: "/usr/bin/konnectivity-socks5-proxy",
    ProxyKind.HTTPS: "/usr/bin/konnectivity-https-proxy",
}
LOOPBACK: Final = "127.0.0.1"
USER_PROXY_DIRECTORY: Final = "/etc/konnectivity/data-plane-proxy"
"""The user's proxy as files: in arguments or environment its password would be in the pod's manifest."""
TRUSTED_CA_DIRECTORY: Final = "/etc/konnectivity/data-plane-proxy-ca"
TRUSTED_CA_KEY: Final = "ca-bundle.crt"
_CA_VOLUME: Final = "konnectivity-proxy-ca"
_CLIENT_VOLUME: Final = "konnectivity-proxy-client"
_KUBECONFIG_VOLUME: Final = "konnectivity-proxy-kubeconfig"
_USER_PROXY_VOLUME: Final = "konnectivity-data-plane-proxy"
_TRUSTED_CA_VOLUME: Final = "konnectivity-data-plane-proxy-ca"


def sidecar_patches(spec: HostedSpec) -> dict[str, Object]:
    """Return the patch of each chosen component's Deployment, by name."""
    return {component.name: _patch(spec, component) for component in chosen(spec)}


def _patch(spec: HostedSpec, component: ProxiedComponent) -> Object:
    template = {
        "metadata": {"labels": dict([PROXY_LABEL])},
        "spec": {
            "containers": [
                *_main_container(spec, component),
                *(proxy_container(spec, proxy) for proxy in component.proxies),
            ],
            "volumes": _volumes(spec, component),
        },
    }
    head = {"name": component.name, "namespace": spec.namespace}
    return manifest("apps/v1", "Deployment", head, spec={"template": template})


def _main_container(spec: HostedSpec, component: ProxiedComponent) -> list[Object]:
    """Return nothing if the component's code has the proxy's address."""
    if not component.variables:
        return []
    variables = {**component.environment(), "NO_PROXY": components.for_component(spec, component.no_proxy)}
    return [{"name": component.name, "env": [{"name": key, "value": value} for key, value in variables.items()]}]


def proxy_container(spec: HostedSpec, proxy: Proxy) -> Object:
    port = HEALTH_PORTS[proxy.kind]
    container: Object = {
        "name": proxy.container_name,
        "image": spec.images.proxy,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAMS[proxy.kind]],
        "args": proxy_flags(spec, proxy),
        "ports": [{"name": f"{proxy.kind.value}-health", "containerPort": port, "protocol": "TCP"}],
        "livenessProbe": probe("/livez", port, periodSeconds=30, timeoutSeconds=5, failureThreshold=6),
        # Ready since the first contact with a server: a waiting proxy must not make its component unready.
        "readinessProbe": probe("/readyz", port, periodSeconds=5, timeoutSeconds=5, failureThreshold=3),
        "resources": requests("10m", "50Mi"),
        "securityContext": dict(UNPRIVILEGED),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(spec, proxy),
    }
    if proxy.to_cloud_apis and spec.management_proxy.is_set:
        container["envFrom"] = [{"secretRef": {"name": names.MANAGEMENT_PROXY_SECRET}}]
    if needs_access(proxy):
        container["env"] = [{"name": "KUBECONFIG", "value": f"{KUBECONFIG_DIRECTORY}/{KUBECONFIG_KEY}"}]
    return container


def proxy_flags(spec: HostedSpec, proxy: Proxy) -> list[str]:
    client = names.PROXY_CLIENT_DIRECTORY
    return [
        f"--konnectivity-hostname={names.SERVER_LOCAL}",
        f"--konnectivity-port={names.FRONTEND_PORT}",
        f"--ca-cert-path={names.PROXY_CA_DIRECTORY}/{names.CA_KEY}",
        f"--tls-cert-path={client}/tls.crt",
        f"--tls-key-path={client}/tls.key",
        f"--serving-port={proxy.port}",
        # HyperShift's proxies listen on every interface, open to everybody who reaches the pod.
        f"--bind-address={LOOPBACK}",
        f"--health-port={HEALTH_PORTS[proxy.kind]}",
        *(["--connect-directly-to-cloud-apis=true"] if proxy.to_cloud_apis else []),
        *(["--prefer-ipv4=true"] if _is_ipv4(spec) else []),
        *(_socks5_flags(proxy) if proxy.kind is ProxyKind.SOCKS5 else _https_flags(spec)),
    ]


def _socks5_flags(proxy: Proxy) -> list[str]:
    match proxy.resolution:
        case NameResolution.AGENT:
            return ["--disable-resolver=true"]
        case NameResolution.HOSTED:
            return ["--resolve-from-guest-cluster-dns=true"]
        case NameResolution.HOSTED_THEN_MANAGEMENT:
            return ["--resolve-from-guest-cluster-dns=true", "--resolve-from-management-cluster-dns=true"]


def _https_flags(spec: HostedSpec) -> list[str]:
    if not spec.proxy.is_set:
        return []
    return [
        *([f"--http-proxy-file={USER_PROXY_DIRECTORY}/HTTP_PROXY"] if spec.proxy.http else []),
        *([f"--https-proxy-file={USER_PROXY_DIRECTORY}/HTTPS_PROXY"] if spec.proxy.https else []),
        f"--no-proxy={components.for_user_proxy(spec)}",
        *([f"--proxy-ca-path={TRUSTED_CA_DIRECTORY}/{TRUSTED_CA_KEY}"] if spec.proxy.trusted_ca else []),
    ]


def _is_ipv4(spec: HostedSpec) -> bool:
    """If Services have no IPv6, IPv6 addresses of names are unreachable too (OCPBUGS-86843)."""
    return bool(spec.networks.service) and all(network.version == 4 for network in spec.networks.service)


def _mounts(spec: HostedSpec, proxy: Proxy) -> list[Object]:
    return [
        mount(_CLIENT_VOLUME, names.PROXY_CLIENT_DIRECTORY),
        mount(_CA_VOLUME, names.PROXY_CA_DIRECTORY),
        *([mount(_KUBECONFIG_VOLUME, KUBECONFIG_DIRECTORY)] if needs_access(proxy) else []),
        *([mount(_USER_PROXY_VOLUME, USER_PROXY_DIRECTORY)] if _asks_user_proxy(spec, proxy) else []),
        *([mount(_TRUSTED_CA_VOLUME, TRUSTED_CA_DIRECTORY)] if _trusts_more(spec, proxy) else []),
    ]


def _volumes(spec: HostedSpec, component: ProxiedComponent) -> list[Object]:
    proxies = component.proxies
    found = [
        secret_volume(_CLIENT_VOLUME, names.SECRET_CLIENT),
        config_map_volume(_CA_VOLUME, names.CA_BUNDLE, {names.CA_KEY: names.CA_KEY}),
    ]
    if any(needs_access(proxy) for proxy in proxies):
        found.append(kubeconfig_volume(_KUBECONFIG_VOLUME))
    if any(_asks_user_proxy(spec, proxy) for proxy in proxies):
        found.append(secret_volume(_USER_PROXY_VOLUME, names.PROXY_SECRET))
    if any(_trusts_more(spec, proxy) for proxy in proxies):
        found.append(config_map_volume(_TRUSTED_CA_VOLUME, spec.proxy.trusted_ca, {TRUSTED_CA_KEY: TRUSTED_CA_KEY}))
    return found


def _asks_user_proxy(spec: HostedSpec, proxy: Proxy) -> bool:
    return proxy.kind is ProxyKind.HTTPS and spec.proxy.is_set


def _trusts_more(spec: HostedSpec, proxy: Proxy) -> bool:
    return _asks_user_proxy(spec, proxy) and bool(spec.proxy.trusted_ca)
