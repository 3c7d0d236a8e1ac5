"""`umbilical agent run`: safe defaults, and what it refuses."""

from pathlib import Path

import pytest
from tests.cli.native import options_of

from umbilical.cli import agent, main
from umbilical.tunnel.settings import AgentSettings, Keepalive, ListenAddress, ServerAddress, TlsFiles


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "pem"
    path.touch()
    return path


def settings(*arguments: str) -> AgentSettings:
    return agent.agent_settings(options_of(agent.run, arguments))


def test_defaults_are_safe(pem: Path) -> None:
    assert settings("--server=10.0.0.9:8091", "--ca", str(pem), "--id=a1") == AgentSettings(
        agent_id="a1",
        servers=(ServerAddress("10.0.0.9", 8091),),
        tls=TlsFiles(authority=pem),
        keepalive=Keepalive(31.0, 10.0),
    )


def test_options_reach_the_settings(pem: Path) -> None:
    found = settings(
        *("--server=[::1]:9000", "--ca", str(pem), "--cert", str(pem), "--key", str(pem), "--token-file", str(pem)),
        *("--identifiers=host=a&default-route=true", "--alpn=x", "--alpn=y", "--health=:9001", "--admin=:9002"),
        *(
            "--sync-interval=100ms",
            "--sync-interval-cap=2s",
            "--probe-interval=3s",
            "--sync-forever",
            "--count-source=max",
        ),
        *("--dial-timeout=4s", "--max-dials=5", "--drain-linger=6s", "--keepalive=40s", "--profiling"),
    )
    assert found.tls == TlsFiles(pem, pem, pem)
    assert (found.servers, found.token_path) == ((ServerAddress("::1", 9000),), pem)
    assert found.alpn_protocols == ("x", "y")
    assert (found.health_listen, found.admin_listen) == (ListenAddress("", 9001), ListenAddress("", 9002))
    intervals = (found.sync_interval_seconds, found.sync_interval_cap_seconds, found.probe_interval_seconds)
    assert intervals == (0.1, 2.0, 3.0)
    assert (found.dial_timeout_seconds, found.limits.concurrent_dials, found.drain_linger_seconds) == (4.0, 5, 6.0)
    assert (found.keepalive, found.agent_identifiers) == (Keepalive(40.0, 10.0), "host=a&default-route=true")
    assert found.sync_forever
    assert found.server_count_source == "max"
    assert found.enable_profiling
    assert len(found.agent_id) == 36


def test_several_servers_are_taken_in_order_and_each_once(pem: Path) -> None:
    found = settings("--server=a:1", "--server=b:2", "--server=a:1", "--ca", str(pem))
    assert found.servers == (ServerAddress("a", 1), ServerAddress("b", 2))


def test_the_environment_names_servers_with_spaces_between(pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMBILICAL_AGENT_RUN_SERVER", "a:1 [::1]:2")
    context = agent.run.make_context("run", ["--ca", str(pem)], auto_envvar_prefix="UMBILICAL_AGENT_RUN")
    assert agent.agent_settings(context.params).servers == (ServerAddress("a", 1), ServerAddress("::1", 2))


def test_with_leases_no_server_has_to_be_named(pem: Path) -> None:
    assert settings("--count-leases", "--ca", str(pem)).servers == ()


def test_the_environment_names_the_agent(pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_AGENT_ID", "from-environment")
    assert settings("--server=h:1", "--ca", str(pem)).agent_id == "from-environment"


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--server=h:1",), "UMB001", "--ca"),
        (("--server=h",), "UMB001", "HOST:PORT"),
        (("--ca=PEM",), "UMB001", "--server"),
        (("--server=h:1", "--ca=/no"), "UMB002", "/no"),
        (("--server=h:1", "--ca=PEM", "--cert=PEM"), "UMB003", "--key"),
        (("--server=h:1", "--ca=PEM", "--token-file=/no"), "UMB002", "/no"),
        (("--server=h:1", "--ca=PEM", "--identifiers=uid=1"), "UMB001", "unknown address type: uid"),
        (("--server=h:1", "--ca=PEM", "--sync-interval=1m"), "UMB001", "--sync-interval-cap"),
        (("--server=h:1", "--ca=PEM", "--count-leases", "--lease-selector=*x*"), "UMB001", "*x*"),
        (("--server=h:1", "--ca=PEM", "--kubeconfig=/no"), "UMB002", "/no"),
    ],
)
def test_what_cannot_be_served_is_told_in_three_lines(
    arguments: tuple[str, ...], code: str, word: str, pem: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["agent", "run", *(argument.replace("PEM", str(pem)) for argument in arguments)])
    text = capfd.readouterr().err
    assert status == (2 if code == "UMB001" else 3)
    assert text.startswith(code)
    assert len(text.splitlines()) == 3
    assert word in text
