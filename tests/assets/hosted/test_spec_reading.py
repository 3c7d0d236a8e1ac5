"""A spec from YAML: all of it, and everything that is wrong with it at once."""

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import json_values

from umbilical.assets.errors import AssetError
from umbilical.assets.hosted.spec import HostedSpec, ServerCount, Strategy, TlsProfile, Workload
from umbilical.assets.hosted.spec_reading import API_VERSION, KIND, read_spec
from umbilical.pki.hosted_table import Signers
from umbilical.pki.profiles import KeyType

MINIMAL: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "name": "guest",
    "namespace": "clusters-guest",
    "images": {"server": "registry.example/umbilical:1"},
    "publish": {"strategy": "loadbalancer", "host": "203.0.113.9"},
    "networks": {"service": ["172.31.0.0/16"]},
}


def read(**changes: Any) -> HostedSpec:
    return read_spec(yaml.safe_dump(MINIMAL | changes).encode())


def refusal(**changes: Any) -> str:
    with pytest.raises(AssetError) as refused:
        read(**changes)
    assert refused.value.code == "UMB550"
    assert str(refused.value).count("\n") == 2
    return refused.value.why


def test_little_is_needed() -> None:
    spec = read()
    assert spec.publishing.strategy is Strategy.LOAD_BALANCER
    assert spec.publishing.port == 8091
    assert spec.images.agent == spec.images.proxy == spec.images.server
    assert (spec.replicas, spec.agents.control_plane_replicas) == (3, 2)
    assert spec.pki.signers is Signers.SEPARATE
    assert spec.server_count is ServerCount.REPLICAS


def test_one_of_everything_has_one_agent_beside_the_control_plane() -> None:
    assert read(replicas=1).agents.control_plane_replicas == 1


def test_everything_can_be_said() -> None:
    spec = read(
        replicas=2,
        server="upstream",
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
    assert (spec.management_proxy.https, spec.management_proxy.no_proxy) == (
        "http://u:p@proxy.example:3128",
        (".mgmt",),
    )
    assert spec.agents.control_plane_user == 1001
    assert spec.kube_apiserver.ports == (2040, 6443)


def test_a_route_may_have_labels() -> None:
    given = {"strategy": "route", "host": "a.example", "labels": {"hypershift.openshift.io/internal-route": "true"}}
    assert read(publish=given).publishing.labels == given["labels"]
    assert read().publishing.labels == {}


def test_every_problem_is_told_at_once_in_three_lines() -> None:
    why = refusal(name="Guest", replicas=0, publsh={}, networks={"service": ["172.31.0.1/16"]}, images={})
    for told in ("name 'Guest'", "replicas 0", "publsh is unknown; did you mean publish?", "networks.service[0]"):
        assert told in why
    assert "images.server is needed" in why


def test_an_unknown_key_is_refused_with_the_nearest_name_at_every_depth() -> None:
    assert "pki.signer is unknown; did you mean signers?" in refusal(pki={"signer": "single"})
    api = {"service": "a", "groups": [{"grop": "x"}]}
    assert "aggregatedApis[0].groups[0].grop is unknown; did you mean group?" in refusal(aggregatedApis=[api])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "Config"}, "kind must be HostedControlPlane"),
        ({"apiVersion": "v1"}, "apiVersion must be"),
        ({"publish": {"strategy": "route", "host": "https://a.example"}}, "publish.host 'https://a.example'"),
        ({"publish": {"strategy": "nodeport", "host": "10.0.0.1"}}, "publish.port is needed"),
        ({"publish": {"host": "a.example"}}, "publish.strategy is needed: route or nodeport or loadbalancer"),
        ({"images": {"server": "a b"}}, "an image reference is needed"),
        ({"components": ["kube-scheduler"]}, "components[0] 'kube-scheduler': there are: openshift-apiserver"),
        ({"proxy": {"http": "socks5://user:hunter2@proxy"}}, "proxy.http: a URL like"),
        ({"proxy": {"trustedCa": "bundle"}}, "proxy.trustedCa is given without a proxy"),
        ({"aggregatedAuthority": "none"}, "aggregatedAuthority: PEM certificates are needed"),
        ({"replicas": "three"}, "replicas 'three'"),
    ],
)
def test_a_wrong_value_is_refused(changes: dict[str, Any], told: str) -> None:
    why = refusal(**changes)
    assert told in why
    assert "hunter2" not in why


def test_contradictions_are_told_where_every_value_could_be_read() -> None:
    assert refusal(publish={"strategy": "route", "host": "10.0.0.9"}).startswith("publish.host 10.0.0.9 is an address")


@pytest.mark.parametrize("content", [b"", b"[]", b"text", b"a: *b", b"a: 1\na: 2\n"])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(AssetError, match="UMB550"):
        read_spec(content)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from([*MINIMAL, "pki", "agents", "aggregatedApis", "proxy", "x"]), json_values()))
def test_any_spec_is_read_or_refused_as_a_user_is_told(changes: dict[str, Any]) -> None:
    with suppress(AssetError):
        read(**changes)
