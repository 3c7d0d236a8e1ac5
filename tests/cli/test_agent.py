"""`umbilical agent` and the flags of upstream that reach its settings."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.cli.native import options_of
from tests.support.commands import Run
from tests.support.fixture_types import Patch

from umbilical.bootstrap.node_access import NodeAccess
from umbilical.cli import agent
from umbilical.cli.bootstrap.options import node_access, node_options
from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.drop_in import OptionRefused
from umbilical.cli.drop_ins.pflag import FlagError, FlagSet
from umbilical.cli.drop_ins.proxy_agent import agent_flags, check_agent_flags
from umbilical.tunnel.settings import (
    AgentSettings,
    DestinationSettings,
    Keepalive,
    ListenAddress,
    ServerAddress,
    TlsFiles,
)


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
        destinations=DestinationSettings(denied=("local",)),
    )


def test_options_reach_the_settings(pem: Path) -> None:
    found = settings(
        *("--server=[::1]:9000", "--ca", str(pem), "--cert", str(pem), "--key", str(pem), "--token-file", str(pem)),
        *("--identifiers=host=a&default-route=true", "--alpn=x", "--alpn=y", "--health=:9001", "--admin=:9002"),
        *(
            *("--sync-interval=100ms", "--sync-interval-cap=2s", "--probe-interval=3s", "--sync-forever"),
            "--count-source=max",
        ),
        *(
            "--ready-servers=all",
            "--dial-timeout=4s",
            "--max-dials=5",
            "--drain-linger=6s",
            "--keepalive=40s",
            "--profiling",
        ),
        *("--allow-destination=10.0.0.0/8:443", "--allow-destination=127.0.0.0/8", "--destinations-file", str(pem)),
        *("--deny-destination=others", "--deny-destination=*:22"),
    )
    assert found.tls == TlsFiles(pem, pem, pem)
    assert (found.servers, found.token_path) == ((ServerAddress("::1", 9000),), pem)
    assert found.alpn_protocols == ("x", "y")
    assert (found.health_listen, found.admin_listen) == (ListenAddress("", 9001), ListenAddress("", 9002))
    assert (found.sync_interval_seconds, found.sync_interval_cap_seconds) == (0.1, 2.0)
    assert (found.dial_timeout_seconds, found.limits.concurrent_dials, found.drain_linger_seconds) == (4.0, 5, 6.0)
    assert found.destinations == DestinationSettings(
        ("10.0.0.0/8:443", "127.0.0.0/8"), ("others", "*:22", "local"), pem
    )
    assert (found.keepalive, found.agent_identifiers) == (Keepalive(40.0, 10.0), "host=a&default-route=true")
    assert found.sync_forever
    assert found.ready_servers == "all"
    assert found.server_count_source == "max"
    assert found.enable_profiling
    assert len(found.agent_id) == 36


def test_several_servers_are_taken_in_order_each_once_and_with_leases_none_is_needed(pem: Path) -> None:
    found = settings("--server=a:1", "--server=b:2", "--server=a:1", "--ca", str(pem))
    assert found.servers == (ServerAddress("a", 1), ServerAddress("b", 2))
    assert settings("--count-leases", "--ca", str(pem)).servers == ()


def test_the_environment_names_servers_with_spaces_between(pem: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("UMBILICAL_AGENT_RUN_SERVER", "a:1 [::1]:2")
    context = agent.run.make_context("run", ["--ca", str(pem)], auto_envvar_prefix="UMBILICAL_AGENT_RUN")
    assert agent.agent_settings(context.params).servers == (ServerAddress("a", 1), ServerAddress("::1", 2))


def test_the_environment_names_the_agent(pem: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PROXY_AGENT_ID", "from-environment")
    assert settings("--server=h:1", "--ca", str(pem)).agent_id == "from-environment"


def test_what_cannot_be_served_is_reported_in_three_lines(pem: Path, umbilical: Run) -> None:
    for arguments, code, word in (
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
        (("--server=h:1", "--ca=PEM", "--destinations-file=/no"), "UMB002", "/no"),
        (("--server=h:1", "--ca=PEM", "--deny-destination=10.0.0.0/33"), "UMB001", "10.0.0.0/33"),
        (("--server=h:1", "--ca=PEM", "--allow-destination=others"), "UMB001", "can only be denied"),
    ):
        words = (argument.replace("PEM", str(pem)) for argument in arguments)
        text = umbilical("agent", "run", *words, status=2 if code == "UMB001" else 3).err
        assert text.startswith(code)
        assert len(text.splitlines()) == 3
        assert word in text


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("agent", agent_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def test_these_options_are_served() -> None:
    for arguments in (
        (),
        ("--agent-identifiers=host=a&host=b&ipv4=1.2.3.4&ipv6=::1&cidr=10.0.0.0/8&default-route=true",),
        ("--server-count-source=",),
        ("--server-count-source=max",),
        ("--health-server-port=60000", "--admin-server-port=1"),
        ("--sync-interval=10s", "--sync-interval-cap=10s"),
        ("--alpn-proto=[]", "--lease-label=k8s-app=konnectivity-server", "--agent-cert=", "--keepalive-time=1h0m0s"),
        ("--count-server-leases", "--lease-label-selector="),
    ):
        check_agent_flags(flags(*arguments))


def test_a_broken_rule_is_reported_with_the_text_of_upstream() -> None:
    for arguments, fault in (
        (("--agent-key=/no",), "error checking agent key /no, got stat /no: no such file or directory"),
        (("--ca-cert=/no",), "error checking agent CA cert /no, got stat /no: no such file or directory"),
        (("--proxy-server-port=0",), "proxy server port 0 must be greater than 0"),
        (("--health-server-port=0",), "health server port 0 must be greater than 0"),
        (("--admin-server-port=-1",), "admin server port -1 must be greater than 0"),
        (("--xfr-channel-size=-1",), "channel size -1 must be greater than 0"),
        (
            ("--enable-contention-profiling",),
            "if --enable-contention-profiling is set, --enable-profiling must also be set",
        ),
        (("--sync-interval=20s",), "sync interval 20s must be less than sync interval cap 10s"),
        (
            ("--service-account-token-path=/no",),
            "error checking service account token path /no, got stat /no: no such file or directory",
        ),
        (("--agent-identifiers=uid=1",), "agent address is invalid: unknown address type: uid"),
        (("--agent-identifiers=a;b",), "agent address is invalid: invalid semicolon separator in query"),
        (("--kubeconfig=/no",), 'error checking KubeconfigPath "/no", got stat /no: no such file or directory'),
        (("--server-count-source=x",), "--server-count-source must be one of '', 'default', 'max', got x"),
        (("--drain-linger=-1s",), "drain-linger must be >= 0, got -1s"),
    ):
        with pytest.raises(OptionRefused) as refusal:
            check_agent_flags(flags(*arguments))
        assert str(refusal.value) == fault


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(OptionRefused, match=r"^cannot have agent key empty when agent cert is set to "):
        check_agent_flags(flags(f"--agent-cert={tmp_path}"))


def test_both_names_of_the_lease_selector_set_the_same_and_refuse_nonsense() -> None:
    for name in ("lease-label-selector", "lease-label"):
        assert flags(f"--{name}=a in (b,c)").text("lease-label-selector") == "a in (b,c)"
        with pytest.raises(FlagError, match=rf'^invalid argument "\*x\*" for "--{name}" flag: '):
            flags(f"--{name}=*x*")


def test_the_environment_names_the_agent_and_a_flag_wins(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PROXY_AGENT_ID", "from-environment")
    assert flags().text("agent-id") == "from-environment"
    assert flags("--agent-id=from-flag").text("agent-id") == "from-flag"


@click.command()
@node_options
def show(**options: Any) -> None:
    click.echo(repr(node_access(options)))


def test_flags_become_one_value() -> None:
    for arguments, expected in (
        ([], NodeAccess()),
        (
            ["--ssh-host", "fd00::9", "--ssh-user", "root", "--ssh-key", "k", "--ssh-port", "2222"],
            NodeAccess("fd00::9", "root", Path("k"), 2222),
        ),
    ):
        assert CliRunner().invoke(show, arguments).output == f"{expected!r}\n"


def test_a_port_that_does_not_exist_is_refused() -> None:
    assert CliRunner().invoke(show, ["--ssh-port", "0"]).exit_code == 2
