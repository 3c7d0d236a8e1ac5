"""`umbilical ping`: what a user types, sees and gets as a status, through a real tunnel."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hosted import conftest as hosted_fixtures
from tests.hosted.conftest import Tunnel
from tests.support.in_process import refused_address
from tests.support.tls_listener import listener, says_nothing
from tests.support.tunnel_files import entrance
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.cli import ping as command
from umbilical.cli.main import run
from umbilical.hosted.trip import Failure, Hop, Trip

tunnel_pki, stage, tunnel = hosted_fixtures.tunnel_pki, hosted_fixtures.stage, hosted_fixtures.tunnel
Capture = pytest.CaptureFixture[str]


def ping(tunnel: Tunnel, *arguments: str) -> int:
    return run(["ping", *entrance(tunnel.access), "-i", "0", "--timeout", "60s", *arguments])


def test_a_dial_that_succeeds_is_a_row_with_every_hop(tunnel: Tunnel, capsys: Capture) -> None:
    address = tunnel.stage.endpoint().address
    assert ping(tunnel, address, "-c", "2") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"ping {address} through {tunnel.access.title}"
    assert lines[2].split() == ["#", "connect", "tls", "agent", "dial", "total"]
    assert lines[3].split()[0] == "1"
    assert lines[3].endswith("ok, agent agent-0")
    assert lines[4].split()[0] == "2"
    assert any(line.startswith("server    TLSv1.3, CN=proxy-server, ") for line in lines)
    assert "agent     agent-0 (2)" in lines
    assert "2 sent, 2 ok, 0% lost" in lines
    assert [line.split()[0] for line in lines[-3:]] == ["min", "avg", "max"]
    assert err == ""


def test_an_endpoint_that_refuses_is_named_with_code_and_next_step(tunnel: Tunnel, capsys: Capture) -> None:
    address = refused_address()
    assert ping(tunnel, address, "-c", "2") == 4
    out, err = capsys.readouterr()
    assert out.count("UMB501 dial, agent agent-0: ") == 2
    assert "2 sent, 0 ok, 100% lost" in out
    lines = err.splitlines()
    assert len(lines) == 3, "three lines, once"
    assert lines[0].startswith(f"UMB501 {address} through ")
    assert lines[1].startswith("  why: ")
    assert lines[2].startswith("  next: ")


def test_the_status_tells_all_some_and_none() -> None:
    failure = Failure("dial", "UMB501", "refused", "what", "why", "next")
    good, bad = Trip(1, ()), Trip(2, (), failure)
    assert [command._status(trips) for trips in ([good, good], [good, bad], [bad, bad])] == [0, 1, 4]


def test_json_has_hops_certificates_and_the_summary(tunnel: Tunnel, capsys: Capture) -> None:
    assert ping(tunnel, tunnel.stage.endpoint().address, "-c", "3", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "PingReport"
    assert report["summary"]["sent"] == 3
    assert report["summary"]["lossPercent"] == 0
    assert set(report["summary"]["milliseconds"]) == {"connect", "tls", "agent", "dial", "total"}
    assert [one["name"] for one in report["pings"][0]["hops"]] == ["connect", "tls", "agent", "dial"]
    assert report["pings"][0]["agent"] == "agent-0"
    assert report["serverTls"]["certificate"]["commonName"] == "proxy-server"
    assert report["endpointTls"] is None


def test_json_of_a_failure_names_hop_code_and_reason(tunnel: Tunnel, capsys: Capture) -> None:
    assert ping(tunnel, refused_address(), "-c", "1", "-o", "json") == 4
    report = json.loads(capsys.readouterr().out)
    failure = report["pings"][0]["failure"]
    assert (failure["hop"], failure["code"], failure["reason"]) == ("dial", "UMB501", "refused")
    assert failure["next"]


def test_the_endpoints_certificate_is_shown_and_said_to_be_unverified(
    tunnel: Tunnel, tmp_path: Path, capsys: Capture
) -> None:
    authority = FolderAuthority(tmp_path, "webhook-ca")
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        place = f"127.0.0.1:{port}"
        assert ping(tunnel, place, "-c", "1", "--tls") == 0
        shown = capsys.readouterr().out
        assert ping(tunnel, place, "-c", "1", "--tls", "--endpoint-ca", str(authority.certificate_file)) == 0
        verified = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if line.startswith("endpoint")]
    assert "CN=webhook" in line
    assert "signed by webhook-ca" in line
    assert "DNS:localhost" in line
    assert line.endswith("not verified")
    (line,) = [line for line in verified.splitlines() if line.startswith("endpoint")]
    assert "not verified" not in line


def test_a_server_that_is_not_there_is_the_first_hop(tunnel: Tunnel, capsys: Capture) -> None:
    tls = tunnel.access.tls
    files = ["--ca", str(tls.authority), "--cert", str(tls.certificate), "--key", str(tls.key)]
    assert run(["ping", "10.0.0.1:80", "--server", f"127.0.0.1:{free_port()}", *files, "-c", "1"]) == 4
    out, err = capsys.readouterr()
    assert "UMB507 connect: connection refused" in out
    assert "UMB507" in err


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["node"], 2, "is not HOST:PORT"),
        (["node:0"], 2, "names no host or no port"),
        (["node:80"], 3, "UMB573"),
        (["node:80", "--server", "127.0.0.1:8090"], 3, "no CA"),
        (["node:80", "--server", "unix:/s", "--endpoint-ca", "/dev/null"], 2, "go with --tls"),
        (["node:80", "--server", "unix:/s", "--cert", "/dev/null"], 3, "--cert without --key"),
        (["node:80", "--kubeconfig", "k"], 2, "--kubeconfig goes with --namespace"),
        (["node:80", "--namespace", "n"], 2, "--namespace needs --kubeconfig"),
        (["node:80", "--server", "unix:/s", "-c", "0"], 2, "0"),
        (["node:80", "--server", "unix:/s", "-i", "soon"], 2, "soon"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], status: int, word: str, capsys: Capture) -> None:
    assert run(["ping", *arguments]) == status
    out, err = capsys.readouterr()
    assert word in err
    assert out == ""


def test_a_bare_number_is_seconds() -> None:
    assert command.seconds("0.2") == 0.2
    assert command.seconds("5") == 5.0
    assert command.seconds("200ms") == 0.2


def test_an_interrupt_before_the_first_answer_is_an_interrupt(
    tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("umbilical.hosted.ping.ping", interrupted)
    assert ping(tunnel, "127.0.0.1:1") == 8
    assert capsys.readouterr().out == ""


def test_an_interrupt_later_on_shows_what_there_is(
    tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    async def interrupted(_way: object, _pace: object, tell: Callable[[Trip], None]) -> None:
        tell(Trip(1, (Hop("connect", 0.001),)))
        raise KeyboardInterrupt

    monkeypatch.setattr("umbilical.hosted.ping.ping", interrupted)
    assert ping(tunnel, "127.0.0.1:1") == 8
    assert "1 sent, 1 ok, 0% lost" in capsys.readouterr().out
