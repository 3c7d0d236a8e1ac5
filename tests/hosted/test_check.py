"""The check of a hosted control plane: its rules, and a run against a real one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.hosted.conftest import Tunnel
from tests.hosted.test_gather import kubelet
from tests.hosted.test_port_forward import told as told_fixture
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.in_process import Stage
from tests.support.tunnel_pki import FolderAuthority, make_tunnel_pki

from umbilical.checks.check import Finding, Outcome, run_checks
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.hosted.check import check_findings
from umbilical.hosted.check_rules import CATALOGUE, GROUPS
from umbilical.hosted.clusters import CheckOptions
from umbilical.hosted.facts import (
    CertificateFact,
    CheckFacts,
    DialProbe,
    HostedFacts,
    HostedNode,
    LogRead,
    ManagementFacts,
    ServerHealth,
    Unknown,
)
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType, client_profile
from umbilical.tunnel.settings import TlsFiles

SECONDS = 60.0
told = told_fixture


def by_id(options: CheckOptions) -> dict[str, Finding]:
    return {finding.id: finding for finding in check_findings(options)}


def asked_of_kubelet(port: int, **options: Any) -> dict[str, Finding]:
    """Run the check for one node with this kubelet port."""
    return by_id(CheckOptions(nodes=("127.0.0.1",), kubelet_port=port, hop_seconds=SECONDS, **options))


def test_kubelets_and_the_intruder_are_judged_by_files_alone(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path, "kubelet-ca")
    agent = TlsFiles(tunnel.pki.agent.certificate, tunnel.pki.agent.key)
    files = {"client": tunnel.access.tls, "agent": agent, "kubelet": TlsFiles(authority=authority.certificate_file)}
    with kubelet(authority, 200) as port:
        found = asked_of_kubelet(port, servers=(tunnel.access.server,), **files)
    assert found["T1"].outcome is Outcome.PASSED
    assert found["C3"].outcome is Outcome.FAILED, "one authority for both listeners lets agents in"
    others = {finding.outcome for finding in found.values() if finding.id not in ("T1", "C3")}
    assert others == {Outcome.SKIPPED}


def test_a_unix_socket_needs_no_certificate_and_tells_nothing_about_them(stage: Stage, tmp_path: Path) -> None:
    server, _ = stage.start_pair()
    assert server.frontend.unix_path is not None
    agent = TlsFiles(stage.pki.agent.certificate, stage.pki.agent.key)
    with kubelet(FolderAuthority(tmp_path), 401) as port:
        found = asked_of_kubelet(port, servers=(UnixServer(server.frontend.unix_path),), agent=agent)
    assert found["T1"].outcome is Outcome.PASSED
    assert found["C3"].outcome is Outcome.SKIPPED
    assert "Unix socket" in found["C3"].evidence


def test_without_servers_or_a_clients_certificate_nothing_is_asked() -> None:
    found = by_id(CheckOptions(servers=(TcpServer("127.0.0.1", 1),), nodes=("127.0.0.1",)))
    assert found["T1"].outcome is Outcome.SKIPPED
    assert "--cert" in found["T1"].evidence
    found = by_id(CheckOptions())
    assert {finding.outcome for finding in found.values()} == {Outcome.SKIPPED}
    assert "--server" in found["T1"].evidence
    assert "--kubeconfig" in found["H1"].evidence


@pytest.mark.real(*PROGRAMS)
def test_each_pods_port_is_forwarded_and_its_server_asked(
    plane: ControlPlane, told: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = "clusters-forwarded"
    pki = make_tunnel_pki(tmp_path_factory.mktemp("named"), ("127.0.0.1", "konnectivity-server-local"))
    client = {"tls.crt": pki.client.certificate.read_text(), "tls.key": pki.client.key.read_text()}
    authority = {"ca.crt": pki.authority.certificate_file.read_text()}
    stage = Stage(pki, tmp_path)
    try:
        server, _ = stage.start_pair(tcp=True)
        plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}},
            item(place, "Pod", "kas-0", spec={"containers": [server_container(server.frontend.port)]}),
            item(place, "Secret", "konnectivity-client", stringData=client),
            item(place, "ConfigMap", "konnectivity-ca-bundle", data=authority),
        )
        with kubelet(FolderAuthority(tmp_path, "kubelet-ca"), 200) as port:
            found = asked_of_kubelet(port, management_kubeconfig=plane.kubeconfig, namespace=place)
    finally:
        stage.stop()
    assert found["T1"].outcome is Outcome.PASSED, found["T1"].evidence
    assert f"pod/kas-0 :{server.frontend.port}" in told.read_text()


def item(namespace: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"app": "kube-apiserver"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **content}


def server_container(port: int) -> dict[str, Any]:
    return {"name": "konnectivity-server", "image": "i", "args": [f"--server-port={port}"]}


@pytest.mark.real(*PROGRAMS)
def test_ports_that_are_not_forwarded_are_told(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    place = "clusters-forward"
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}},
        item(place, "Pod", "kas-0", spec={"containers": [server_container(8090)]}),
        item(place, "Secret", "konnectivity-client", stringData={"tls.crt": "c", "tls.key": "k"}),
        item(place, "ConfigMap", "konnectivity-ca-bundle", data={"ca.crt": "x"}),
    )
    found = by_id(CheckOptions(plane.kubeconfig, place, nodes=("127.0.0.1",)))
    assert found["T1"].outcome is Outcome.SKIPPED
    assert "UMB571" in found["T1"].evidence
    assert found["M1"].outcome is Outcome.PASSED
    assert found["S1"].outcome is Outcome.FAILED


NOW = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NOTHING = Unknown("nobody said where")
SIGNER = Authority.create("signer", NOW - DAY, 4000 * DAY, KeyType.ECDSA_P256)
OTHER = Authority.create("other", NOW - DAY, 4000 * DAY, KeyType.ECDSA_P256)


def certificate(begin: datetime, length: timedelta, name: str = "konnectivity-client") -> CertificateFact:
    pair = SIGNER.issue(client_profile(name, (), KeyType.ECDSA_P256), begin, length)
    return CertificateFact(name, read_certificates(pair.certificate)[0], authorities=trusted(SIGNER))


def trusted(authority: Authority) -> Any:
    return tuple(read_certificates(authority.certificate_pem))


def pod(name: str, on: str = "n1", ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": "kube-apiserver"}},
        "spec": {"nodeName": on, "containers": [{"name": "konnectivity-server"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def agent_deployment(identifiers: str, replicas: int, ready: int) -> dict[str, Any]:
    container = {"name": "konnectivity-agent", "args": [f"--agent-identifiers={identifiers}"]}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {"spec": spec, "status": {"readyReplicas": ready} if ready else {}}


POLICY = {"metadata": {"name": "agents"}, "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 8091}]}]}}
CLOSED = {"metadata": {"name": "same-namespace"}, "spec": {"podSelector": {}, "ingress": []}}
MANAGEMENT = ManagementFacts(
    (pod("kas-0"),),
    {"konnectivity-server": {"spec": {"publishNotReadyAddresses": True}}},
    (POLICY, CLOSED),
    agent_deployment("ipv4=10.0.0.1", 2, 2),
)
HOSTED = HostedFacts(
    (HostedNode("n1", "10.0.0.1", 10250, True),), {"kind": "DaemonSet"}, (pod("a"),), (LogRead("a", "n1"),)
)
GOOD = CheckFacts(
    now=NOW,
    management=MANAGEMENT,
    hosted=HOSTED,
    health=(ServerHealth("s1", agents={"destHost": 1, "defaultRoute": 1}),),
    certificates=(certificate(NOW - DAY, 365 * DAY),),
    kubelets=(DialProbe("s1", "10.0.0.1:10250", True, ""),),
    control_plane=(DialProbe("s1", "10.0.0.1:443", True, ""),),
    intruder=(DialProbe("s1", "agent", True, "UMB508"),),
    proxies=(ServerHealth("p1"),),
    node_addresses=("10.0.0.1",),
)
BLIND = CheckFacts(NOW, *([NOTHING] * 9))


def findings(facts: CheckFacts) -> dict[str, Finding]:
    return {finding.id: finding for finding in run_checks(CATALOGUE, facts)}


def test_a_good_control_plane_passes_and_where_nothing_is_known_everything_is_skipped() -> None:
    assert {one.outcome for one in findings(GOOD).values()} == {Outcome.PASSED}
    assert {one.outcome for one in findings(BLIND).values()} == {Outcome.SKIPPED}
    assert {one.evidence for one in findings(BLIND).values()} == {"nobody said where"}
    assert findings(management(policies=()))["M3"].outcome is Outcome.PASSED


def test_an_api_that_was_named_and_does_not_answer_is_a_failure_and_the_rest_is_skipped() -> None:
    dead = Unknown("UMB603 no answer", is_failure=True)
    found = findings(replace(BLIND, management=dead, hosted=dead))
    assert found["M1"].outcome is Outcome.FAILED
    assert found["H1"].outcome is Outcome.FAILED
    assert found["M2"].outcome is Outcome.SKIPPED


def test_ids_are_unique_and_every_group_has_a_heading() -> None:
    ids = [check.id for check in CATALOGUE]
    assert len(ids) == len(set(ids))
    assert {one[0] for one in ids} == set(GROUPS)
    assert all(check.why and check.fix for check in CATALOGUE)


def management(**changes: Any) -> CheckFacts:
    return replace(GOOD, management=replace(MANAGEMENT, **changes))


def hosted(**changes: Any) -> CheckFacts:
    return replace(GOOD, hosted=replace(HOSTED, **changes))


def test_what_is_wrong_is_found() -> None:
    for facts, check, outcome, word in (
        (management(services={}), "M2", Outcome.FAILED, "no Service konnectivity-server"),
        (management(services={"konnectivity-server": {"spec": {}}}), "M2", Outcome.FAILED, "publishNotReadyAddresses"),
        (management(policies=(CLOSED,)), "M3", Outcome.FAILED, "same-namespace select"),
        (management(server_pods=()), "M3", Outcome.SKIPPED, "no pod"),
        (management(control_plane_agent=None), "M4", Outcome.SKIPPED, "no Deployment"),
        (management(control_plane_agent=agent_deployment("ipv4=", 2, 2)), "M4", Outcome.FAILED, "identifiers"),
        (management(control_plane_agent=agent_deployment("", 2, 2)), "M4", Outcome.FAILED, "none"),
        (management(control_plane_agent=agent_deployment("ipv4=1.1.1.1", 2, 0)), "M4", Outcome.FAILED, "none of its 2"),
        (management(control_plane_agent=agent_deployment("ipv4=1.1.1.1", 2, 1)), "M4", Outcome.WARNED, "1 of 2"),
        (hosted(daemon_set=None), "H2", Outcome.FAILED, "no DaemonSet"),
        (hosted(agent_pods=()), "H2", Outcome.FAILED, "n1"),
        (hosted(agent_pods=(pod("a", ready="False"),)), "H2", Outcome.FAILED, "1 of 1 nodes"),
        (hosted(nodes=(), logs=()), "H2", Outcome.SKIPPED, "no nodes"),
        (hosted(logs=()), "T3", Outcome.FAILED, "no agent pod runs"),
        (hosted(logs=(LogRead("a", "n1"), LogRead("b", "n2", "timeout"))), "T3", Outcome.FAILED, "b on n2: timeout"),
        (replace(GOOD, certificates=(certificate(NOW - 9 * DAY, DAY),)), "C1", Outcome.FAILED, "2026-10-2"),
        (replace(GOOD, certificates=(certificate(NOW + DAY, DAY),)), "C1", Outcome.FAILED, "to 2026-11-03"),
        (replace(GOOD, certificates=(certificate(NOW - DAY, 20 * DAY),)), "C1", Outcome.WARNED, "ends 2026-11-"),
        (replace(GOOD, certificates=(CertificateFact("c", None, "gone"),)), "C1", Outcome.FAILED, "c: gone"),
        (
            replace(GOOD, certificates=(CertificateFact("c", None, "gone"),)),
            "C2",
            Outcome.SKIPPED,
            "with the trusted CAs",
        ),
        (replace(GOOD, intruder=(DialProbe("s1", "agent", False, "UMB501"),)), "C3", Outcome.FAILED, "accepts it"),
        (replace(GOOD, intruder=(DialProbe("s1", "client", False, "x"),)), "C3", Outcome.SKIPPED, "x"),
        (replace(GOOD, health=(ServerHealth("s1", "refused"),)), "S1", Outcome.FAILED, "s1: refused"),
        (replace(GOOD, health=()), "S1", Outcome.FAILED, "none"),
        (replace(GOOD, health=(ServerHealth("s1", "refused"),)), "S2", Outcome.SKIPPED, "no server"),
        (replace(GOOD, health=(ServerHealth("s1", agents={"default": 0}),)), "S2", Outcome.FAILED, "no agent"),
        (replace(GOOD, node_addresses=("a", "b")), "S3", Outcome.FAILED, "s1: 1 of 2"),
        (replace(GOOD, node_addresses=NOTHING), "S3", Outcome.SKIPPED, "nobody said"),
        (replace(GOOD, node_addresses=()), "S3", Outcome.SKIPPED, "no nodes"),
        (
            replace(GOOD, kubelets=(DialProbe("s1", "n", False, "UMB503"),)),
            "T1",
            Outcome.FAILED,
            "n through s1: UMB503",
        ),
        (replace(GOOD, kubelets=()), "T1", Outcome.SKIPPED, "nothing to reach"),
        (replace(GOOD, control_plane=(DialProbe("s1", "n", False, "UMB505"),)), "T2", Outcome.FAILED, "UMB505"),
        (replace(GOOD, proxies=(ServerHealth("p1", "503"),)), "P1", Outcome.FAILED, "p1: 503"),
    ):
        finding = findings(facts)[check]
        assert finding.outcome is outcome, finding
        assert word in finding.evidence


def test_a_certificate_that_the_other_sides_ca_has_not_signed_is_found() -> None:
    stranger = replace(certificate(NOW - DAY, 365 * DAY), authorities=trusted(OTHER))
    overlapping = replace(stranger, authorities=(*trusted(OTHER), *trusted(SIGNER)))
    assert findings(replace(GOOD, certificates=(stranger,)))["C2"].outcome is Outcome.FAILED
    assert findings(replace(GOOD, certificates=(overlapping,)))["C2"].outcome is Outcome.PASSED


def test_one_bad_node_among_many_is_not_hidden_and_a_long_list_is_cut() -> None:
    probes = tuple(DialProbe("s1", f"n{number}", number % 2 == 0, "UMB503") for number in range(40))
    finding = findings(replace(GOOD, kubelets=probes))["T1"]
    assert finding.outcome is Outcome.FAILED
    assert "20 of 40 dials failed" in finding.evidence
    assert finding.evidence.splitlines()[-1] == "and 15 more"
