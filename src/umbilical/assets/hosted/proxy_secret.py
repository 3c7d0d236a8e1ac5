"""The user's proxy, for sidecars and for agents on nodes: a Secret, since its URL may hold a password."""

from umbilical.assets.hosted import names
from umbilical.assets.hosted.no_proxy_list import for_user_proxy
from umbilical.assets.hosted.objects import Object, metadata, secret
from umbilical.assets.hosted.spec import HostedSpec


def proxy_secret(spec: HostedSpec, namespace: str) -> list[Object]:
    if not spec.proxy.is_set:
        return []
    variables = {
        "HTTP_PROXY": spec.proxy.http,
        "HTTPS_PROXY": spec.proxy.https,
        "NO_PROXY": for_user_proxy(spec),
    }
    head = metadata(spec, names.PROXY_SECRET, namespace)
    return [secret(head, {name: value.encode() for name, value in variables.items()})]
