"""`umbilical hosted check`: what it must be told, its three forms, and its status."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.hosted import conftest as hosted_fixtures
from tests.hosted.conftest import Tunnel
from tests.hosted.test_gather_tunnel import kubelet
from tests.hosted.test_health import serving
from tests.support.tunnel_files import entrance
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.cli.main import run

tunnel_pki, stage, tunnel = hosted_fixtures.tunnel_pki, hosted_fixtures.stage, hosted_fixtures.tunnel
Capture = pytest.CaptureFixture[str]


def check(*arguments: object) -> int:
    return run(["hosted", "check", "--timeout", "60s", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "say what to look at"),
        (["--namespace", "n"], "go together"),
        (["--management-kubeconfig", "k"], "go together"),
        (["--node", "10.0.0.1"], "say what to look at"),
        (["--health", "nowhere"], "HOST:PORT"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], word: str, capsys: Capture) -> None:
    assert check(*arguments) == 2
    assert word in capsys.readouterr().err


def test_the_checks_can_be_listed(capsys: Capture) -> None:
    assert check("--list") == 0
    out = capsys.readouterr().out
    assert "Certificates\nC1 " in out
    assert "T3 Logs of pods" in out


def test_what_cannot_be_asked_at_all_is_status_4(tmp_path: Path, capsys: Capture) -> None:
    assert check("--kubeconfig", tmp_path / "none") == 4
    assert "UMB601" in capsys.readouterr().out
    assert check("--health", f"127.0.0.1:{free_port()}") == 4
    assert check("--server", "unix:/no/such/socket") == 4
    out = capsys.readouterr().out
    assert "0 passed, 0 failed" in out


def test_a_tunnel_that_works_is_status_0_and_what_was_not_looked_at_is_named(
    tunnel: Tunnel, tmp_path: Path, capsys: Capture
) -> None:
    with kubelet(FolderAuthority(tmp_path), 200) as port, serving({"/readyz": (200, b"ok")}) as proxy:
        options = [*entrance(tunnel.access), "--node", "127.0.0.1", "--kubelet-port", port]
        assert check(*options, "--proxy-health", f"127.0.0.1:{proxy}") == 0
    out = capsys.readouterr().out
    assert "T1 Every node's kubelet is reached through every server." in out
    assert "skipped: no --kubeconfig was given" in out
    assert "2 passed, 0 failed, 0 warned, 14 skipped" in out


def test_a_finding_is_status_1_in_every_form(tunnel: Tunnel, capsys: Capture) -> None:
    pki = tunnel.pki
    agent = ["--agent-cert", pki.agent.certificate, "--agent-key", pki.agent.key]
    arguments = [*entrance(tunnel.access), *agent, "--node", "127.0.0.1", "--kubelet-port", free_port()]
    assert check(*arguments) == 1
    out = capsys.readouterr().out
    assert "UMB501 dial" in out
    assert "lets it in" in out
    assert check(*arguments, "-o", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "HostedReport"
    assert report["summary"]["failed"] == 2
    assert check(*arguments, "-o", "junit") == 1
    root = ElementTree.fromstring(capsys.readouterr().out)
    assert root.attrib["failures"] == "2"
