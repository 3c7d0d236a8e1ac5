"""Reading a spec from YAML, its validation, and the example that explains every key."""

import ipaddress
import re
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hosted_specs import hosted_spec
from tests.support.manifests import json_values

from umbilical.fault import RenderError
from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import (
    AggregatedApi,
    ApiGroup,
    DataPlaneProxy,
    HostedImages,
    HostedNetworks,
    HostedSpec,
    KubeApiserver,
    Leases,
    ManagementProxy,
    Pki,
    Publishing,
    ServerCount,
    Strategy,
    TlsProfile,
    Workload,
    problems,
)
from umbilical.hosted.objects.spec_reading import API_VERSION, EXAMPLE, KIND, read_spec
from umbilical.hosted.pki.table import Signers
from umbilical.manifests.objects import DEFAULT_IMAGE
from umbilical.manifests.tree import yaml_bytes
from umbilical.pki.profiles import KeyType

ADDRESS = ipaddress.ip_address("172.30.12.7")


def networks(*texts: str) -> HostedNetworks:
    return HostedNetworks(*((ipaddress.ip_network(text),) for text in texts))


def test_servers_are_known_by_their_services_and_by_loopback_or_the_published_host() -> None:
    places = ("", ".clusters-guest.svc", ".clusters-guest.svc.cluster.local")
    frontend = [f"konnectivity-server-local{place}" for place in places]
    assert hosted_spec().frontend_names == ("localhost", *frontend, "127.0.0.1")
    listener = [f"konnectivity-server{place}" for place in places]
    assert hosted_spec().agent_listener_names == (*listener, "konnectivity.guest.example")


def test_what_contradicts_itself_is_told() -> None:
    for changes, told in (
        ({"publishing": Publishing(Strategy.ROUTE, "10.0.0.9", 443)}, "publish.host 10.0.0.9 is an address"),
        ({"publishing": Publishing(Strategy.NODE_PORT, "10.0.0.9", 8091)}, "publish.port 8091 is not a node port"),
        (
            {"publishing": Publishing(Strategy.LOAD_BALANCER, "0.0.0.0", 8091)},
            "0.0.0.0 is not an address to connect to",
        ),
        (
            {"publishing": Publishing(Strategy.LOAD_BALANCER, "a.b", 8091, {"a": "b"})},
            "publish.labels are allowed only with",
        ),
        ({"server_count": ServerCount.LEASES}, "needs leases.kubeconfigSecret"),
        ({"kube_apiserver": KubeApiserver(workload=Workload.STATIC_POD)}, "kubeApiserver.manifest is required"),
        ({"kube_apiserver": KubeApiserver(ports=())}, "kubeApiserver.ports is empty"),
        ({"networks": HostedNetworks()}, "networks.service is required"),
        ({"proxy": DataPlaneProxy(trusted_ca="bundle")}, "without a proxy"),
        ({"pki": Pki(authority_days=365)}, "pki.certificateDays must be less"),
        ({"aggregated_authority": ""}, "aggregatedAuthority is required"),
        ({"aggregated_apis": (AggregatedApi("a"), AggregatedApi("a"))}, "names a twice"),
        (
            {"aggregated_apis": (AggregatedApi("a", (), (ApiGroup("g"),)), AggregatedApi("b", (), (ApiGroup("g"),)))},
            "gives v1.g to two services",
        ),
        (
            {"aggregated_apis": (AggregatedApi("a", (ipaddress.ip_address("172.31.0.9"),)),)},
            "172.31.0.9 is also in a network of the hosted cluster",
        ),
        (
            {"networks": networks("10.0.0.0/8", "172.31.0.0/16", "10.1.0.0/16")},
            "networks 10.0.0.0/8 and 10.1.0.0/16 overlap",
        ),
    ):
        found = list(problems(hosted_spec(**changes)))
        assert len(found) == 1, told
        assert told in found[0]


def test_leases_cannot_be_published_by_a_static_pod() -> None:
    static = KubeApiserver(workload=Workload.STATIC_POD, manifest="pod.yaml")
    spec = hosted_spec(kube_apiserver=static, server_count=ServerCount.LEASES, leases=Leases("secret"))
    assert list(problems(spec)) == ["serverCount leases needs a Secret, and a static pod cannot use one"]


def test_addresses_that_were_looked_up_are_put_in_also_for_new_ones_and_unknown_services_added() -> None:
    apis = (AggregatedApi("named"), AggregatedApi("given", (ADDRESS,)), AggregatedApi("moved", (ADDRESS,)))
    looked_up = {"named": "172.30.0.1", "labelled": "fd00::5", "moved": "172.30.99.9"}
    addresses = {name: (ipaddress.ip_address(text),) for name, text in looked_up.items()}
    found = hosted_spec(aggregated_apis=apis).with_addresses(addresses)
    assert {api.service: api.addresses for api in found.aggregated_apis} == {**addresses, "given": (ADDRESS,)}
    assert [str(one) for one in found.known_addresses] == ["172.30.0.1", "172.30.12.7", "172.30.99.9", "fd00::5"]


def test_passwords_of_a_proxy_do_not_slip_into_a_log() -> None:
    spec = hosted_spec(
        proxy=DataPlaneProxy(http="http://user:hunter2@proxy:3128", https="http://user:hunter2@proxy:3128")
    )
    assert spec.proxy.is_set
    assert "hunter2" not in repr(spec)


MINIMAL: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "name": "guest",
    "namespace": "clusters-guest",
    "publish": {"strategy": "loadbalancer", "host": "203.0.113.9"},
    "networks": {"service": ["172.31.0.0/16"]},
}


def read(**changes: Any) -> HostedSpec:
    return read_spec(yaml.safe_dump(MINIMAL | changes).encode())


def refusal(**changes: Any) -> str:
    with pytest.raises(RenderError) as refused:
        read(**changes)
    assert refused.value.code == "UMB550"
    assert str(refused.value).count("\n") == 2
    return refused.value.why


def test_little_is_needed() -> None:
    spec = read()
    assert spec.is_ours
    assert spec.publishing.strategy is Strategy.LOAD_BALANCER
    assert spec.publishing.port == 8091
    assert spec.images == HostedImages(DEFAULT_IMAGE, DEFAULT_IMAGE, DEFAULT_IMAGE)
    assert (spec.replicas, spec.agents.control_plane_replicas) == (3, 2)
    assert read(replicas=1).agents.control_plane_replicas == 1
    assert spec.pki.signers is Signers.SEPARATE
    assert spec.server_count is ServerCount.REPLICAS


def test_everything_can_be_said() -> None:
    spec = read(
        replicas=2,
        server="upstream",
        images={"server": "registry.example/server:1", "agent": "registry.example/agent:1"},
        serverCount="leases",
        leases={"kubeconfigSecret": "servers", "user": "somebody"},
        tlsProfile="modern",
        publish={"strategy": "nodeport", "host": "2001:db8::9", "port": 30091},
        kubeApiserver={"name": "kas", "labels": {"app": "kas"}, "ports": [2040, 6443], "egressFlag": False},
        pki={"signers": "single", "keyType": "ecdsa-p256", "certificateDays": 30, "renewPercent": 50},
        agents={"hostNetwork": False, "dnsPolicy": "ClusterFirst", "controlPlaneUser": 1001},
        monitoring={"enabled": False},
        managementProxy={"https": "http://u:p@proxy.example:3128", "noProxy": [".mgmt"]},
        clusterDomain="mgmt.example",
        priorityClass="system-cluster-critical",
    )
    assert not any((spec.is_ours, spec.monitoring.enabled, spec.agents.host_network))
    assert spec.tls_profile is TlsProfile.MODERN
    assert (spec.kube_apiserver.workload, spec.kube_apiserver.has_egress_flag) == (Workload.DEPLOYMENT, False)
    assert (spec.pki.key_type, spec.pki.renew_percent) == (KeyType.ECDSA_P256, 50)
    assert spec.leases.user == "somebody"
    assert spec.management_proxy == ManagementProxy("http://u:p@proxy.example:3128", (".mgmt",))
    assert spec.agents.control_plane_user == 1001
    assert spec.kube_apiserver.ports == (2040, 6443)


def test_a_route_may_have_labels() -> None:
    given = {"strategy": "route", "host": "a.example", "labels": {"hypershift.openshift.io/internal-route": "true"}}
    assert read(publish=given).publishing.labels == given["labels"]
    assert read().publishing.labels == {}


def test_every_problem_is_told_at_once_and_an_unknown_key_with_the_nearest_name_at_every_depth() -> None:
    why = refusal(name="Guest", replicas=0, publsh={}, networks={"service": ["172.31.0.1/16"]})
    for told in ("name 'Guest'", "replicas 0", "publsh is unknown; did you mean publish?", "networks.service[0]"):
        assert told in why
    assert "pki.signer is unknown; did you mean signers?" in refusal(pki={"signer": "single"})
    api = {"service": "a", "groups": [{"grop": "x"}]}
    assert "aggregatedApis[0].groups[0].grop is unknown; did you mean group?" in refusal(aggregatedApis=[api])


def test_a_wrong_value_is_refused() -> None:
    for changes, told in (
        ({"kind": "Config"}, "kind must be HostedControlPlane"),
        ({"apiVersion": "v1"}, "apiVersion must be"),
        ({"publish": {"strategy": "route", "host": "https://a.example"}}, "publish.host 'https://a.example'"),
        ({"publish": {"strategy": "nodeport", "host": "10.0.0.1"}}, "publish.port is needed"),
        ({"publish": {"host": "a.example"}}, "publish.strategy is needed: route or nodeport or loadbalancer"),
        ({"images": {"server": "a b"}}, "must be an image reference"),
        ({"components": ["kube-scheduler"]}, "components[0] 'kube-scheduler': must be one of: openshift-apiserver"),
        ({"proxy": {"http": "socks5://user:hunter2@proxy"}}, "proxy.http: must be a URL like"),
        ({"proxy": {"trustedCa": "bundle"}}, "proxy.trustedCa is given without a proxy"),
        (
            {"server": "upstream"},
            f"images.server is required with server upstream: the default image, {DEFAULT_IMAGE}",
        ),
        ({"server": "upstream", "images": {"server": "a:1"}}, "images.agent is required with server upstream"),
        ({"aggregatedAuthority": "none"}, "aggregatedAuthority: must be PEM certificates"),
        ({"replicas": "three"}, "replicas 'three'"),
    ):
        why = refusal(**changes)
        assert told in why
        assert "hunter2" not in why


def test_another_file_is_refused() -> None:
    for content in (b"", b"[]", b"text", b"a: *b", b"a: 1\na: 2\n"):
        with pytest.raises(RenderError, match="UMB550"):
            read_spec(content)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from([*MINIMAL, "pki", "agents", "aggregatedApis", "proxy", "x"]), json_values()))
def test_any_spec_is_read_or_refused_as_a_user_is_told(changes: dict[str, Any]) -> None:
    with suppress(RenderError):
        read(**changes)


PEM = "aggregatedAuthority: |\n  -----BEGIN CERTIFICATE-----\n  MA==\n  -----END CERTIFICATE-----"


def test_the_example_can_be_used() -> None:
    spec = read_spec(EXAMPLE.encode())
    assert (spec.name, spec.replicas, spec.publishing.port) == ("guest", 3, 443)


def test_the_example_names_every_component() -> None:
    assert read_spec(EXAMPLE.encode()).components == names.COMPONENTS


def test_an_image_that_is_not_given_is_the_servers_or_ours() -> None:
    mirrored = "registry.example/umbilical:1"
    assert read(images={"server": mirrored}).images == HostedImages(mirrored, mirrored, mirrored)
    assert read(images={"agent": mirrored}).images == HostedImages(DEFAULT_IMAGE, mirrored, DEFAULT_IMAGE)


def test_upstreams_programs_have_images_that_nobody_can_guess_and_their_sidecars_have_ours() -> None:
    images = {"server": "registry.example/server:1", "agent": "registry.example/agent:1"}
    spec = read(server="upstream", images=images, components=["olm-operator"])
    assert spec.images == HostedImages(images["server"], images["agent"], DEFAULT_IMAGE)
    mirrored = "registry.example/umbilical:1"
    assert read(server="upstream", images={**images, "proxy": mirrored}).images.proxy == mirrored


def test_what_is_commented_out_can_be_used_as_well() -> None:
    text = re.sub(r"^# aggregatedAuthority(.*\n)*?#   \.\.\.$", PEM, EXAMPLE, flags=re.MULTILINE)
    text = re.sub(r"^#(    groups:|      - group|        (version|group))", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)# ((leases|proxy|managementProxy|manifest|agent):.*)$", r"\1\2", text, flags=re.MULTILINE)
    text = re.sub(r"^#   ((kubeconfigSecret|user|http|https|noProxy|trustedCa): )", r"  \1", text, flags=re.MULTILINE)
    spec = read_spec(text.encode())
    assert spec.aggregated_apis[0].groups[0].name == "v1.apps.openshift.io"
    assert spec.leases.kubeconfig_secret
    assert spec.proxy.is_set
    assert (spec.proxy.trusted_ca, spec.proxy.no_proxy) == ("user-ca-bundle", (".example.com",))
    assert (spec.management_proxy.is_set, spec.management_proxy.no_proxy) == (True, (".mgmt.example.com",))
    assert spec.kube_apiserver.manifest == "kube-apiserver.yaml"


def test_every_key_that_can_be_given_is_in_the_example() -> None:
    unknown = {"zz": 1}
    sections = ("images", "publish", "networks", "leases", "agents", "kubeApiserver", "pki", "proxy", "monitoring")
    apis = {"managementProxy": unknown, "aggregatedApis": [{**unknown, "groups": [unknown]}]}
    with pytest.raises(RenderError) as refused:
        read_spec(yaml_bytes({**unknown, **dict.fromkeys(sections, unknown), **apis}))
    offered = [names for reason in refused.value.why.split("; ") if (names := reason.partition("known keys: ")[2])]
    assert len(offered) == 13
    for key in {key for names in offered for key in names.split(", ")}:
        assert re.search(rf"^[#\s-]*{key}:", EXAMPLE, re.MULTILINE), f"{key} is not explained"
