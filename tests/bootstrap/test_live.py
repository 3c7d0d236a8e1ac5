"""The live checks: against a real server with a real agent on loopback, and against recorded answers."""

import dataclasses
import getpass
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.support.install_directories import Directory, encoded
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, status_answer
from tests.support.ssh_daemon import PROGRAMS, ssh_daemon
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.bootstrap.install_dir import InstallDir
from umbilical.bootstrap.live import CHECKS, LiveFacts, LiveOptions, live_findings
from umbilical.bootstrap.live_facts import (
    ClusterAnswers,
    NodeAnswers,
    NodePaths,
    NodePorts,
    pods_in_trouble,
    query_cluster,
    server_host,
)
from umbilical.bootstrap.names import STAGES
from umbilical.bootstrap.node_access import NodeAccess, node_runner
from umbilical.checks.check import Finding, Outcome, run_checks
from umbilical.cluster.client import make_client
from umbilical.fault import HostError
from umbilical.host.commands import CommandResult, CommandRunner, LocalRunner
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, server_profile

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
NODE_IP = ip_address("10.0.0.9")
JUDGED = {"allow": "allowed", "deny": "denied"}
NODE_CHECKS = [f"L{number}" for number in range(2, 11)]
CLUSTER_CHECKS = ["L12", "L13", "L14", "L15"]


def said(text: str = "", exit_code: int = 0, stderr: str = "") -> CommandResult:
    return CommandResult(exit_code, text, stderr)


def certificate(*names: str, ends: timedelta = timedelta(hours=5)) -> CommandResult:
    authority = Authority.create("ca", NOW, timedelta(days=1), KeyType.ECDSA_P256)
    pair = authority.issue(
        server_profile("s", names, KeyType.ECDSA_P256), NOW - timedelta(hours=1), ends + timedelta(hours=1)
    )
    return said(pair.certificate.decode())


def node(**changes: CommandResult) -> NodeAnswers:
    """A machine on which all is well, with some answers changed."""
    config = {"apiServerArguments": {"egress-selector-config-file": ["/etc/kubernetes/config/e.yaml"]}}
    record = [{"phase": "stage end", "stage": stage, "result": "success"} for stage in STAGES[:3]]
    well = NodeAnswers(
        socket=said("socket\n"),
        listeners=said("LISTEN 0 4096 *:8091 *:*\n"),
        health=said("ok"),
        metrics=said("konnectivity_network_proxy_server_ready_backend_connections 3\n"),
        kube_apiserver_config=said(json.dumps(config)),
        certificate=certificate("10.0.0.9"),
        containers=said('{"containers": [{}]}'),
        service_record=said(json.dumps(record)),
        node_ip=said("10.0.0.9\n"),
    )
    return dataclasses.replace(well, **changes)


def daemon_set(host: str = "10.0.0.9", desired: int = 3, ready: int = 3) -> dict[str, Any]:
    container = {"args": [f"--proxy-server-host={host}"]}
    status = {"desiredNumberScheduled": desired, "numberReady": ready}
    return {"spec": {"template": {"spec": {"containers": [container]}}}, "status": status}


def cluster(**changes: Any) -> ClusterAnswers:
    pods = [{"metadata": {"name": "a"}, "status": {"phase": "Running"}}]
    return dataclasses.replace(ClusterAnswers(daemon_set(), pods, {"a": "ok"}, JUDGED), **changes)


def findings(
    answers: NodeAnswers | str | None = None, found: ClusterAnswers | str | None = None, **options: Any
) -> dict[str, Finding]:
    asked = {"runner": LocalRunner(), "kubeconfig": Path("k"), "now": NOW, **options}
    facts = LiveFacts(LiveOptions(**asked), answers or node(), found or cluster())
    return {finding.id: finding for finding in run_checks(CHECKS, facts)}


def test_every_check_has_its_words_and_a_tunnel_that_works_passes_all() -> None:
    assert [check.id for check in CHECKS] == [f"L{number}" for number in range(1, 16)]
    assert all(check.title and check.why and check.fix for check in CHECKS)
    assert {finding.outcome for finding in findings().values()} == {Outcome.PASSED}


def test_a_fault_on_the_machine_fails_its_check_alone() -> None:
    for check, changes, evidence in (
        ("L2", {"socket": said("", 1, "stat: No such file or directory")}, "No such file"),
        ("L2", {"socket": said("regular file\n")}, "is a regular file"),
        ("L3", {"listeners": said("LISTEN 0 1 *:22 *:*\n")}, "nothing listens on TCP 8091"),
        ("L3", {"listeners": said("LISTEN 0 1 127.0.0.1:8091 *:*\n")}, "listens only on 127.0.0.1"),
        ("L4", {"health": said("", 7, "curl: (7) Failed to connect")}, "Failed to connect"),
        ("L5", {"metrics": said("konnectivity_network_proxy_server_ready_backend_connections 0\n")}, "no agent"),
        ("L5", {"metrics": said("up 1\n")}, "another program"),
        ("L5", {"metrics": said("", 7, "curl: (7)")}, "curl: (7)"),
        ("L6", {"kube_apiserver_config": said("{}")}, "no egress-selector-config-file"),
        ("L6", {"kube_apiserver_config": said("", 1, "cat: No such file")}, "No such file"),
        ("L7", {"certificate": certificate("10.0.0.8")}, "names 10.0.0.8, but agents dial 10.0.0.9"),
        ("L7", {"certificate": certificate("name")}, "no address"),
        ("L7", {"certificate": said("", 1, "none of /a /b")}, "none of /a /b"),
        ("L8", {"certificate": certificate("10.0.0.9", ends=-timedelta(minutes=5))}, "expired at 2026-11-15 11:55 UTC"),
        ("L8", {"certificate": said("", 1, "none of /a /b")}, "none of /a /b"),
        ("L9", {"containers": said('{"containers": []}')}, "no running"),
        ("L9", {"containers": said("", 1, "crictl: permission denied")}, "permission denied"),
        (
            "L10",
            {"service_record": said(json.dumps([{"phase": "stage end", "stage": STAGES[0], "result": "failure"}]))},
            "konnectivity-certs: failure",
        ),
    ):
        found = findings(node(**changes))
        assert found[check].outcome is Outcome.FAILED, evidence
        assert evidence in found[check].evidence
        # A certificate that cannot be read fails both checks of it.
        others = {finding.id for finding in found.values() if finding.outcome is Outcome.FAILED} - {check}
        assert others <= ({"L7", "L8"} if "certificate" in changes else set())


def test_a_fault_in_the_cluster_fails_its_check() -> None:
    for check, changes, evidence in (
        ("L12", {"daemon_set": None}, "no DaemonSet"),
        ("L12", {"daemon_set": daemon_set(ready=2)}, "2 of 3 ready"),
        ("L12", {"daemon_set": daemon_set(desired=0, ready=0)}, "0 of 0"),
        ("L12", {"daemon_set": daemon_set(ready=0), "pods": []}, "SCC or Pod Security"),
        ("L13", {"daemon_set": daemon_set("10.0.0.8")}, "agents dial 10.0.0.8, but the machine's address is 10.0.0.9"),
        ("L14", {"readiness": {"a": "not connected"}}, "a: not connected"),
        ("L15", {"webhook": {"allow": "no agent", "deny": "no agent"}}, "allow: no agent; deny: no agent"),
        ("L15", {"webhook": {"allow": "allowed", "deny": "allowed"}}, "deny: allowed"),
    ):
        found = findings(found=cluster(**changes))
        assert found[check].outcome is Outcome.FAILED, evidence
        assert evidence in found[check].evidence


def test_without_a_test_webhook_its_check_is_skipped_with_the_command_that_renders_one() -> None:
    found = findings(found=cluster(webhook={}))["L15"]
    assert found.outcome is Outcome.SKIPPED
    assert "bootstrap render --test-webhook IMAGE" in found.evidence


def test_a_certificate_that_ends_soon_and_stages_that_have_not_come_yet_are_warnings() -> None:
    soon = certificate("10.0.0.9", ends=timedelta(minutes=20))
    assert findings(node(certificate=soon))["L8"].outcome is Outcome.WARNED
    assert findings(node(service_record=said("[]")))["L10"].outcome is Outcome.WARNED


def test_a_program_that_the_machine_lacks_skips_its_check() -> None:
    for question in ("listeners", "health", "metrics", "containers"):
        found = findings(node(**{question: said("", 127, "command not found")}))
        skipped = [finding for finding in found.values() if finding.outcome is Outcome.SKIPPED]
        assert [finding.evidence for finding in skipped] == ["command not found"]


def test_what_was_not_given_is_skipped_with_the_reason() -> None:
    found = {finding.id: finding for finding in live_findings(LiveOptions())}
    assert {finding.outcome for finding in found.values()} == {Outcome.SKIPPED}
    assert "--ssh-host" in found["L2"].evidence
    assert "--kubeconfig" in found["L12"].evidence


class Unreachable:
    def run(self, command: Sequence[str], timeout_seconds: float, stdin: bytes | None = None) -> CommandResult:
        raise HostError("UMB175", "SSH failed", "Connection refused", "walk")


def test_a_machine_or_an_api_that_does_not_answer_fails_once_and_skips_the_rest(tmp_path: Path) -> None:
    options = LiveOptions(runner=Unreachable(), kubeconfig=tmp_path / "none")
    found = {finding.id: finding for finding in live_findings(options)}
    assert [name for name, finding in found.items() if finding.outcome is Outcome.FAILED] == ["L1", "L11"]
    assert "Connection refused" in found["L1"].evidence
    assert all(found[name].outcome is Outcome.SKIPPED for name in (*NODE_CHECKS, *CLUSTER_CHECKS))


def test_missing_rights_are_a_warning_and_skip_the_rest() -> None:
    found = findings(found=ClusterAnswers(None, refusals=["UMB604 no rights"]))
    assert found["L11"].outcome is Outcome.WARNED
    assert all(found[name].outcome is Outcome.SKIPPED for name in CLUSTER_CHECKS)


def test_a_known_address_of_the_machine_comes_before_its_own_and_without_any_nothing_is_compared() -> None:
    unknown = node(node_ip=said("", 1))
    assert findings(unknown, "none", kubeconfig=None)["L7"].outcome is Outcome.SKIPPED
    assert findings(unknown)["L13"].outcome is Outcome.SKIPPED
    assert findings(node_ips=(ip_address("10.0.0.7"),))["L13"].outcome is Outcome.FAILED


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TunnelPair]:
    # The strategies as landed: /readyz of such a server stays 500, so the agent is waited for, not the server.
    flags = ("--proxy-strategies=destHost,defaultRoute",)
    pki = make_tunnel_pki(tmp_path)
    running = TunnelPair(Shape(mode="grpc"), pki, tmp_path, flags, ("--agent-identifiers=default-route=true",))
    try:
        running.start_server()
        yield running
    finally:
        running.stop()


def live_on(pair: TunnelPair, tmp_path: Path, runner: CommandRunner | None = None) -> dict[str, Finding]:
    ports = NodePorts(pair.ports.agent, pair.ports.server_health, pair.ports.server_admin)
    paths = dataclasses.replace(NodePaths().under(str(tmp_path)), socket=str(pair.socket_path))
    Path(paths.own_certificate).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(pair.pki.server.certificate, paths.own_certificate)
    options = LiveOptions(runner=runner or LocalRunner(), ports=ports, paths=paths, node_ips=(ip_address("127.0.0.1"),))
    return {finding.id: finding for finding in live_findings(options)}


@pytest.mark.real("openssl", "ss", "curl")
def test_a_real_server_is_seen_without_and_with_its_agent(pair: TunnelPair, tmp_path: Path) -> None:
    found = live_on(pair, tmp_path)
    assert found["L5"].outcome is Outcome.FAILED
    assert found["L5"].evidence == "no agent is connected"
    pair.agent.start()
    wait_until(lambda: pair.agent_health("/readyz")[0] == 200, "the agent is connected")
    found = live_on(pair, tmp_path)
    assert {name for name in NODE_CHECKS if found[name].outcome is Outcome.PASSED} == {"L2", "L4", "L5", "L7", "L8"}
    # It listens on loopback alone, as everything does in a test: on a bootstrap machine that is a fault.
    assert "no other machine can reach it" in found["L3"].evidence


@pytest.mark.real("openssl", "ss", "curl")
def test_a_server_that_is_gone_is_seen(pair: TunnelPair, tmp_path: Path) -> None:
    pair.stop()
    pair.socket_path.unlink(missing_ok=True)
    found = live_on(pair, tmp_path)
    assert [found[name].outcome for name in ("L2", "L3", "L4", "L5")] == [Outcome.FAILED] * 4


@pytest.mark.real("openssl", "ss", "curl", *PROGRAMS)
def test_a_real_server_is_seen_over_ssh_with_what_the_install_directory_knows(pair: TunnelPair, tmp_path: Path) -> None:
    folder = tmp_path / "daemon"
    folder.mkdir()
    with ssh_daemon(folder) as daemon:
        made = Directory(tmp_path).metadata().machine(("ExternalIP", "127.0.0.1"), ("InternalIP", "10.0.0.9"))
        made.state(tls_BootstrapSSHKeyPair={"Priv": encoded(daemon.key.read_bytes())})
        access = NodeAccess(user=getpass.getuser(), port=daemon.port)
        with node_runner(access, InstallDir(tmp_path)) as runner:
            found = live_on(pair, tmp_path, runner)
    assert found["L1"].outcome is Outcome.PASSED
    assert {name for name in NODE_CHECKS if found[name].outcome is Outcome.PASSED} == {"L2", "L4", "L7", "L8"}
    assert found["L9"].outcome is Outcome.SKIPPED or shutil.which("crictl")


Json = dict[str, Any]
NAMESPACE = "/namespaces/tunnel"


def pod(name: str, phase: str = "Running", **status: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "tunnel"}, "status": {"phase": phase, **status}}


async def asked(answer: Any, folder: Path) -> tuple[ClusterAnswers, list[Request]]:
    async with ScriptedApi(answer) as api, make_client(api.write_kubeconfig(folder)) as client:
        return await query_cluster(client, "tunnel", 2041), api.requests


async def test_the_agents_are_looked_at_through_the_api(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.path.endswith("/proxy/readyz"):
            return Answer(b"ok") if "one" in request.path else Answer(b"not connected", 500)
        if "daemonsets" in request.path:
            return json_answer({"kind": "DaemonSet"})
        if request.method == "POST":
            return status_answer(403, "Forbidden", 'admission webhook "x" denied the request: by verdict')
        return json_answer({"items": [pod("one"), pod("two"), pod("three", "Pending")]})

    answers, requests = await asked(answer, tmp_path)
    assert answers.daemon_set == {"kind": "DaemonSet"}
    assert answers.readiness == {"one": "ok", "two": "not connected"}
    assert requests[3].path == f"/api/v1{NAMESPACE}/pods/two:2041/proxy/readyz"
    assert answers.webhook == {"allow": "denied", "deny": "denied"}
    judged = [(request.path, request.query) for request in requests if request.method == "POST"]
    assert judged == [("/api/v1/namespaces/umbilical-test-webhook/configmaps", {"dryRun": "All"})] * 2


async def test_a_cluster_without_agents_is_no_fault_and_what_we_may_not_see_is_named(tmp_path: Path) -> None:
    answers, _ = await asked(lambda request: status_answer(404, "NotFound"), tmp_path)
    assert (answers.daemon_set, answers.pods, answers.webhook) == (None, [], {})
    assert answers.refusals
    answers, _ = await asked(lambda request: status_answer(403, "Forbidden", "no daemonsets for you"), tmp_path)
    assert "no daemonsets for you" in answers.refusals[0]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, "ImagePullBackOff"),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]}, "Error"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
        ({"phase": "Pending"}, "Pending"),
    ],
)
def test_a_pod_in_trouble_has_kubernetes_own_word(status: Json, word: str) -> None:
    assert pods_in_trouble([pod("well"), {"metadata": {"name": "ill"}, "status": status}]) == [f"ill {word}"]


def test_what_agents_dial_is_read_from_their_arguments() -> None:
    for container, host in (
        ({"args": ["--v=1", "--proxy-server-host=10.0.0.9"]}, "10.0.0.9"),
        ({"command": ["proxy-agent", "--proxy-server-host", "fd00::9"]}, "fd00::9"),
        ({"command": ["proxy-agent"], "args": None}, None),
        ({"args": ["--proxy-server-host"]}, None),
    ):
        assert server_host({"spec": {"template": {"spec": {"containers": [container]}}}}) == host
    assert server_host({}) is None
