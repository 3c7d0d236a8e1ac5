"""`umbilical server run`: safe defaults, and what it refuses."""

from pathlib import Path

import pytest
from tests.cli.native import options_of

from umbilical.cli import engines, main, server
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import (
    FrontendMode,
    Keepalive,
    ListenAddress,
    ServerSettings,
    TcpFrontend,
    TlsFiles,
    UnixFrontend,
)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "pem"
    path.touch()
    return path


def agent_files(pem: Path) -> tuple[str, ...]:
    return ("--agent-cert", str(pem), "--agent-key", str(pem))


def settings(*arguments: str) -> ServerSettings:
    return server.server_settings(options_of(server.run, arguments))


def fault(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main.run(["server", "run", *arguments])
    return status, capfd.readouterr().err


def test_defaults_are_safe(pem: Path, tmp_path: Path) -> None:
    found = settings("--listen", f"unix:{tmp_path}/k.sock", "--id", "s1", *agent_files(pem), "--agent-ca", str(pem))
    assert found == ServerSettings(
        server_id="s1",
        frontend=UnixFrontend(tmp_path / "k.sock"),
        agent_listen=ListenAddress("", 8091),
        agent_tls=TlsFiles(pem, pem, pem),
        agent_keepalive=Keepalive(31.0, 10.0),
        frontend_keepalive=Keepalive(31.0, 10.0),
        dial_timeout_seconds=10.0,
        graceful_shutdown_seconds=30.0,
    )


def test_options_reach_the_settings(pem: Path) -> None:
    found = settings(
        *("--listen", "[::1]:9000", "--cert", str(pem), "--key", str(pem), "--ca", str(pem)),
        *agent_files(pem),
        *("--mode=http-connect", "--agents=10.0.0.1:9001", "--health=:9002", "--admin=:9003"),
        *("--strategies=destHost,default", "--count=3", "--dial-timeout=0", "--graceful-shutdown=1m"),
        *("--keepalive=1m", "--keepalive-answer=5s", "--tls-min-version=VersionTLS13", "--profiling"),
    )
    assert found.frontend == TcpFrontend(ListenAddress("::1", 9000), TlsFiles(pem, pem, pem))
    assert (found.agent_listen, found.health_listen.port, found.admin_listen.port) == (
        ListenAddress("10.0.0.1", 9001),
        9002,
        9003,
    )
    assert (found.mode, found.strategies, found.server_count) == (
        FrontendMode.HTTP_CONNECT,
        ("destHost", "default"),
        3,
    )
    assert (found.dial_timeout_seconds, found.graceful_shutdown_seconds) == (0.0, 60.0)
    assert found.agent_keepalive == Keepalive(60.0, 5.0)
    assert found.tls_policy.minimum_version == "VersionTLS13"
    assert found.enable_profiling
    assert len(found.server_id) == 36


def test_the_environment_names_the_server(pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_SERVER_ID", "from-environment")
    assert settings("--listen", f"unix:{tmp_path}/k", *agent_files(pem)).server_id == "from-environment"


def test_it_refuses_to_accept_any_agent(pem: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = fault(capfd, "--listen", f"unix:{tmp_path}/k", *agent_files(pem))
    assert status == 3
    assert text.startswith("UMB201 any agent would be accepted\n  why: ")
    assert "CVE-2026-16242" in text
    assert not (tmp_path / "k").exists()


def test_a_unix_socket_takes_no_tls(pem: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = fault(capfd, "--listen", f"unix:{tmp_path}/k", "--ca", str(pem), *agent_files(pem))
    assert (status, text[:6]) == (3, "UMB004")


def test_a_unix_socket_needs_its_directory(pem: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = fault(capfd, "--listen", f"unix:{tmp_path}/no/k", *agent_files(pem))
    assert (status, text[:6]) == (3, "UMB002")
    assert f"mkdir -p {tmp_path}/no" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--listen=:9000",), "--cert"),
        (("--listen=unix:/tmp/k", "--token-namespace=n"), "--token-service-account"),
        (("--listen=unix:/tmp/k", "--strategies=best"), "best"),
        (("--listen=unix:/tmp/k", "--keepalive=often"), "often"),
        (("--listen=unix:/tmp/k", "--token-namespace=n", "--token-service-account=s"), "--token-audience"),
        (
            (
                "--listen=unix:/tmp/k",
                "--token-namespace=n",
                "--token-service-account=s",
                "--token-audience=a",
                "--publish-lease",
                "--lease-labels=x",
            ),
            "invalid label format: x",
        ),
    ],
)
def test_wrong_words_are_usage_faults(
    arguments: tuple[str, ...], word: str, pem: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, text = fault(capfd, *arguments, *agent_files(pem))
    assert (status, text[:6]) == (2, "UMB001")
    assert word in text


def test_an_address_to_publish_goes_into_the_lease_rule(pem: Path) -> None:
    arguments = ("--listen=unix:/tmp/k", *agent_files(pem), "--publish-lease", "--advertise=[fd00::7]:8091")
    rule = server.lease_rule(options_of(server.run, arguments))
    assert rule == engines.LeaseRule("kube-system", {"k8s-app": "konnectivity-server"}, ("fd00::7", 8091))


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--agent-identities=/dev/null",), "UMB208", "every agent every dial"),
        (("--advertise=10.0.0.9:8091",), "UMB205", "add --publish-lease"),
        (("--advertise=0.0.0.0:8091", "--publish-lease"), "UMB206", "every interface"),
        (("--advertise=[::]:8091", "--publish-lease"), "UMB206", "every interface"),
    ],
)
def test_options_that_contradict_each_other_are_told_in_three_lines(
    arguments: tuple[str, ...], code: str, word: str, pem: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"--listen=unix:{tmp_path}/k"
    status, text = fault(capfd, place, *agent_files(pem), "--agent-ca", str(pem), *arguments)
    assert (status, text[:6], len(text.splitlines())) == (3, code, 3)
    assert word in text


def test_identities_reach_the_settings(pem: Path, tmp_path: Path) -> None:
    found = settings(
        *(f"--listen=unix:{tmp_path}/k", *agent_files(pem), "--strategies=destHost,defaultRoute"),
        *(f"--agent-identities={pem}", "--frontend-identities=CN=a,URI=spiffe://b"),
        *("--token-namespace=n", "--token-service-account=s", "--token-audience=a"),
    )
    assert (found.agent_identities, found.token_identity) == (pem, "SA=n/s")
    assert found.frontend_identities == ("CN=a", "URI=spiffe://b")


def test_a_frontend_identity_needs_its_kind(pem: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = fault(capfd, f"--listen=unix:{tmp_path}/k", *agent_files(pem), "--frontend-identities=somebody")
    assert (status, text[:6]) == (2, "UMB001")
    assert "CN=konnectivity-client" in text


def test_three_token_options_make_a_rule() -> None:
    options = {"token_namespace": "n", "token_service_account": "s", "token_audience": "a"}
    assert server.token_rule(options) == engines.TokenRule("n", "s", "a")
    assert server.token_rule(dict.fromkeys(options, "")) is None
    with pytest.raises(StartupError):
        server.token_rule({**options, "token_audience": ""})
