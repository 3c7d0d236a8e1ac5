"""The user's proxy as a Secret."""

import base64

from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted.no_proxy_list import for_user_proxy
from umbilical.assets.hosted.proxy_secret import management_proxy_secret, proxy_secret
from umbilical.assets.hosted.spec import DataPlaneProxy, ManagementProxy


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


def test_the_management_cluster_s_proxy_is_not_asked_for_what_stands_beside_the_sidecar() -> None:
    spec = hosted_spec(management_proxy=ManagementProxy("http://user:pass@m:3128", (".mgmt.example",)))
    (found,) = management_proxy_secret(spec)
    values = {name: base64.b64decode(value).decode() for name, value in found["data"].items()}
    assert values["HTTPS_PROXY"] == "http://user:pass@m:3128"
    assert {".mgmt.example", "kube-apiserver", "konnectivity-server-local"} <= set(values["NO_PROXY"].split(","))
    assert found["metadata"]["namespace"] == "clusters-guest"
    assert "pass" not in repr(spec)


def test_nobody_gets_the_management_cluster_s_proxy_who_dials_nothing_by_himself() -> None:
    proxy = ManagementProxy("http://m:3128")
    assert management_proxy_secret(hosted_spec(management_proxy=proxy, components=("olm-operator",))) == []
    assert management_proxy_secret(hosted_spec()) == []
