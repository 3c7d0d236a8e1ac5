"""The components' proxies: containers, arguments, NO_PROXY and permissions."""

import base64
import ipaddress
from pathlib import Path
from typing import Any

import yaml
from tests.support.hosted_specs import hosted_spec

from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.konnectivity_https_proxy import HTTPS_PROXY, check_flags, https_settings
from umbilical.cli.drop_ins.konnectivity_socks5_proxy import SOCKS5_PROXY, socks5_settings
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_flags import check_shared_flags
from umbilical.cluster import credentials
from umbilical.dialer.settings import TcpServer
from umbilical.hosted.objects import names
from umbilical.hosted.objects.components import (
    COMPONENTS,
    HEALTH_PORTS,
    NameResolution,
    ProxyKind,
    for_component,
    for_kube_apiserver,
    for_user_proxy,
    management_proxy_secret,
    proxy_secret,
)
from umbilical.hosted.objects.monitoring import PROXY_LABEL, PROXY_PORTS
from umbilical.hosted.objects.sidecars import (
    KUBECONFIG_DIRECTORY,
    KUBECONFIG_KEY,
    KUBECONFIG_MAP,
    TOKEN_SECRET,
    access_notes,
    hosted_access,
    is_needed,
    kubeconfig_volume,
    management_access,
    sidecar_patches,
)
from umbilical.hosted.objects.spec import DataPlaneProxy, HostedNetworks, HostedSpec, KubeApiserver, ManagementProxy
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
    """The settings that the proxy reads from its arguments and environment."""
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
    assert [list(sidecar_patches(hosted_spec(components=some))) for some in ((), ("packageserver",))] == [
        [],
        ["packageserver"],
    ]


def test_every_pod_with_proxies_is_found_by_prometheus_and_mounts_what_it_has() -> None:
    for name, patch in sidecar_patches(hosted_spec()).items():
        template = patch["spec"]["template"]
        assert template["metadata"]["labels"] == dict([PROXY_LABEL]), name
        ports = [port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())]
        assert ports, name
        assert set(ports) <= set(PROXY_PORTS), name
        for spec in (hosted_spec(), WITH_PROXY):
            mounted = {mount["name"] for one in pod(name, spec)["containers"] for mount in one.get("volumeMounts", ())}
            assert mounted == {volume["name"] for volume in pod(name, spec)["volumes"]}, name


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


def test_names_are_resolved_as_the_component_needs() -> None:
    components = ("cluster-network-operator", "olm-operator", "oauth-openshift")
    found = [socks5(container(name, "socks5")).outbound.resolution for name in components]
    assert found == [Resolution.AGENT, Resolution.SERVICE, Resolution.HOSTED_THEN_MANAGEMENT]


def test_a_proxy_that_resolves_nothing_holds_no_kubeconfig_and_its_component_knows_it_untouched() -> None:
    (one,) = pod("cluster-network-operator")["containers"]
    assert one["name"] == "konnectivity-proxy-socks5"
    assert "KUBECONFIG" not in variables(one)
    assert "kubeconfig" not in str(pod("cluster-network-operator"))


def test_a_proxy_that_looks_for_services_has_its_own_account_and_nobody_else_s() -> None:
    one = container("olm-operator", "socks5")
    credentials = socks5(one).outbound.kubeconfig
    assert credentials is not None
    assert str(credentials.parent) in {mount["mountPath"] for mount in one["volumeMounts"]}
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


def test_without_a_proxy_of_the_user_nothing_of_one_is_said_and_socks5_never_knows_it() -> None:
    one = container("openshift-apiserver", "https")
    assert not [flag for flag in one["args"] if "http" in flag.partition("=")[0]]
    assert names.PROXY_SECRET not in str(pod("openshift-apiserver"))
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
    both = HostedNetworks(service=(ipaddress.ip_network("172.31.0.0/16"), ipaddress.ip_network("fd02::/112")))
    assert not socks5(container("olm-operator", "socks5", hosted_spec(networks=both))).outbound.prefer_ipv4


def test_proxies_have_no_privilege_and_are_not_asked_for_what_stands_beside_them() -> None:
    for name in names.COMPONENTS:
        for one in pod(name)["containers"]:
            if one["name"] == name:
                assert {"kube-apiserver", "etcd-client", "audit-webhook"} <= set(variables(one)["NO_PROXY"].split(","))
            else:
                assert one["securityContext"]["readOnlyRootFilesystem"] is True, name
                assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name


AGENT_ONLY = hosted_spec(components=("cluster-network-operator",))


def test_the_account_may_get_services_and_nothing_else() -> None:
    by_kind = {one["kind"]: one for one in hosted_access(hosted_spec())}
    assert by_kind["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}]
    binding = by_kind["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == by_kind["ClusterRole"]["metadata"]["name"]
    (subject,) = binding["subjects"]
    account = by_kind["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    annotations = by_kind["Secret"]["metadata"]["annotations"]
    assert annotations == {"kubernetes.io/service-account.name": account["name"]}


def test_where_no_name_is_resolved_there_is_no_account_and_no_token_to_be_copied() -> None:
    assert not is_needed(AGENT_ONLY)
    assert hosted_access(AGENT_ONLY) == management_access(AGENT_ONLY) == []
    assert is_needed(hosted_spec(components=("olm-operator",)))
    (note,) = access_notes(hosted_spec())
    assert f"kube-system/{TOKEN_SECRET}" in note
    assert "copied to clusters-guest: umbilical hosted apply" in note
    assert access_notes(AGENT_ONLY) == []


def test_the_kubeconfig_is_readable_and_names_files_of_its_volume(tmp_path: Path) -> None:
    (config_map,) = management_access(hosted_spec(kube_apiserver=KubeApiserver(ports=(7443,))))
    text = config_map["data"][KUBECONFIG_KEY]
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    loaded = credentials.load(path)
    assert loaded.cluster.server == "https://kube-apiserver:7443"
    assert loaded.user is not None
    assert loaded.user.token_file == f"{KUBECONFIG_DIRECTORY}/token"
    assert loaded.cluster.certificate_auth == f"{KUBECONFIG_DIRECTORY}/ca.crt"
    assert "token:" not in text
    assert yaml.safe_load(text)["kind"] == "Config"


def test_the_volume_brings_all_files_together_and_does_not_hold_the_pod_back() -> None:
    config_map, secret = (source for source in kubeconfig_volume("k")["projected"]["sources"])
    assert config_map["configMap"]["name"] == KUBECONFIG_MAP
    assert secret["secret"]["name"] == TOKEN_SECRET
    assert secret["secret"]["optional"] is True
    assert [item["path"] for item in secret["secret"]["items"]] == ["token", "ca.crt"]


SOCKS5, HTTPS = ProxyKind.SOCKS5, ProxyKind.HTTPS
TABLE = {
    "openshift-apiserver": (
        [(HTTPS, 8090, NameResolution.HOSTED, False)],
        {"HTTP_PROXY": "http", "HTTPS_PROXY": "http"},
    ),
    "openshift-oauth-apiserver": (
        [(SOCKS5, 8090, NameResolution.HOSTED, False)],
        {"HTTP_PROXY": "socks5", "HTTPS_PROXY": "socks5"},
    ),
    "oauth-openshift": (
        [(HTTPS, 8092, NameResolution.HOSTED, True), (SOCKS5, 8090, NameResolution.HOSTED_THEN_MANAGEMENT, False)],
        {"HTTP_PROXY": "http", "HTTPS_PROXY": "http", "ALL_PROXY": "socks5"},
    ),
    "ingress-operator": ([(HTTPS, 8090, NameResolution.HOSTED, True)], {"HTTP_PROXY": "http", "HTTPS_PROXY": "http"}),
    "cluster-network-operator": ([(SOCKS5, 8090, NameResolution.AGENT, False)], {}),
    "ovnkube-control-plane": ([(SOCKS5, 8090, NameResolution.HOSTED, False)], {"ALL_PROXY": "socks5"}),
    "olm-operator": ([(SOCKS5, 8090, NameResolution.HOSTED, False)], {"GRPC_PROXY": "socks5"}),
    "catalog-operator": ([(SOCKS5, 8090, NameResolution.HOSTED, False)], {"GRPC_PROXY": "socks5"}),
    "packageserver": ([(SOCKS5, 8090, NameResolution.HOSTED, False)], {"GRPC_PROXY": "socks5"}),
}  # fmt: skip


def test_every_component_that_a_spec_may_name_has_its_proxies_and_is_pointed_at_them() -> None:
    assert tuple(COMPONENTS) == names.COMPONENTS == tuple(TABLE)
    for name, (proxies, variables_of_it) in TABLE.items():
        component = COMPONENTS[name]
        assert [(one.kind, one.port, one.resolution, one.to_cloud_apis) for one in component.proxies] == proxies
        ports = {one.url.partition(":")[0]: one.port for one in component.proxies}
        expected = {key: f"{scheme}://127.0.0.1:{ports[scheme]}" for key, scheme in variables_of_it.items()}
        assert component.environment() == expected
        assert component.why
        listening = [port for one in component.proxies for port in (one.port, HEALTH_PORTS[one.kind])]
        assert len(listening) == len(set(listening)), "no two ports of a pod are the same"


def test_containers_are_called_as_hypershift_calls_them() -> None:
    proxies = (*COMPONENTS["oauth-openshift"].proxies, *COMPONENTS["ovnkube-control-plane"].proxies)
    called = ["konnectivity-proxy-https", "konnectivity-proxy-socks5", "socks-proxy"]
    assert [one.container_name for one in proxies] == called


EVERYWHERE = HostedNetworks(
    service=(ipaddress.ip_network("172.31.0.0/16"), ipaddress.ip_network("fd02::/112")),
    machine=(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")),
)


def test_the_user_s_proxy_is_not_for_the_hosted_cluster_itself() -> None:
    own = ".cluster.local,.hypershift.local,.svc,10.132.0.0/14,127.0.0.1,169.254.169.254,172.31.0.0/16,192.168.10.0/24"
    assert for_user_proxy(hosted_spec()) == f"{own},localhost"


def test_a_network_that_is_everything_is_left_out_and_what_the_user_excludes_added_once() -> None:
    proxy = DataPlaneProxy(http="http://proxy:3128", no_proxy=(" .example.com ", "localhost", ""))
    entries = for_user_proxy(hosted_spec(proxy=proxy)).split(",")
    assert ".example.com" in entries
    assert len(entries) == len(set(entries))
    assert "" not in entries
    entries = for_user_proxy(hosted_spec(networks=EVERYWHERE)).split(",")
    assert "fd02::/112" in entries
    assert not {"0.0.0.0/0", "::/0"} & set(entries)


def test_what_stands_beside_a_component_never_enters_the_tunnel_and_the_data_plane_does() -> None:
    entries = for_component(hosted_spec(cluster_domain="mgmt.example"), ("certified-operators",)).split(",")
    assert {"kube-apiserver", "etcd-client", "audit-webhook", "certified-operators"} <= set(entries)
    assert {".clusters-guest.svc", ".clusters-guest.svc.mgmt.example"} <= set(entries)
    entries = for_component(hosted_spec()).split(",")
    assert not set(entries) & {".svc", ".cluster.local", "10.132.0.0/14", "172.31.0.0/16", "192.168.10.0/24"}


def test_kube_apiserver_reaches_kubelets_past_a_proxy_of_the_management_cluster() -> None:
    entries = for_kube_apiserver(hosted_spec(), (".mgmt.example", "kube-apiserver")).split(",")
    assert {"10.132.0.0/14", "172.31.0.0/16", "192.168.10.0/24"} <= set(entries)
    assert {"konnectivity-server-local", ".mgmt.example"} <= set(entries)
    assert entries.count("kube-apiserver") == 1


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
    assert proxy_secret(hosted_spec(), "kube-system") == [], "there is none without a proxy"


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
