"""Facts of a hosted control plane, gathered from both clusters and the tunnel."""

import asyncio
import base64
import ssl
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import on_plane, scripted
from tests.hosted.conftest import Tunnel, access_to
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.in_process import Stage, refused_address
from tests.support.scripted_api import Answer, Request, json_answer, status_answer
from tests.support.tls_listener import listener, says_nothing
from tests.support.tunnel_pki import FolderAuthority
from tests.support.web_server import Handler, serving

from umbilical.hosted import clusters as gather
from umbilical.hosted.access import TunnelAccess
from umbilical.hosted.clusters import read_agent_certificate, read_cluster
from umbilical.hosted.facts import DialProbe, HostedFacts, HostedNode, LogRead, ServerHealth
from umbilical.hosted.pki.table import AGENT, CLIENT, SERVER
from umbilical.hosted.servers import probe_dials, probe_intruder, probe_kubelets
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile
from umbilical.tunnel.settings import TlsFiles


def node(name: str, address: str | None, ready: str, port: int | None = None) -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": address}] if address else []
    endpoints = {"kubeletEndpoint": {"Port": port}} if port else {}
    status = {"addresses": addresses, "conditions": [{"type": "Ready", "status": ready}], "daemonEndpoints": endpoints}
    return {"metadata": {"name": name}, "status": status}


def pod(name: str, on: str, phase: str = "Running") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": on}, "status": {"phase": phase}}


def test_nodes_pods_and_logs_are_looked_at(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        match request.path.rpartition("/kube-system")[2]:
            case "/api/v1/nodes":
                return json_answer({"items": [node("n1", "10.0.0.1", "True", 10999), node("n2", None, "False")]})
            case "/pods":
                pods = [pod("a1", "n1"), pod("a2", "n2"), pod("a3", "n2"), pod("a4", "n2", "Pending")]
                return json_answer({"items": pods})
            case "/pods/a1/log":
                return Answer(b"connected to a server\n")
            case "/pods/a2/log":
                return Answer(b"\n")
            case "/pods/a3/log":
                return status_answer(500, "InternalError", "dial tcp 10.0.0.2:10250: i/o timeout")
        return status_answer(404, "NotFound")

    facts, requests = scripted(answer, read_cluster, tmp_path)
    assert isinstance(facts, HostedFacts)
    assert facts.nodes == (HostedNode("n1", "10.0.0.1", 10999, True), HostedNode("n2", "", 10250, False))
    assert facts.daemon_set is None
    assert len(facts.agent_pods) == 4
    assert facts.logs == (
        LogRead("a1", "n1"),
        LogRead("a2", "n2", "the log is empty"),
        LogRead("a3", "n2", "dial tcp 10.0.0.2:10250: i/o timeout"),
    )
    logs = [request for request in requests if request.path.endswith("/log")]
    assert {request.query["container"] for request in logs} == {"konnectivity-agent"}
    assert {request.query["tailLines"] for request in logs} == {"1"}


def test_the_agents_certificate_that_is_missing_is_told(tmp_path: Path) -> None:
    fact, requests = scripted(
        lambda _: status_answer(404, "NotFound"), lambda client: read_agent_certificate(client, None), tmp_path
    )
    assert fact.trouble == "the Secret does not exist"
    assert requests[0].path == "/api/v1/namespaces/kube-system/secrets/konnectivity-agent"


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
    ports, label = [{"port": 8090}], {"a": "b"}
    container = {"name": "a", "image": "i", "args": ["--agent-identifiers", "ipv4=10.0.0.1&host=x"]}
    agent = {"metadata": {"labels": label}, "spec": {"containers": [container]}}
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}},
        item("v1", "Service", "konnectivity-server-local", spec={"selector": {"app": "kas"}, "ports": ports}),
        server_pod("kas-0", "--health-port=3041", "--server-port", "9090"),
        server_pod("kas-1"),
        server_pod("kas-2", container="kube-apiserver"),
        item("networking.k8s.io/v1", "NetworkPolicy", "closed", spec={"podSelector": {}}),
        item(
            "apps/v1", "Deployment", "konnectivity-agent", spec={"selector": {"matchLabels": label}, "template": agent}
        ),
    )
    facts = on_plane(plane, lambda client: gather.read_namespace(client, PLACE))
    assert [gather.pod_name(pod) for pod in facts.server_pods] == ["kas-0", "kas-1"]
    assert [gather.health_port(pod) for pod in facts.server_pods] == [3041, 2041]
    assert [gather.frontend_port(pod) for pod in facts.server_pods] == [9090, 8090]
    assert set(facts.services) == {"konnectivity-server-local"}
    assert len(facts.policies) == 1
    assert facts.control_plane_agent is not None
    assert gather.identifiers(facts.control_plane_agent) == ["10.0.0.1", "x"]


@pytest.mark.real(*PROGRAMS)
def test_an_empty_namespace_has_nothing(plane: ControlPlane) -> None:
    facts = on_plane(plane, lambda client: gather.read_namespace(client, "nothing-here"))
    assert (facts.server_pods, facts.services, facts.control_plane_agent) == ((), {}, None)
    certificates = on_plane(plane, lambda client: gather.read_certificate_facts(client, "nothing-here", None))
    assert [fact.trouble for fact in certificates] == ["the Secret does not exist"] * 3


def deployment(*arguments: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"args": list(arguments)}]}}}}


def test_identifiers_are_read_with_their_gaps_and_a_service_tells_its_port() -> None:
    assert gather.identifiers(deployment()) == []
    for identifiers, found in (
        ("", []),
        ("ipv4=", [""]),
        ("ipv4=10.0.0.1&ipv6=fd00::1&host=api", ["10.0.0.1", "fd00::1", "api"]),
        ("default-route=true", []),
    ):
        assert gather.identifiers(deployment(f"--agent-identifiers={identifiers}")) == found
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
        "data": {"ca.crt": signer.certificate_pem.decode(), "server-client-ca.crt": other.certificate_pem.decode()}
    }
    # HyperShift: all agents share one key.
    for leaf_kind, name in ((CLIENT, "other"), (AGENT, "signer"), (SERVER, "signer")):
        trusted = gather.authorities(bundle, leaf_kind)
        assert trusted is not None
        assert [one.common_name for one in trusted] == [name]
    fact = gather.certificate_fact("s", {"data": {"tls.crt": encoded(leaf.certificate)}}, trusted)
    assert fact.certificate is not None
    assert fact.certificate.common_name == "server"


def test_what_cannot_be_read_is_told_or_not_known() -> None:
    for data in ({}, {"tls.crt": "***"}, {"tls.crt": encoded(b"no certificate")}):
        assert "its tls.crt is invalid" in gather.certificate_fact("s", {"data": data}, None).trouble
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
    facts = on_plane(plane, lambda client: gather.read_certificate_facts(client, PLACE, bundle))
    assert {fact.name.partition("/")[2]: fact.certificate is not None for fact in facts} == {
        "konnectivity-server": False,
        "konnectivity-cluster": False,
        "konnectivity-client": True,
        "konnectivity-agent-control-plane": True,
    }


SECONDS = 60.0


def kubelet(kubelet_ca: FolderAuthority, status: int, *, asks: bool = False) -> AbstractContextManager[int]:
    class Health(Handler):
        def do_GET(self) -> None:
            self.answer(status if self.path == "/healthz" else 404)

    context = kubelet_ca.server_context(kubelet_ca.serving("kubelet"))
    if asks:
        context.load_verify_locations(kubelet_ca.certificate_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return serving(Health, context)


@pytest.fixture
def kubelet_ca(tmp_path: Path) -> FolderAuthority:
    (tmp_path / "kubelets").mkdir()
    return FolderAuthority(tmp_path / "kubelets", "kubelet-ca")


def kubelets(access: TunnelAccess, port: int, tls: TlsFiles | None = None) -> DialProbe:
    (probe,) = asyncio.run(probe_kubelets([access], [("127.0.0.1", port)], tls, SECONDS))
    return probe


def test_a_kubelet_that_answers_is_reached_and_one_that_is_ill_is_not_well(
    tunnel: Tunnel, kubelet_ca: FolderAuthority
) -> None:
    client = kubelet_ca.client("kube-apiserver")
    files = TlsFiles(client.certificate, client.key, kubelet_ca.certificate_file)
    with kubelet(kubelet_ca, 200, asks=True) as port:
        probe = kubelets(tunnel.access, port, files)
    assert probe == DialProbe(tunnel.access.title, f"127.0.0.1:{port}", True, "HTTP 200 on /healthz")
    for status, is_ok in ((401, True), (403, True), (500, False), (404, False)):
        with kubelet(kubelet_ca, status) as port:
            probe = kubelets(tunnel.access, port)
        assert (probe.is_ok, probe.text) == (is_ok, f"HTTP {status} on /healthz")


def test_a_kubelet_of_another_authority_is_none(tunnel: Tunnel, kubelet_ca: FolderAuthority, tmp_path: Path) -> None:
    other = FolderAuthority(tmp_path, "other")
    with kubelet(kubelet_ca, 200) as port:
        probe = kubelets(tunnel.access, port, TlsFiles(authority=other.certificate_file))
    assert not probe.is_ok
    assert "UMB574" in probe.text


def test_a_kubelet_that_is_away_is_told_with_the_hop(tunnel: Tunnel) -> None:
    probe = kubelets(tunnel.access, int(refused_address().rpartition(":")[2]))
    assert not probe.is_ok
    assert probe.text.startswith("UMB501 dial: ")


def test_an_endpoint_that_says_nothing_over_tls_is_no_kubelet(tunnel: Tunnel, kubelet_ca: FolderAuthority) -> None:
    context = kubelet_ca.server_context(kubelet_ca.serving("silent"))
    with listener(says_nothing(context)) as port:
        (probe,) = asyncio.run(probe_kubelets([tunnel.access], [("127.0.0.1", port)], None, 1.0))
    assert not probe.is_ok


def test_every_endpoint_is_dialled_through_every_server(stage: Stage) -> None:
    servers = [stage.start_server(tcp=True), stage.start_server(tcp=True)]
    stage.start_agent(servers[0].agent_port)
    servers[0].wait_for_agents()
    places = [access_to(stage, server.frontend.port) for server in servers]
    host, _, port = stage.endpoint().address.rpartition(":")
    probes = asyncio.run(probe_dials(places, [(host, int(port)), (host, int(port))], SECONDS))
    assert [probe.is_ok for probe in probes] == [True, True, False, False]
    assert probes[0].text == "agent agent-0"
    assert "UMB505" in probes[2].text


def test_an_agents_certificate_gets_in_by_the_same_authority_alone(tunnel: Tunnel, kubelet_ca: FolderAuthority) -> None:
    agent = TlsFiles(tunnel.pki.agent.certificate, tunnel.pki.agent.key)
    (probe,) = asyncio.run(probe_intruder([tunnel.access], agent, SECONDS))
    assert (probe.subject, probe.is_ok) == ("agent", False)
    stranger = kubelet_ca.client("konnectivity-agent")
    files = TlsFiles(stranger.certificate, stranger.key)
    (probe,) = asyncio.run(probe_intruder([tunnel.access], files, SECONDS))
    assert (probe.subject, probe.is_ok) == ("agent", True)
    stranger = kubelet_ca.client("nobody")
    files = TlsFiles(stranger.certificate, stranger.key, tunnel.access.tls.authority)
    (probe,) = asyncio.run(probe_intruder([replace(tunnel.access, tls=files)], files, SECONDS))
    assert (probe.subject, probe.is_ok) == ("client", False)


def test_an_agents_certificate_is_turned_away_by_its_name(stage: Stage) -> None:
    server = stage.start_server(tcp=True, frontend_identities=("CN=proxy-client",))
    stage.start_agent(server.agent_port)
    server.wait_for_agents()
    agent = TlsFiles(stage.pki.agent.certificate, stage.pki.agent.key)
    (probe,) = asyncio.run(probe_intruder([access_to(stage, server.frontend.port)], agent, SECONDS))
    assert (probe.subject, probe.is_ok) == ("agent", True)
    assert "UMB509" in probe.text


def test_agents_of_nodes_are_those_by_default_route_or_all() -> None:
    for agents, number in (
        ({}, 0),
        ({"default": 3}, 3),
        ({"destHost": 2, "defaultRoute": 5}, 5),
        ({"destHost": 2, "defaultRoute": 0}, 0),
        ({"cidr": 4, "destHost": 1}, 4),
    ):
        assert ServerHealth("s", agents=agents).node_agents == number
