"""`proxy-agent`: flags become settings, and the command line is upstream's, shown against its real program."""

from pathlib import Path

import pytest
from tests.cli.upstream import help_flags, ours, outcome, upstream

from umbilical.cli import klog, proxy_agent
from umbilical.cli.agent_flags import agent_flags
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagSet
from umbilical.tunnel.settings import AgentSettings, Keepalive, ListenAddress, ServerAddress, TlsFiles


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("agent", agent_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def test_defaults_become_upstream_settings() -> None:
    settings = proxy_agent.agent_settings(flags("--ca-cert=/ca.crt", "--agent-id=a1"))
    assert settings == AgentSettings(
        agent_id="a1",
        servers=(ServerAddress("127.0.0.1", 8091),),
        tls=TlsFiles(authority=Path("/ca.crt")),
        keepalive=Keepalive(3600.0, 20.0),
        health_listen=ListenAddress("", 8093),
        admin_listen=ListenAddress("127.0.0.1", 8094),
    )


def test_every_flag_with_an_effect_reaches_the_settings() -> None:
    settings = proxy_agent.agent_settings(
        flags(
            "--ca-cert=/ca.crt",
            "--agent-cert=/a.crt",
            "--agent-key=/a.key",
            "--proxy-server-host=lb.example",
            "--proxy-server-port=9000",
            "--alpn-proto=[]",
            "--health-server-host=10.0.0.1",
            "--health-server-port=9001",
            "--admin-bind-address=10.0.0.2",
            "--admin-server-port=9002",
            "--enable-profiling=true",
            "--agent-identifiers=default-route=true",
            "--sync-interval=100ms",
            "--sync-interval-cap=1s",
            "--probe-interval=200ms",
            "--keepalive-time=1s",
            "--service-account-token-path=/token",
            "--sync-forever",
            "--drain-linger=1s",
            "--server-count-source=max",
        )
    )
    assert settings.tls == TlsFiles(Path("/a.crt"), Path("/a.key"), Path("/ca.crt"))
    assert settings.servers == (ServerAddress("lb.example", 9000),)
    assert settings.alpn_protocols == ("[]",)
    assert settings.health_listen == ListenAddress("10.0.0.1", 9001)
    assert settings.admin_listen == ListenAddress("10.0.0.2", 9002)
    assert settings.agent_identifiers == "default-route=true"
    intervals = (settings.sync_interval_seconds, settings.sync_interval_cap_seconds, settings.probe_interval_seconds)
    assert intervals == (0.1, 1.0, 0.2)
    assert settings.keepalive.interval_seconds == 10.0, "the floor of grpc-go's clients"
    assert settings.token_path == Path("/token")
    assert (settings.drain_linger_seconds, settings.server_count_source) == (1.0, "max")
    assert settings.enable_profiling
    assert settings.sync_forever


def test_an_empty_count_source_is_the_default() -> None:
    settings = proxy_agent.agent_settings(flags("--ca-cert=/ca.crt", "--server-count-source="))
    assert settings.server_count_source == "default"


def test_without_a_ca_nothing_starts() -> None:
    with pytest.raises(OptionRefused) as refusal:
        proxy_agent.agent_settings(flags())
    text = "failed to run proxy connection with failed to load CA cert: open : no such file or directory"
    assert str(refusal.value) == text


@pytest.mark.real("proxy-agent")
def test_every_flag_of_upstream_is_here_with_its_kind_and_default() -> None:
    theirs = help_flags(upstream("proxy-agent", "--help").stdout)
    mine = help_flags(ours("proxy-agent", "--help").stdout)
    assert len(theirs) >= 40
    assert {name: mine.get(name) for name in theirs} == theirs


def test_flags_newer_than_the_pinned_upstream_are_here_too() -> None:
    assert "lease-label-selector" in help_flags(ours("proxy-agent", "--help").stdout)


WRONG = [
    ("--nope",),
    ("--proxy-server-port=x",),
    ("--sync-interval=1",),
    ('--alpn-proto="',),
    ("--agent-key=/no",),
    ("--agent-cert=/no",),
    ("--ca-cert=/no",),
    ("--proxy-server-port=0",),
    ("--health-server-port=-5",),
    ("--admin-server-port=0",),
    ("--xfr-channel-size=0",),
    ("--enable-contention-profiling",),
    ("--sync-interval=1m", "--sync-interval-cap=500ms"),
    ("--service-account-token-path=/no",),
    ("--agent-identifiers=uid=1",),
    ("--agent-identifiers=host=a;b",),
    ("--agent-identifiers=host=%zz",),
    ("--kubeconfig=/no",),
    ("--server-count-source=x",),
]


@pytest.mark.real("proxy-agent")
@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_mistake_is_answered_as_upstream_answers_it(arguments: tuple[str, ...]) -> None:
    theirs = outcome(upstream("proxy-agent", *arguments))
    assert theirs.status == 1
    assert outcome(ours("proxy-agent", *arguments)) == theirs
