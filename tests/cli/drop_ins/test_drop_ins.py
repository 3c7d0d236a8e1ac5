"""The programs under the names of upstream: flags become settings, and the command line is that of the real ones."""

import logging
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.drop_ins.upstream import Outcome, help_flags, ours, outcome, upstream
from tests.support.fixture_types import Captured

from umbilical.cli import log_setup
from umbilical.cli.drop_ins import drop_in, klog, proxy_agent, proxy_server
from umbilical.cli.drop_ins.drop_in import OptionRefused
from umbilical.cli.drop_ins.pflag import BOOL, STRING, FlagSet, FlagSpec
from umbilical.cli.drop_ins.proxy_agent import agent_flags
from umbilical.cli.drop_ins.proxy_server import server_flags
from umbilical.fault import StartupError
from umbilical.tunnel.settings import (
    AgentSettings,
    DestinationSettings,
    FrontendMode,
    Keepalive,
    ListenAddress,
    ServerAddress,
    ServerSettings,
    TcpFrontend,
    TlsFiles,
    TlsPolicy,
    UnixFrontend,
)


def program(start: "Sequence[BaseException]" = (), refused: str = "") -> drop_in.DropIn:
    def check(flags: FlagSet) -> None:
        if refused:
            raise OptionRefused(refused)

    def run(flags: FlagSet) -> int:
        for fault in start:
            raise fault
        return 7

    table = (FlagSpec("name", STRING, "x", "who"), FlagSpec("old", BOOL, True, "gone", deprecated="leave it"))
    return drop_in.DropIn("proxy-thing", "thing", "A thing.", "failed with ", lambda: table, check, run)


def test_the_exit_status_is_that_of_the_engine_and_options_are_listed(capfd: Captured) -> None:
    assert drop_in.run(program(), []) == 7
    log_setup.flush()
    assert re.search(r'^I.* drop_in\.py:\d+\] --name set to "x"$', capfd.readouterr().err, re.M)
    assert drop_in.run(program(), ["--v=0"]) == 7
    assert capfd.readouterr().err == ""
    assert drop_in.run(program(), ["--old", "--v=0"]) == 7
    assert capfd.readouterr().err == "Flag --old has been deprecated, leave it\n"
    assert drop_in.run(program([KeyboardInterrupt()]), ["--v=0"]) == 1


def test_help_goes_to_standard_output(capfd: Captured) -> None:
    assert drop_in.run(program(), ["--help"]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("A thing.\n\nUsage:\n  thing [flags]\n\nFlags:\n")
    assert "--name string" in captured.out
    assert captured.err == ""


def test_a_failure_is_an_error_line_the_usage_and_a_log_line(capfd: Captured) -> None:
    for thing, arguments, text in (
        (program(), ["--nope"], "unknown flag: --nope"),
        (program(refused="name is taken"), [], "failed with name is taken"),
        (program([OptionRefused("no such label")]), [], "no such label"),
        (
            program([StartupError("UMB202", "failed to listen", "port taken", "free it")]),
            [],
            "failed to listen: port taken",
        ),
    ):
        assert drop_in.run(thing, arguments) == 1
        log_setup.flush()
        lines = capfd.readouterr().err.splitlines()
        start = lines.index(f"Error: {text}")
        assert lines[start + 1 : start + 3] == ["Usage:", "  thing [flags]"]
        assert lines[-2] == ""
        assert re.fullmatch(rf"E\d{{4}} .* drop_in\.py:\d+\] error: {re.escape(text)}", lines[-1])


def test_a_log_file_that_cannot_be_opened_is_a_failure(tmp_path: Path, capfd: Captured) -> None:
    assert drop_in.run(program(), ["--logtostderr=false", f"--log-file={tmp_path}/no/log"]) == 1
    assert "No such file or directory" in capfd.readouterr().err


UDS = ("--uds-name=/run/k.sock", "--server-port=0")
CLUSTER = ("--cluster-cert=/c.crt", "--cluster-key=/c.key")


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("proxy", server_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def test_defaults_become_upstream_settings() -> None:
    settings = proxy_server.server_settings(flags(*UDS, *CLUSTER, "--server-id=s1"))
    assert settings == ServerSettings(
        server_id="s1",
        frontend=UnixFrontend(Path("/run/k.sock"), replace_existing=True),
        agent_listen=ListenAddress("", 8091),
        agent_tls=TlsFiles(Path("/c.crt"), Path("/c.key"), None),
        mode=FrontendMode.GRPC,
        strategies=("default",),
        agent_keepalive=Keepalive(3600.0, 20.0),
        frontend_keepalive=Keepalive(3600.0, 20.0),
        health_listen=ListenAddress("", 8092),
        admin_listen=ListenAddress("127.0.0.1", 8095),
    )


def test_every_flag_with_an_effect_reaches_the_settings() -> None:
    settings = proxy_server.server_settings(
        flags(
            *(*CLUSTER, "--cluster-ca-cert=/ca.crt", "--server-cert=/s.crt", "--server-key=/s.key"),
            *("--server-ca-cert=/sca.crt", "--server-bind-address=::1", "--server-port=9000", "--agent-port=9001"),
            *("--agent-bind-address=10.0.0.1", "--health-bind-address=10.0.0.2", "--health-port=9002"),
            *("--admin-bind-address=", "--admin-port=9003", "--mode=http-connect", "--server-count=3"),
            *("--proxy-strategies=destHost,,default", "--tls-min-version=VersionTLS13", "--cipher-suites=A,B"),
            *("--keepalive-time=30s", "--frontend-keepalive-time=2m", "--backend-dial-timeout=7s"),
            *("--graceful-shutdown-timeout=9s", "--enable-profiling"),
        )
    )
    assert settings.frontend == TcpFrontend(
        ListenAddress("::1", 9000), TlsFiles(Path("/s.crt"), Path("/s.key"), Path("/sca.crt"))
    )
    assert settings.agent_tls.authority == Path("/ca.crt")
    assert settings.agent_listen == ListenAddress("10.0.0.1", 9001)
    assert settings.health_listen == ListenAddress("10.0.0.2", 9002)
    assert settings.admin_listen == ListenAddress("", 9003)
    assert settings.mode is FrontendMode.HTTP_CONNECT
    assert (settings.server_count, settings.strategies) == (3, ("destHost", "default"))
    assert settings.tls_policy == TlsPolicy("VersionTLS13", ("A", "B"))
    assert (settings.agent_keepalive.interval_seconds, settings.frontend_keepalive.interval_seconds) == (30.0, 120.0)
    assert (settings.dial_timeout_seconds, settings.graceful_shutdown_seconds) == (7.0, 9.0)
    assert settings.enable_profiling


@pytest.mark.parametrize(("given", "seconds"), [("0s", 7200.0), ("10ms", 1.0), ("31s", 31.0)])
def test_keepalive_has_the_floor_of_grpc(given: str, seconds: float) -> None:
    settings = proxy_server.server_settings(flags(*UDS, *CLUSTER, f"--keepalive-time={given}"))
    assert settings.agent_keepalive.interval_seconds == seconds


def test_an_existing_file_is_kept_on_request() -> None:
    settings = proxy_server.server_settings(flags(*UDS, *CLUSTER, "--delete-existing-uds-file=false"))
    assert settings.frontend == UnixFrontend(Path("/run/k.sock"), replace_existing=False)


def test_without_a_certificate_nothing_starts() -> None:
    with pytest.raises(OptionRefused, match=r"^failed to run the agent server: failed to load X509 key pair  and : "):
        proxy_server.server_settings(flags(*UDS))
    with pytest.raises(
        OptionRefused, match=r"^failed to run the frontend server: failed to load X509 key pair  and : "
    ):
        proxy_server.server_settings(flags(*CLUSTER, "--server-ca-cert=/ca.crt"))


def test_bad_lease_labels_fail_before_anything_listens_even_without_leases(tmp_path: Path) -> None:
    (tmp_path / "pem").touch()
    files = (f"--cluster-cert={tmp_path}/pem", f"--cluster-key={tmp_path}/pem")
    result = outcome(ours("proxy-server", *UDS, *files, "--lease-label=a"))
    assert (result.status, result.error) == (1, "invalid label format: a")


def test_a_server_warns_if_it_accepts_any_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for argument in ("--cluster-ca-cert=/ca.crt", "--agent-namespace=n"):
        proxy_server.warn(flags(*UDS, *CLUSTER, argument))
        assert not caplog.records
    proxy_server.warn(flags(*UDS, *CLUSTER))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "CVE-2026-16242" in caplog.text
    assert "--cluster-ca-cert" in caplog.text


def test_old_tls_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    proxy_server.warn(flags(*UDS, "--cluster-ca-cert=/ca.crt", "--tls-min-version=VersionTLS11"))
    assert "--tls-min-version=VersionTLS11 is below TLS 1.2" in caplog.text


@pytest.mark.real("proxy-server", "proxy-agent")
@pytest.mark.parametrize(("program", "count"), [("proxy-server", 50), ("proxy-agent", 40)])
def test_every_flag_of_upstream_is_here_with_its_kind_and_default(program: str, count: int) -> None:
    theirs = help_flags(upstream(program, "--help").stdout)
    mine = help_flags(ours(program, "--help").stdout)
    assert len(theirs) >= count
    assert {name: mine.get(name) for name in theirs} == theirs


WRONG = (
    *((), ("--nope",), ("-x",), ("--=",), ("---",), ("-v=",), ("-v",), ("-vx",), ("--v=x",), ("--v=9999999999",)),
    *(("--server-port",), ("--server-port=abc",), ("--server-port=99999999999999999999",), ("--server-port=0x",)),
    *(("--server_port=1",), ("--log_file=x",), ("--logtostderr=x",), ("--log-file-max-size=-1",)),
    *(("--keepalive-time=5",), ("--keepalive-time=5x",), ("--keepalive-time=",), ("--keepalive-time=\u00e9",)),
    *(("--stderrthreshold=foo",), ("--vmodule=x",), ("--vmodule=a=-1",), ("--log-backtrace-at=x",)),
    *(("--log-backtrace-at=a.go:0",), ("--kubeconfig-qps=x",), ("--kubeconfig-qps=1e60",), ("--kubeconfig-burst=1.5",)),
    *(
        ('--cipher-suites=a"b',),
        ('--cipher-suites="a"b',),
        ('--cipher-suites="a',),
        ("--delete-existing-uds-file=maybe",),
    ),
    *(("--mode=x",), ("--server-key=/no",), ("--server-cert=/no",), ("--cluster-ca-cert=/no",), ("--uds-name=/x",)),
    *((*UDS, "--agent-port=60000"), (*UDS, "--agent-port=80"), (*UDS, "--enable-contention-profiling")),
    *((*UDS, "--agent-namespace=n"), (*UDS, "--kubeconfig=/no"), (*UDS, "--proxy-strategies=,")),
    *((*UDS, "--proxy-strategies=best,default"), (*UDS, "--xfr-channel-size=0"), (*UDS, "--tls-min-version=x")),
    *((*UDS, "--cipher-suites=x"), (*UDS, "--enable-lease-controller", "--lease-label=a,b")),
    *((*UDS, "--graceful-shutdown-timeout=-1.5s"), (*UDS, "--backend-dial-timeout=-1h")),
    *(("--uds-name={tmp}/k", "--server-port=0"), ("--server-ca-cert=/etc/passwd",)),
)


def mistakes(program: str, wrong: Iterable[tuple[str, ...]]) -> list[object]:
    """Return where our answer to a wrong command line is not upstream's; both programs run two at a time."""

    def both(arguments: tuple[str, ...]) -> tuple[Outcome, Outcome]:
        return outcome(upstream(program, *arguments)), outcome(ours(program, *arguments))

    with ThreadPoolExecutor(2) as pool:
        answers = zip(wrong, pool.map(both, wrong), strict=True)
        return [answer for answer in answers if answer[1][0].status != 1 or answer[1][0] != answer[1][1]]


@pytest.mark.real("proxy-server")
def test_a_mistake_is_answered_as_upstream_answers_it(tmp_path: Path) -> None:
    wrong = [tuple(argument.replace("{tmp}", str(tmp_path)) for argument in arguments) for arguments in WRONG]
    assert mistakes("proxy-server", wrong) == []


def agents(*arguments: str) -> FlagSet:
    parsed = FlagSet("agent", agent_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def test_defaults_become_an_agents_settings() -> None:
    settings = proxy_agent.agent_settings(agents("--ca-cert=/ca.crt", "--agent-id=a1"))
    assert settings == AgentSettings(
        agent_id="a1",
        servers=(ServerAddress("127.0.0.1", 8091),),
        tls=TlsFiles(authority=Path("/ca.crt")),
        keepalive=Keepalive(3600.0, 20.0),
        health_listen=ListenAddress("", 8093),
        admin_listen=ListenAddress("127.0.0.1", 8094),
    )


def test_every_flag_of_an_agent_with_an_effect_reaches_the_settings() -> None:
    settings = proxy_agent.agent_settings(
        agents(
            *("--ca-cert=/ca.crt", "--agent-cert=/a.crt", "--agent-key=/a.key", "--proxy-server-host=lb.example"),
            *("--proxy-server-port=9000", "--alpn-proto=[]", "--health-server-host=10.0.0.1"),
            *("--health-server-port=9001", "--admin-bind-address=10.0.0.2", "--admin-server-port=9002"),
            *("--enable-profiling=true", "--agent-identifiers=default-route=true", "--sync-interval=100ms"),
            *("--sync-interval-cap=1s", "--probe-interval=200ms", "--keepalive-time=1s"),
            *("--service-account-token-path=/token", "--sync-forever", "--drain-linger=1s"),
            *("--server-count-source=max", "--allow-destination=10.0.0.0/8:443,.svc", "--destinations-file=/rules"),
            *("--deny-destination=local", "--deny-destination=*:22"),
        )
    )
    assert settings.destinations == DestinationSettings(("10.0.0.0/8:443", ".svc"), ("local", "*:22"), Path("/rules"))
    assert settings.tls == TlsFiles(Path("/a.crt"), Path("/a.key"), Path("/ca.crt"))
    assert settings.servers == (ServerAddress("lb.example", 9000),)
    assert settings.alpn_protocols == ("[]",)
    assert settings.health_listen == ListenAddress("10.0.0.1", 9001)
    assert settings.admin_listen == ListenAddress("10.0.0.2", 9002)
    assert settings.agent_identifiers == "default-route=true"
    assert (settings.sync_interval_seconds, settings.sync_interval_cap_seconds) == (0.1, 1.0)
    assert settings.keepalive.interval_seconds == 10.0, "the floor of grpc-go's clients"
    assert settings.token_path == Path("/token")
    assert (settings.drain_linger_seconds, settings.server_count_source) == (1.0, "max")
    assert settings.enable_profiling
    assert settings.sync_forever


def test_an_agent_without_a_ca_does_not_start_and_without_a_count_source_has_the_default() -> None:
    settings = proxy_agent.agent_settings(agents("--ca-cert=/ca.crt", "--server-count-source="))
    assert settings.server_count_source == "default"
    with pytest.raises(OptionRefused) as refusal:
        proxy_agent.agent_settings(agents())
    text = "failed to run proxy connection with failed to load CA cert: open : no such file or directory"
    assert str(refusal.value) == text


def test_flags_newer_than_the_pinned_upstream_are_here_too() -> None:
    assert "lease-label-selector" in help_flags(ours("proxy-agent", "--help").stdout)


WRONG_AGENT = (
    *(("--nope",), ("--proxy-server-port=x",), ("--sync-interval=1",), ('--alpn-proto="',), ("--agent-key=/no",)),
    *(("--agent-cert=/no",), ("--ca-cert=/no",), ("--proxy-server-port=0",), ("--health-server-port=-5",)),
    *(("--admin-server-port=0",), ("--xfr-channel-size=0",), ("--enable-contention-profiling",)),
    *(("--sync-interval=1m", "--sync-interval-cap=500ms"), ("--service-account-token-path=/no",)),
    *(("--agent-identifiers=uid=1",), ("--agent-identifiers=host=a;b",), ("--agent-identifiers=host=%zz",)),
    *(("--kubeconfig=/no",), ("--server-count-source=x",)),
)


@pytest.mark.real("proxy-agent")
def test_a_mistake_of_an_agent_is_answered_as_upstream_answers_it() -> None:
    assert mistakes("proxy-agent", WRONG_AGENT) == []
