"""Patches for components: what their proxies are told, by the proxies' own reading of the flags, and what they hold."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosted_specs import hosted_spec

from umbilical.assets.hosted import names
from umbilical.assets.hosted.monitoring import PROXY_LABEL, PROXY_PORTS
from umbilical.assets.hosted.no_proxy_list import for_user_proxy
from umbilical.assets.hosted.proxy_secret import proxy_secret
from umbilical.assets.hosted.sidecars import sidecar_patches
from umbilical.assets.hosted.spec import DataPlaneProxy, HostedSpec, ManagementProxy, Networks
from umbilical.cli import klog
from umbilical.cli.konnectivity_https_proxy import HTTPS_PROXY, check_flags, https_settings
from umbilical.cli.konnectivity_socks5_proxy import SOCKS5_PROXY, socks5_settings
from umbilical.cli.pflag import FlagSet
from umbilical.cli.proxy_flags import check_shared_flags
from umbilical.dialer.settings import TcpServer
from umbilical.proxies.settings import HttpsSettings, Resolution, Socks5Settings

SECRET_URL = "http://user:pa55@proxy.example:3128"
WITH_PROXY = hosted_spec(proxy=DataPlaneProxy(SECRET_URL, SECRET_URL, (".example.com",), "user-ca-bundle"))


def pod(name: str, spec: HostedSpec | None = None) -> dict[str, Any]:
    found: dict[str, Any] = sidecar_patches(spec or hosted_spec())[name]["spec"]["template"]["spec"]
    return found


def container(name: str, kind: str, spec: HostedSpec | None = None) -> dict[str, Any]:
    (found,) = [one for one in pod(name, spec)["containers"] if one["name"] == f"konnectivity-proxy-{kind}"]
    return dict(found)


def variables(of: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in of.get("env", ())}


def socks5(of: dict[str, Any]) -> Socks5Settings:
    """What the proxy makes of its arguments and variables."""
    flags = FlagSet(SOCKS5_PROXY.program, SOCKS5_PROXY.flags(), klog.FLAGS)
    flags.parse(of["args"])
    check_shared_flags(flags)
    return socks5_settings(flags, variables(of))


def https(of: dict[str, Any]) -> HttpsSettings:
    flags = FlagSet(HTTPS_PROXY.program, HTTPS_PROXY.flags(), klog.FLAGS)
    flags.parse(of["args"])
    check_flags(flags)
    return https_settings(flags, variables(of))


def test_every_chosen_component_gets_a_patch_of_its_deployment() -> None:
    patches = sidecar_patches(hosted_spec())
    assert tuple(patches) == names.COMPONENTS
    for name, patch in patches.items():
        assert (patch["kind"], patch["metadata"]) == ("Deployment", {"name": name, "namespace": "clusters-guest"})
    assert sidecar_patches(hosted_spec(components=())) == {}


@pytest.mark.parametrize("name", names.COMPONENTS)
def test_a_pod_with_proxies_is_found_by_prometheus(name: str) -> None:
    template = sidecar_patches(hosted_spec())[name]["spec"]["template"]
    key, value = PROXY_LABEL
    assert template["metadata"]["labels"] == {key: value}
    ports = [port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())]
    assert ports
    assert set(ports) <= set(PROXY_PORTS)


@pytest.mark.parametrize("name", names.COMPONENTS)
def test_every_mount_has_its_volume_and_every_volume_a_mount(name: str) -> None:
    for spec in (hosted_spec(), WITH_PROXY):
        mounted = {mount["name"] for one in pod(name, spec)["containers"] for mount in one.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod(name, spec)["volumes"]}


def test_proxies_listen_on_loopback_where_their_component_looks_for_them() -> None:
    settings = socks5(container("openshift-oauth-apiserver", "socks5"))
    assert [(one.host, one.port) for one in settings.listener.listen] == [("127.0.0.1", 8090)]
    main = pod("openshift-oauth-apiserver")["containers"][0]
    assert variables(main)["HTTPS_PROXY"] == "socks5://127.0.0.1:8090"


def test_probes_ask_the_port_on_which_the_proxy_answers_them() -> None:
    one = container("olm-operator", "socks5")
    health = socks5(one).listener.health
    assert health is not None
    assert health.host == ""
    probes = (one["livenessProbe"]["httpGet"], one["readinessProbe"]["httpGet"])
    assert [probe["port"] for probe in probes] == [health.port] * 2
    assert [port["containerPort"] for port in one["ports"]] == [health.port]


def test_proxies_dial_the_frontend_with_the_client_s_certificate() -> None:
    one = container("olm-operator", "socks5")
    dialer = socks5(one).outbound.dialer
    assert dialer.servers == (TcpServer("konnectivity-server-local", 8090),)
    mounts = {mount["mountPath"] for mount in one["volumeMounts"]}
    for path in (dialer.tls.authority, dialer.tls.certificate, dialer.tls.key):
        assert path is not None
        assert str(Path(path).parent) in mounts


@pytest.mark.parametrize(
    ("name", "resolution"),
    [
        ("cluster-network-operator", Resolution.AGENT),
        ("olm-operator", Resolution.SERVICE),
        ("oauth-openshift", Resolution.GUEST_THEN_MANAGEMENT),
    ],
)
def test_names_are_resolved_as_the_component_needs(name: str, resolution: Resolution) -> None:
    assert socks5(container(name, "socks5")).outbound.resolution is resolution


def test_a_proxy_that_resolves_nothing_holds_no_kubeconfig() -> None:
    one = container("cluster-network-operator", "socks5")
    assert "KUBECONFIG" not in variables(one)
    assert "kubeconfig" not in str(pod("cluster-network-operator"))


def test_a_proxy_that_looks_for_services_has_its_own_account_and_nobody_else_s() -> None:
    one = container("olm-operator", "socks5")
    kubeconfig = socks5(one).outbound.kubeconfig
    assert kubeconfig is not None
    assert str(kubeconfig.parent) in {mount["mountPath"] for mount in one["volumeMounts"]}
    assert "admin" not in str(pod("olm-operator"))


def test_the_oauth_server_gets_both_proxies_and_the_http_one_has_another_port() -> None:
    containers = pod("oauth-openshift")["containers"]
    assert [one["name"] for one in containers] == [
        "oauth-openshift",
        "konnectivity-proxy-https",
        "konnectivity-proxy-socks5",
    ]
    assert variables(containers[0]) == {
        "HTTP_PROXY": "http://127.0.0.1:8092",
        "HTTPS_PROXY": "http://127.0.0.1:8092",
        "ALL_PROXY": "socks5://127.0.0.1:8090",
        "NO_PROXY": variables(containers[0])["NO_PROXY"],
    }
    assert "--serving-port=8092" in containers[1]["args"]
    assert "--connect-directly-to-cloud-apis=true" in containers[1]["args"]
    assert "--connect-directly-to-cloud-apis=true" not in containers[2]["args"]


def test_a_component_whose_code_knows_its_proxy_is_not_touched() -> None:
    assert [one["name"] for one in pod("cluster-network-operator")["containers"]] == ["konnectivity-proxy-socks5"]


def test_the_user_s_proxy_is_read_from_files_and_its_password_is_nowhere() -> None:
    for patch in sidecar_patches(WITH_PROXY).values():
        assert "pa55" not in str(patch)
        assert "proxy.example" not in str(patch)
    one = container("openshift-apiserver", "https", WITH_PROXY)
    assert names.PROXY_SECRET in str(pod("openshift-apiserver", WITH_PROXY)["volumes"])
    (exclusions,) = [flag for flag in one["args"] if flag.startswith("--no-proxy=")]
    assert "192.168.10.0/24" in exclusions
    assert ".example.com" in exclusions


def test_the_files_of_the_user_s_proxy_are_keys_of_its_secret() -> None:
    (made,) = proxy_secret(WITH_PROXY, WITH_PROXY.namespace)
    one = container("openshift-apiserver", "https", WITH_PROXY)
    settings = https(one)
    assert settings.http_proxy_file is not None
    assert settings.https_proxy_file is not None
    assert {settings.http_proxy_file.name, settings.https_proxy_file.name} <= set(made["data"])
    mounts = {mount["mountPath"] for mount in one["volumeMounts"]}
    assert {str(settings.http_proxy_file.parent), str(settings.https_proxy_file.parent)} <= mounts
    assert settings.no_proxy == for_user_proxy(WITH_PROXY)
    assert settings.proxy_authority is not None
    assert str(settings.proxy_authority.parent) in mounts


def test_a_proxy_for_one_scheme_alone_is_named_for_that_one() -> None:
    only = hosted_spec(proxy=DataPlaneProxy(https=SECRET_URL))
    settings = https(container("openshift-apiserver", "https", only))
    assert settings.http_proxy_file is None
    assert settings.https_proxy_file is not None
    assert settings.proxy_authority is None


def test_the_http_proxy_listens_on_loopback_and_resolves_by_services() -> None:
    settings = https(container("oauth-openshift", "https"))
    assert [(one.host, one.port) for one in settings.listener.listen] == [("127.0.0.1", 8092)]
    assert settings.listener.health is not None
    assert settings.listener.health.port == 8192
    assert settings.outbound.resolution is Resolution.SERVICE
    assert settings.outbound.direct_suffixes
    assert not https(container("openshift-apiserver", "https")).outbound.direct_suffixes


def test_without_a_proxy_of_the_user_nothing_of_one_is_said() -> None:
    one = container("openshift-apiserver", "https")
    assert not [flag for flag in one["args"] if "http" in flag.partition("=")[0]]
    assert names.PROXY_SECRET not in str(pod("openshift-apiserver"))


def test_socks5_knows_nothing_of_the_user_s_proxy() -> None:
    assert names.PROXY_SECRET not in str(pod("olm-operator", WITH_PROXY))


def test_only_who_dials_clouds_by_himself_leaves_by_the_management_cluster_s_proxy() -> None:
    spec = hosted_spec(management_proxy=ManagementProxy(SECRET_URL))
    source = [{"secretRef": {"name": names.MANAGEMENT_PROXY_SECRET}}]
    assert container("ingress-operator", "https", spec)["envFrom"] == source
    assert container("oauth-openshift", "https", spec)["envFrom"] == source
    assert "envFrom" not in container("oauth-openshift", "socks5", spec)
    assert "envFrom" not in container("openshift-apiserver", "https", spec)
    assert "envFrom" not in container("ingress-operator", "https")
    assert "pa55" not in str(sidecar_patches(spec))


def test_ipv4_is_preferred_where_services_have_nothing_else() -> None:
    assert socks5(container("olm-operator", "socks5")).outbound.prefer_ipv4
    both = Networks(service=(ipaddress.ip_network("172.31.0.0/16"), ipaddress.ip_network("fd02::/112")))
    assert not socks5(container("olm-operator", "socks5", hosted_spec(networks=both))).outbound.prefer_ipv4


@pytest.mark.parametrize("name", names.COMPONENTS)
def test_what_stands_beside_a_component_is_in_its_no_proxy(name: str) -> None:
    for one in pod(name)["containers"]:
        if one["name"] == name:
            assert {"kube-apiserver", "etcd-client", "audit-webhook"} <= set(variables(one)["NO_PROXY"].split(","))


@pytest.mark.parametrize("name", names.COMPONENTS)
def test_proxies_have_no_privilege(name: str) -> None:
    for one in pod(name)["containers"]:
        if one["name"] != name:
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
