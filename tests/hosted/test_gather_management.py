"""A control plane's namespace on a real kube-apiserver: pods behind the Service, identifiers, certificates, trust."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.cluster.test_objects import on_plane
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.hosted import gather_management as gather
from umbilical.pki.authority import Authority
from umbilical.pki.hosted_table import AGENT, CLIENT, SERVER
from umbilical.pki.profiles import KeyType, client_profile, server_profile

PLACE = "clusters-gather"
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def authority(name: str) -> Authority:
    return Authority.create(name, NOW, 10 * DAY, KeyType.ECDSA_P256)


def item(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": PLACE, **content.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **content}


def server_pod(name: str, *arguments: str, container: str = "konnectivity-server") -> dict[str, Any]:
    spec = {"containers": [{"name": container, "image": "image", "args": list(arguments)}]}
    return item("v1", "Pod", name, metadata={"labels": {"app": "kas"}}, spec=spec)


@pytest.mark.real(*PROGRAMS)
def test_a_namespace_is_looked_at(plane: ControlPlane) -> None:
    ports = [{"port": 8090}]
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}},
        item("v1", "Service", "konnectivity-server-local", spec={"selector": {"app": "kas"}, "ports": ports}),
        server_pod("kas-0", "--health-port=3041", "--server-port", "9090"),
        server_pod("kas-1"),
        server_pod("kas-2", container="kube-apiserver"),
        item("networking.k8s.io/v1", "NetworkPolicy", "closed", spec={"podSelector": {}}),
        item(
            "apps/v1",
            "Deployment",
            "konnectivity-agent",
            spec={
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {
                        "containers": [
                            {"name": "a", "image": "i", "args": ["--agent-identifiers", "ipv4=10.0.0.1&host=x"]}
                        ]
                    },
                },
            },
        ),
    )
    facts = on_plane(plane, lambda client: gather.look_at_namespace(client, PLACE))
    assert [gather.pod_name(pod) for pod in facts.server_pods] == ["kas-0", "kas-1"]
    assert [gather.health_port(pod) for pod in facts.server_pods] == [3041, 2041]
    assert [gather.frontend_port(pod) for pod in facts.server_pods] == [9090, 8090]
    assert set(facts.services) == {"konnectivity-server-local"}
    assert len(facts.policies) == 1
    assert facts.control_plane_agent is not None
    assert gather.identifiers(facts.control_plane_agent) == ["10.0.0.1", "x"]


@pytest.mark.real(*PROGRAMS)
def test_an_empty_namespace_has_nothing(plane: ControlPlane) -> None:
    facts = on_plane(plane, lambda client: gather.look_at_namespace(client, "nothing-here"))
    assert (facts.server_pods, facts.services, facts.control_plane_agent) == ((), {}, None)
    certificates = on_plane(plane, lambda client: gather.look_at_certificates(client, "nothing-here", None))
    assert [fact.trouble for fact in certificates] == ["there is no such Secret"] * 3


def deployment(*arguments: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"args": list(arguments)}]}}}}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], []),
        (["--agent-identifiers="], []),
        (["--agent-identifiers=ipv4="], [""]),
        (["--agent-identifiers=ipv4=10.0.0.1&ipv6=fd00::1&host=api"], ["10.0.0.1", "fd00::1", "api"]),
        (["--agent-identifiers=default-route=true"], []),
    ],
)
def test_identifiers_are_read_with_their_gaps(arguments: list[str], found: list[str]) -> None:
    assert gather.identifiers(deployment(*arguments)) == found


def test_a_service_tells_the_port_of_its_address() -> None:
    services: list[dict[str, Any]] = [
        {"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "ports": [{"port": 8443}]}},
        {"spec": {"clusterIP": "10.0.0.2", "ports": []}},
    ]
    assert gather.service_port(services, "fd00::1") == 8443
    assert gather.service_port(services, "10.0.0.2") == 443
    assert gather.service_port(services, "10.0.0.3") == 443


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def test_a_certificate_is_read_with_those_who_must_trust_it() -> None:
    signer, other = authority("signer"), authority("other")
    leaf = signer.issue(server_profile("server", ["localhost"], KeyType.ECDSA_P256), NOW, DAY)
    bundle = {
        "data": {
            "ca.crt": signer.certificate_pem.decode(),
            "server-client-ca.crt": other.certificate_pem.decode(),
        }
    }
    trusted = gather.authorities(bundle, SERVER)
    assert trusted is not None
    assert [one.common_name for one in trusted] == ["signer"]
    client_trust = gather.authorities(bundle, CLIENT)
    assert client_trust is not None
    assert [one.common_name for one in client_trust] == ["other"]
    agent_trust = gather.authorities(bundle, AGENT)
    assert agent_trust is not None, "one key for all, as HyperShift has it"
    assert [one.common_name for one in agent_trust] == ["signer"]
    fact = gather.certificate_fact("s", {"data": {"tls.crt": encoded(leaf.certificate)}}, trusted)
    assert fact.certificate is not None
    assert fact.certificate.common_name == "server"


def test_what_cannot_be_read_is_told_or_not_known() -> None:
    for data in ({}, {"tls.crt": "***"}, {"tls.crt": encoded(b"no certificate")}):
        assert "cannot be read" in gather.certificate_fact("s", {"data": data}, None).trouble
    assert gather.authorities(None, SERVER) is None
    assert gather.authorities({"data": {"ca.crt": "no certificate"}}, SERVER) is None
    assert gather.authorities({"data": {}}, SERVER) is None


@pytest.mark.real(*PROGRAMS)
def test_certificates_come_from_the_cluster(plane: ControlPlane) -> None:
    signer = authority("signer")
    pair = signer.issue(client_profile("konnectivity-client", (), KeyType.ECDSA_P256), NOW, DAY)
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}},
        item("v1", "ConfigMap", "konnectivity-ca-bundle", data={"ca.crt": signer.certificate_pem.decode()}),
        *(
            item("v1", "Secret", name, data={"tls.crt": encoded(pair.certificate), "tls.key": encoded(pair.key)})
            for name in ("konnectivity-client", "konnectivity-agent-control-plane")
        ),
    )
    bundle = on_plane(plane, lambda client: gather.get_bundle(client, PLACE))
    facts = on_plane(plane, lambda client: gather.look_at_certificates(client, PLACE, bundle))
    assert {fact.name.partition("/")[2]: fact.certificate is not None for fact in facts} == {
        "konnectivity-server": False,
        "konnectivity-cluster": False,
        "konnectivity-client": True,
        "konnectivity-agent-control-plane": True,
    }
