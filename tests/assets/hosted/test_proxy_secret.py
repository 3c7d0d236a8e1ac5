"""The user's proxy as a Secret."""

import base64

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.no_proxy_list import for_user_proxy
from umbilical.assets.hosted.proxy_secret import proxy_secret
from umbilical.assets.hosted.spec import DataPlaneProxy


def test_it_holds_the_usual_variables() -> None:
    spec = hosted_spec(proxy=DataPlaneProxy("http://p:1", "http://user:pass@p:2", (".corp",)))
    found = proxy_secret(spec, "kube-system")[0]
    values = {name: base64.b64decode(value).decode() for name, value in found["data"].items()}
    assert values == {
        "HTTP_PROXY": "http://p:1",
        "HTTPS_PROXY": "http://user:pass@p:2",
        "NO_PROXY": for_user_proxy(spec),
    }
    assert (found["kind"], found["metadata"]["namespace"]) == ("Secret", "kube-system")


def test_there_is_none_without_a_proxy() -> None:
    assert proxy_secret(hosted_spec(), "kube-system") == []
