"""Every check passes, fails, and is skipped with a reason where its facts are missing: none is green unseen."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from umbilical.checks.check import Finding, Outcome, judge
from umbilical.hosted.check_rules import CATALOGUE, GROUPS
from umbilical.hosted.facts import (
    CertificateFact,
    Facts,
    HostedFacts,
    LogRead,
    ManagementFacts,
    Node,
    Probe,
    ServerHealth,
    Unknown,
)
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType, client_profile

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
HOSTED = HostedFacts((Node("n1", "10.0.0.1", 10250, True),), {"kind": "DaemonSet"}, (pod("a"),), (LogRead("a", "n1"),))
GOOD = Facts(
    now=NOW,
    management=MANAGEMENT,
    hosted=HOSTED,
    health=(ServerHealth("s1", agents={"destHost": 1, "defaultRoute": 1}),),
    certificates=(certificate(NOW - DAY, 365 * DAY),),
    kubelets=(Probe("s1", "10.0.0.1:10250", True, ""),),
    control_plane=(Probe("s1", "10.0.0.1:443", True, ""),),
    intruder=(Probe("s1", "agent", True, "UMB508"),),
    proxies=(ServerHealth("p1"),),
    node_addresses=("10.0.0.1",),
)
BLIND = Facts(NOW, *([NOTHING] * 9))


def findings(facts: Facts) -> dict[str, Finding]:
    return {finding.id: finding for finding in judge(CATALOGUE, facts)}


def only_bad(facts: Facts) -> dict[str, tuple[Outcome, str]]:
    found = findings(facts).values()
    return {one.id: (one.outcome, one.evidence) for one in found if one.outcome is not Outcome.PASSED}


def test_a_good_control_plane_passes_every_check() -> None:
    assert only_bad(GOOD) == {}


def test_where_nothing_is_known_everything_is_skipped_and_says_why() -> None:
    assert {one.outcome for one in findings(BLIND).values()} == {Outcome.SKIPPED}
    assert {one.evidence for one in findings(BLIND).values()} == {"nobody said where"}


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


def management(**changes: Any) -> Facts:
    return replace(GOOD, management=replace(MANAGEMENT, **changes))


def hosted(**changes: Any) -> Facts:
    return replace(GOOD, hosted=replace(HOSTED, **changes))


@pytest.mark.parametrize(
    ("facts", "check", "outcome", "word"),
    [
        (management(services={}), "M2", Outcome.FAILED, "no Service konnectivity-server"),
        (management(services={"konnectivity-server": {"spec": {}}}), "M2", Outcome.FAILED, "publishNotReadyAddresses"),
        (management(policies=(CLOSED,)), "M3", Outcome.FAILED, "same-namespace close"),
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
        (hosted(logs=()), "T3", Outcome.FAILED, "no agent's pod"),
        (hosted(logs=(LogRead("a", "n1"), LogRead("b", "n2", "timeout"))), "T3", Outcome.FAILED, "b on n2: timeout"),
        (replace(GOOD, certificates=(certificate(NOW - 9 * DAY, DAY),)), "C1", Outcome.FAILED, "2026-10-2"),
        (replace(GOOD, certificates=(certificate(NOW + DAY, DAY),)), "C1", Outcome.FAILED, "to 2026-11-03"),
        (replace(GOOD, certificates=(certificate(NOW - DAY, 20 * DAY),)), "C1", Outcome.WARNED, "ends 2026-11-"),
        (replace(GOOD, certificates=(CertificateFact("c", None, "gone"),)), "C1", Outcome.FAILED, "c: gone"),
        (replace(GOOD, certificates=(CertificateFact("c", None, "gone"),)), "C2", Outcome.SKIPPED, "who trusts"),
        (replace(GOOD, intruder=(Probe("s1", "agent", False, "UMB501"),)), "C3", Outcome.FAILED, "lets it in"),
        (replace(GOOD, intruder=(Probe("s1", "client", False, "x"),)), "C3", Outcome.SKIPPED, "x"),
        (replace(GOOD, health=(ServerHealth("s1", "refused"),)), "S1", Outcome.FAILED, "s1: refused"),
        (replace(GOOD, health=()), "S1", Outcome.FAILED, "none"),
        (replace(GOOD, health=(ServerHealth("s1", "refused"),)), "S2", Outcome.SKIPPED, "no server"),
        (replace(GOOD, health=(ServerHealth("s1", agents={"default": 0}),)), "S2", Outcome.FAILED, "no agent"),
        (replace(GOOD, node_addresses=("a", "b")), "S3", Outcome.FAILED, "s1: 1 of 2"),
        (replace(GOOD, node_addresses=NOTHING), "S3", Outcome.SKIPPED, "nobody said"),
        (replace(GOOD, node_addresses=()), "S3", Outcome.SKIPPED, "no nodes"),
        (replace(GOOD, kubelets=(Probe("s1", "n", False, "UMB503"),)), "T1", Outcome.FAILED, "n through s1: UMB503"),
        (replace(GOOD, kubelets=()), "T1", Outcome.SKIPPED, "nothing to reach"),
        (replace(GOOD, control_plane=(Probe("s1", "n", False, "UMB505"),)), "T2", Outcome.FAILED, "UMB505"),
        (replace(GOOD, proxies=(ServerHealth("p1", "503"),)), "P1", Outcome.FAILED, "p1: 503"),
    ],
)
def test_what_is_wrong_is_found(facts: Facts, check: str, outcome: Outcome, word: str) -> None:
    finding = findings(facts)[check]
    assert finding.outcome is outcome, finding
    assert word in finding.evidence


def test_no_policy_at_all_closes_nothing() -> None:
    assert findings(management(policies=()))["M3"].outcome is Outcome.PASSED


def test_a_certificate_that_the_other_sides_ca_has_not_signed_is_found() -> None:
    stranger = replace(certificate(NOW - DAY, 365 * DAY), authorities=trusted(OTHER))
    overlapping = replace(stranger, authorities=(*trusted(OTHER), *trusted(SIGNER)))
    assert findings(replace(GOOD, certificates=(stranger,)))["C2"].outcome is Outcome.FAILED
    assert findings(replace(GOOD, certificates=(overlapping,)))["C2"].outcome is Outcome.PASSED


def test_one_bad_node_among_many_is_not_hidden_and_a_long_list_is_cut() -> None:
    probes = tuple(Probe("s1", f"n{number}", number % 2 == 0, "UMB503") for number in range(40))
    finding = findings(replace(GOOD, kubelets=probes))["T1"]
    assert finding.outcome is Outcome.FAILED
    assert "20 of 40 dials failed" in finding.evidence
    assert finding.evidence.splitlines()[-1] == "and 15 more"
