"""The user's proxy and the management cluster's own: Secrets, since a proxy's URL may hold a password."""

from umbilical.hosted.objects import names
from umbilical.hosted.objects.components import chosen
from umbilical.hosted.objects.no_proxy_list import for_sidecar, for_user_proxy
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object, secret


def proxy_secret(spec: HostedSpec, namespace: str) -> list[Object]:
    """The user's, for sidecars and for agents on nodes."""
    if not spec.proxy.is_set:
        return []
    variables = {
        "HTTP_PROXY": spec.proxy.http,
        "HTTPS_PROXY": spec.proxy.https,
        "NO_PROXY": for_user_proxy(spec),
    }
    head = metadata(spec, names.PROXY_SECRET, namespace)
    return [secret(head, {name: value.encode() for name, value in variables.items()})]


def management_proxy_secret(spec: HostedSpec) -> list[Object]:
    """For sidecars that dial clouds' APIs by themselves; others have no use for it."""
    dials = any(proxy.to_cloud_apis for component in chosen(spec) for proxy in component.proxies)
    if not (dials and spec.management_proxy.is_set):
        return []
    variables = {"HTTPS_PROXY": spec.management_proxy.https, "NO_PROXY": for_sidecar(spec)}
    head = metadata(spec, names.MANAGEMENT_PROXY_SECRET, spec.namespace)
    return [secret(head, {name: value.encode() for name, value in variables.items()})]
