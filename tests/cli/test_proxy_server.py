"""`proxy-server`: flags become settings, and the command line is upstream's, shown against its real program."""

import logging
from pathlib import Path

import pytest
from tests.cli.upstream import help_flags, ours, outcome, upstream

from umbilical.cli import klog, proxy_server
from umbilical.cli.option_checks import OptionRefused
from umbilical.cli.pflag import FlagSet
from umbilical.cli.server_flags import server_flags
from umbilical.tunnel.settings import (
    FrontendMode,
    Keepalive,
    ListenAddress,
    ServerSettings,
    TcpFrontend,
    TlsFiles,
    TlsPolicy,
    UnixFrontend,
)

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
            *CLUSTER,
            "--cluster-ca-cert=/ca.crt",
            "--server-cert=/s.crt",
            "--server-key=/s.key",
            "--server-ca-cert=/sca.crt",
            "--server-bind-address=::1",
            "--server-port=9000",
            "--agent-bind-address=10.0.0.1",
            "--agent-port=9001",
            "--health-bind-address=10.0.0.2",
            "--health-port=9002",
            "--admin-bind-address=",
            "--admin-port=9003",
            "--mode=http-connect",
            "--server-count=3",
            "--proxy-strategies=destHost,,default",
            "--tls-min-version=VersionTLS13",
            "--cipher-suites=A,B",
            "--keepalive-time=30s",
            "--frontend-keepalive-time=2m",
            "--backend-dial-timeout=7s",
            "--graceful-shutdown-timeout=9s",
            "--enable-profiling",
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


def test_an_existing_file_is_kept_when_told() -> None:
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


def test_a_server_that_accepts_any_agent_says_so_loudly(caplog: pytest.LogCaptureFixture) -> None:
    proxy_server.warn(flags(*UDS, *CLUSTER))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "CVE-2026-16242" in caplog.text
    assert "--cluster-ca-cert" in caplog.text


@pytest.mark.parametrize("argument", ["--cluster-ca-cert=/ca.crt", "--agent-namespace=n"])
def test_a_server_that_checks_agents_does_not_warn(argument: str, caplog: pytest.LogCaptureFixture) -> None:
    proxy_server.warn(flags(*UDS, *CLUSTER, argument))
    assert not caplog.records


def test_old_tls_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    proxy_server.warn(flags(*UDS, "--cluster-ca-cert=/ca.crt", "--tls-min-version=VersionTLS11"))
    assert "--tls-min-version=VersionTLS11 is below TLS 1.2" in caplog.text


@pytest.mark.real("proxy-server")
def test_every_flag_of_upstream_is_here_with_its_kind_and_default() -> None:
    theirs = help_flags(upstream("proxy-server", "--help").stdout)
    mine = help_flags(ours("proxy-server", "--help").stdout)
    assert len(theirs) >= 50
    assert {name: mine.get(name) for name in theirs} == theirs


WRONG = [
    ("--nope",),
    ("-x",),
    ("--server-port",),
    ("--server-port=abc",),
    ("--server-port=99999999999999999999",),
    ("--server-port=0x",),
    ("--server_port=1",),
    ("--log_file=x",),
    ("--logtostderr=x",),
    ("--log-file-max-size=-1",),
    ("--v=x",),
    ("-v=",),
    ("-v",),
    ("-vx",),
    ("--v=9999999999",),
    ("--keepalive-time=5",),
    ("--keepalive-time=5x",),
    ("--keepalive-time=",),
    ("--keepalive-time=\u00e9",),
    ("--stderrthreshold=foo",),
    ("--vmodule=x",),
    ("--vmodule=a=-1",),
    ("--log-backtrace-at=x",),
    ("--log-backtrace-at=a.go:0",),
    ("--=",),
    ("---",),
    ("--kubeconfig-qps=x",),
    ("--kubeconfig-qps=1e60",),
    ("--kubeconfig-burst=1.5",),
    ('--cipher-suites=a"b',),
    ('--cipher-suites="a"b',),
    ('--cipher-suites="a',),
    ("--delete-existing-uds-file=maybe",),
    (),
    ("--mode=x",),
    ("--server-key=/no",),
    ("--server-cert=/no",),
    ("--cluster-ca-cert=/no",),
    ("--uds-name=/x",),
    (*UDS, "--agent-port=60000"),
    (*UDS, "--agent-port=80"),
    (*UDS, "--enable-contention-profiling"),
    (*UDS, "--agent-namespace=n"),
    (*UDS, "--kubeconfig=/no"),
    (*UDS, "--proxy-strategies=,"),
    (*UDS, "--proxy-strategies=best,default"),
    (*UDS, "--xfr-channel-size=0"),
    (*UDS, "--tls-min-version=x"),
    (*UDS, "--cipher-suites=x"),
    (*UDS, "--enable-lease-controller", "--lease-label=a,b"),
    (*UDS, "--graceful-shutdown-timeout=-1.5s"),
    (*UDS, "--backend-dial-timeout=-1h"),
    ("--uds-name={tmp}/k", "--server-port=0"),
    ("--server-ca-cert=/etc/passwd",),
]


@pytest.mark.real("proxy-server")
@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_mistake_is_answered_as_upstream_answers_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    arguments = tuple(argument.replace("{tmp}", str(tmp_path)) for argument in arguments)
    theirs = outcome(upstream("proxy-server", *arguments))
    assert theirs.status == 1
    assert outcome(ours("proxy-server", *arguments)) == theirs
