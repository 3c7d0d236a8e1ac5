"""`lab-admission-caller` as the lab runs it: through a real server and agent, in both protocols, and without."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.tunnel_pair import Shape, TunnelPair, free_port
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki
from tests.support.webhook_listener import DENIAL, webhook_listener

PROTOCOLS = {"grpc": "GRPC", "http-connect": "HTTPConnect"}


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> TunnelPki:
    return make_tunnel_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def webhook(pki: TunnelPki) -> Iterator[int]:
    pair = pki.authority.serving("webhook", ["webhook.lab.svc"])
    with webhook_listener(pki.authority, pair) as port:
        yield port


@pytest.fixture(scope="module", params=sorted(PROTOCOLS))
def pair(
    request: pytest.FixtureRequest, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TunnelPair]:
    pair = TunnelPair(Shape(mode=request.param), pki, tmp_path_factory.mktemp(request.param))
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()


@pytest.fixture
def egress(pair: TunnelPair, tmp_path: Path) -> tuple[str, str]:
    """The option that leads through the tunnel."""
    transport = {"uds": {"udsName": str(pair.socket_path)}}
    connection = {"proxyProtocol": PROTOCOLS[pair.shape.mode], "transport": transport}
    document = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    (tmp_path / "egress.yaml").write_text(yaml.safe_dump(document))
    return "--egress-selector-config-file", str(tmp_path / "egress.yaml")


def config_map(verdict: str) -> str:
    metadata = {"name": "judged", "namespace": "lab", "labels": {"verdict": verdict}}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    script = "import sys; from umbilical.cli.lab.admission_caller import main; sys.exit(main())"
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def call(pki: TunnelPki, address: str, *arguments: str, verdict: str = "allow") -> dict[str, Any]:
    authority = str(pki.authority.certificate_file)
    done = run("--address", address, "--ca-file", authority, *arguments, stdin=config_map(verdict))
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_the_webhook_is_asked_through_the_tunnel_that_the_file_names_as_often_as_wanted(
    pair: TunnelPair, pki: TunnelPki, webhook: int, egress: tuple[str, str]
) -> None:
    before = pair.agent_metric("endpoint_connections") + pair.server_metric("dial_duration_seconds_count")
    allowed = call(pki, f"127.0.0.1:{webhook}", *egress, "--count", "5")
    denied = call(pki, f"127.0.0.1:{webhook}", *egress, verdict="deny")
    assert allowed["standsInFor"] == "kube-apiserver"
    assert (allowed["call"], allowed["egress"]) == ("allowed", PROTOCOLS[pair.shape.mode])
    assert allowed["calls"] == {"unreachable": 0, "allowed": 5, "denied": 0}
    assert len(allowed["callSeconds"]) == 5
    assert 0 < allowed["p50Seconds"] <= max(allowed["callSeconds"])
    assert denied["call"] == "denied"
    assert denied["message"] == f'admission webhook "webhook.lab.svc" denied the request: {DENIAL}'
    assert pair.agent_metric("endpoint_connections") + pair.server_metric("dial_duration_seconds_count") > before


def test_an_endpoint_that_the_agent_cannot_reach_is_told_as_kube_apiserver_would(
    pair: TunnelPair, pki: TunnelPki, egress: tuple[str, str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    shown = call(pki, address, *egress)
    refusal = {
        "grpc": f"dial tcp {address}: connect: connection refused",
        "http-connect": f"proxy error from {pair.socket_path} while dialing {address}, code 502: 502 Bad Gateway",
    }
    url = "https://webhook.lab.svc:443/validate?timeout=5s"
    assert shown["call"] == "unreachable"
    assert shown["message"] == (
        f'failed calling webhook "webhook.lab.svc": failed to call webhook: Post "{url}": {refusal[pair.shape.mode]}'
    )


def test_without_a_file_the_dial_is_direct(pki: TunnelPki, webhook: int) -> None:
    assert call(pki, f"127.0.0.1:{webhook}")["egress"] == "Direct"
    assert "connect: connection refused" in call(pki, f"127.0.0.1:{free_port()}")["message"]


def test_help_says_plainly_that_it_stands_in() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Call an admission webhook as kube-apiserver does." in done.stdout


def test_bad_input_is_three_lines_and_nothing_on_stdout(pki: TunnelPki, tmp_path: Path) -> None:
    authority, missing = str(pki.authority.certificate_file), str(tmp_path / "none")
    there, trusted = ("--address", "127.0.0.1:1"), ("--ca-file", authority)
    good = (*there, *trusted)
    for arguments, stdin, code, status in (
        (trusted, "{}", "UMB001", 2),
        (("--address", "nowhere", *trusted), "{}", "UMB001", 2),
        ((*good, "--count", "0"), "{}", "UMB001", 2),
        ((*good, "--service", "No Name"), "{}", "UMB001", 2),
        ((*good, "--path", "validate"), "{}", "UMB001", 2),
        ((*good, "--path", "/a b"), "{}", "UMB001", 2),
        ((*good, "--timeout", "31s"), "{}", "UMB001", 2),
        ((*there, "--ca-file", missing), "{}", "UMB886", 3),
        ((*there, "--ca-file", str(pki.server.key)), "{}", "UMB886", 3),
        (good, "[]", "UMB887", 3),
        (good, "no json", "UMB887", 3),
        ((*good, "--object", missing), "", "UMB887", 3),
        ((*good, "--egress-selector-config-file", authority), "{}", "UMB885", 3),
        ((*good, "--egress-selector-config-file", missing), "{}", "UMB885", 3),
    ):
        done = run(*arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (status, "")
        what, why, remedy = done.stderr.splitlines()
        assert what.startswith(f"{code} ")
        assert why.startswith("  why: ")
        assert remedy.startswith("  next: ")
        assert "PRIVATE KEY" not in done.stderr
