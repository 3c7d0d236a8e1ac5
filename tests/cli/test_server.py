"""`umbilical server`, the flags of upstream that reach its settings, and its engines."""

import base64
import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.cli.native import options_of
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.in_process import echo, listening
from tests.support.scripted_api import ScriptedApi, json_answer
from tests.support.tunnel_client import DialRefused, Frontend, receive_exactly
from tests.support.tunnel_pair import free_port, http_get
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.cli import engines, server
from umbilical.cli.drop_ins import klog
from umbilical.cli.drop_ins.drop_in import OptionRefused
from umbilical.cli.drop_ins.pflag import FlagSet
from umbilical.cli.drop_ins.proxy_server import TLS_VERSIONS, check_server_flags, server_flags, token_rule, uses_tokens
from umbilical.cluster.client import make_client
from umbilical.fault import StartupError
from umbilical.host import processes
from umbilical.tunnel.settings import (
    AgentSettings,
    AuditSettings,
    CapSettings,
    FrontendMode,
    Keepalive,
    ListenAddress,
    ServerAddress,
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


@pytest.fixture
def start(umbilical: Run) -> Run:
    return partial(umbilical, "server", "run")


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
        caps=CapSettings(10_000, 20_000, 50_000, 2_000),
    )


def test_options_reach_the_settings(pem: Path) -> None:
    found = settings(
        *("--listen", "[::1]:9000", "--cert", str(pem), "--key", str(pem), "--ca", str(pem), "--crl", str(pem)),
        *(*agent_files(pem), "--agent-ca", str(pem), "--agent-crl", str(pem)),
        *("--mode=http-connect", "--agents=10.0.0.1:9001", "--health=:9002", "--admin=:9003"),
        *("--strategies=destHost,default", "--count=3", "--dial-timeout=0", "--graceful-shutdown=1m"),
        *("--keepalive=1m", "--keepalive-answer=5s", "--tls-min-version=VersionTLS13", "--profiling"),
        *("--max-agents=1", "--max-agent-tunnels=2", "--max-client-tunnels=3", "--max-dial-rate=0"),
        *("--audit-file", str(pem), "--audit-size=1Mi"),
    )
    assert found.frontend == TcpFrontend(ListenAddress("::1", 9000), TlsFiles(pem, pem, pem, pem))
    assert found.agent_tls == TlsFiles(pem, pem, pem, pem)
    assert found.agent_listen == ListenAddress("10.0.0.1", 9001)
    assert (found.health_listen, found.admin_listen) == (ListenAddress("", 9002), ListenAddress("", 9003))
    assert (found.mode, found.strategies, found.server_count) == (FrontendMode.HTTP_CONNECT, ("destHost", "default"), 3)
    assert (found.dial_timeout_seconds, found.graceful_shutdown_seconds) == (0.0, 60.0)
    assert found.agent_keepalive == Keepalive(60.0, 5.0)
    assert found.tls_policy.minimum_version == "VersionTLS13"
    assert found.enable_profiling
    assert found.caps == CapSettings(1, 2, 3, 0)
    assert found.audit == AuditSettings(pem, 1 << 20)
    assert len(found.server_id) == 36


def test_the_environment_names_the_server(pem: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PROXY_SERVER_ID", "from-environment")
    assert settings("--listen", f"unix:{tmp_path}/k", *agent_files(pem)).server_id == "from-environment"


def test_it_refuses_to_accept_any_agent(pem: Path, tmp_path: Path, start: Run) -> None:
    text = start("--listen", f"unix:{tmp_path}/k", *agent_files(pem), status=3).err
    assert text.startswith("UMB201 any agent would be accepted\n  why: ")
    assert "CVE-2026-16242" in text
    assert not (tmp_path / "k").exists()


def test_revocation_lists_need_the_ca_whose_they_are(pem: Path, tmp_path: Path, start: Run) -> None:
    text = start("--listen", f"unix:{tmp_path}/k", *agent_files(pem), "--agent-crl", pem, *NATIVE_TOKENS, status=3).err
    assert text.startswith("UMB003 --agent-crl without --agent-ca")
    text = start("--listen", f"unix:{tmp_path}/k", *agent_files(pem), "--crl", pem, *NATIVE_TOKENS, status=3).err
    assert text.startswith("UMB004")


def test_a_unix_socket_takes_no_tls_and_needs_its_directory(pem: Path, tmp_path: Path, start: Run) -> None:
    told = start("--listen", f"unix:{tmp_path}/k", "--ca", pem, *agent_files(pem), status=3)
    assert told.err.startswith("UMB004")
    text = start("--listen", f"unix:{tmp_path}/no/k", *agent_files(pem), status=3).err
    assert text.startswith("UMB002")
    assert f"mkdir -p {tmp_path}/no" in text


def test_wrong_words_are_usage_faults(pem: Path, start: Run) -> None:
    for arguments, word in (
        (("--listen=:9000",), "--cert"),
        (("--listen=unix:/tmp/k", "--token-namespace=n"), "--token-service-account"),
        (("--listen=unix:/tmp/k", "--strategies=best"), "best"),
        (("--listen=unix:/tmp/k", "--keepalive=often"), "often"),
        (("--listen=unix:/tmp/k", *NATIVE_TOKENS, "--token-cache=61s"), "longer than 1m"),
        (("--listen=unix:/tmp/k", "--token-cache=61s"), "longer than 1m"),
        (("--listen=unix:/tmp/k", "--token-namespace=n", "--token-service-account=s"), "--token-audience"),
        (
            (
                *("--listen=unix:/tmp/k", "--token-namespace=n", "--token-service-account=s", "--token-audience=a"),
                *("--publish-lease", "--lease-labels=x"),
            ),
            "invalid label format: x",
        ),
    ):
        text = start(*arguments, *agent_files(pem), status=2).err
        assert text.startswith("UMB001")
        assert word in text


def test_an_address_to_publish_goes_into_the_lease_rule(pem: Path) -> None:
    arguments = ("--listen=unix:/tmp/k", *agent_files(pem), "--publish-lease", "--advertise=[fd00::7]:8091")
    rule = server.lease_rule(options_of(server.run, arguments))
    assert rule == engines.LeaseRule("kube-system", {"k8s-app": "konnectivity-server"}, ("fd00::7", 8091))


def test_the_owner_of_the_lease_is_a_pod(pem: Path, start: Run) -> None:
    arguments = ("--listen=unix:/tmp/k", *agent_files(pem), "--publish-lease")
    rule = server.lease_rule(options_of(server.run, (*arguments, "--lease-owner=s1/c0ffee")))
    assert rule is not None
    assert rule.owner == ("s1", "c0ffee")
    text = start(*arguments, "--agent-ca", pem, "--lease-owner=s1", status=2).err
    assert text.startswith("UMB001 --lease-owner 's1' is not valid")


def test_options_that_contradict_each_other_are_reported_in_three_lines(pem: Path, tmp_path: Path, start: Run) -> None:
    for arguments, code, word in (
        (("--agent-identities=/dev/null",), "UMB208", "any dial to any agent"),
        (("--advertise=10.0.0.9:8091",), "UMB205", "add --publish-lease"),
        (("--advertise=0.0.0.0:8091", "--publish-lease"), "UMB206", "every interface"),
        (("--advertise=[::]:8091", "--publish-lease"), "UMB206", "every interface"),
    ):
        files = (*agent_files(pem), "--agent-ca", pem)
        text = start(f"--listen=unix:{tmp_path}/k", *files, *arguments, status=3).err
        assert (text[:6], len(text.splitlines())) == (code, 3)
        assert word in text


def test_identities_reach_the_settings(pem: Path, tmp_path: Path) -> None:
    found = settings(
        *(f"--listen=unix:{tmp_path}/k", *agent_files(pem), "--strategies=destHost,defaultRoute"),
        *(f"--agent-identities={pem}", "--frontend-identities=CN=a,URI=spiffe://b"),
        *("--token-namespace=n", "--token-service-account=s", "--token-audience=a"),
    )
    assert (found.agent_identities, found.token_identity) == (pem, "SA=n/s")
    assert found.frontend_identities == ("CN=a", "URI=spiffe://b")


def test_a_frontend_identity_needs_its_kind(pem: Path, tmp_path: Path, start: Run) -> None:
    listen = f"--listen=unix:{tmp_path}/k"
    text = start(listen, *agent_files(pem), "--frontend-identities=somebody", status=2).err
    assert text.startswith("UMB001")
    assert "CN=konnectivity-client" in text


def test_three_token_options_make_a_rule() -> None:
    options = {"token_namespace": "n", "token_service_account": "s", "token_audience": "a"}
    assert server.token_rule({**options, "token_cache": 60.0}) == engines.TokenRule("n", "s", "a", 60.0)
    assert server.token_rule(dict.fromkeys(options, "")) is None
    with pytest.raises(StartupError):
        server.token_rule({**options, "token_audience": ""})


def test_reviews_are_reused_for_a_minute_by_default_for_less_if_told_and_never_by_the_drop_in(pem: Path) -> None:
    given = ("--listen=unix:/tmp/k", *agent_files(pem), *NATIVE_TOKENS)
    for more, seconds in (((), 60.0), (("--token-cache=5s",), 5.0), (("--token-cache=0",), 0.0)):
        rule = server.token_rule(options_of(server.run, (*given, *more)))
        assert rule == engines.TokenRule("n", "s", "a", seconds)
    assert token_rule(flags(*TOKENS)) == engines.TokenRule("n", "s", "a", 0.0)


UDS = ("--uds-name=/tmp/umbilical.sock", "--server-port=0")
NATIVE_TOKENS = ("--token-namespace=n", "--token-service-account=s", "--token-audience=a")
TOKENS = ("--agent-namespace=n", "--agent-service-account=s", "--authentication-audience=a")


def flags(*arguments: str) -> FlagSet:
    parsed = FlagSet("proxy", server_flags(), klog.FLAGS)
    parsed.parse(arguments)
    return parsed


def refusal(*arguments: str) -> str:
    with pytest.raises(OptionRefused) as fault:
        check_server_flags(flags(*arguments))
    return str(fault.value)


def test_these_options_are_served() -> None:
    assert not uses_tokens(flags())
    assert all(uses_tokens(flags(argument)) for argument in TOKENS)
    for arguments in (
        UDS,
        (*UDS, *TOKENS),
        (*UDS, "--mode=http-connect", "--proxy-strategies=destHost,defaultRoute,default"),
        (*UDS, "--tls-min-version=VersionTLS10", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        (*UDS, "--lease-label=bad"),
        (*UDS, "--enable-profiling", "--enable-contention-profiling"),
    ):
        check_server_flags(flags(*arguments))


def test_a_broken_rule_is_reported_with_the_text_of_upstream() -> None:
    for arguments, fault in (
        ((), "server ca cert must be set when in TCP mode (uds-name is empty)"),
        (("--mode=x",), "mode must be set to either 'grpc' or 'http-connect' not \"x\""),
        (("--uds-name=/x",), "server port should be set to 0 not 8090 for UDS"),
        ((*UDS, "--agent-port=50000"), "please do not try to use ephemeral port 50000 for the agent port"),
        (
            (*UDS, "--health-port=80", "--admin-port=50000"),
            "please do not try to use ephemeral port 50000 for the admin port",
        ),
        ((*UDS, "--agent-port=1023"), "please do not try to use reserved port 1023 for the agent port"),
        ((*UDS, "--admin-port=-1"), "please do not try to use reserved port -1 for the admin port"),
        ((*UDS, "--health-port=0"), "please do not try to use reserved port 0 for the health port"),
        (
            (*UDS, "--enable-contention-profiling"),
            "if --enable-contention-profiling is set, --enable-profiling must also be set",
        ),
        ((*UDS, TOKENS[1]), "--agent-namespace cannot be empty when agent authentication is enabled"),
        ((*UDS, TOKENS[0]), "--agent-service-account cannot be empty when agent authentication is enabled"),
        ((*UDS, *TOKENS[:2]), "--authentication-audience cannot be empty when agent authentication is enabled"),
        ((*UDS, "--kubeconfig=/no"), 'checking KubeconfigPath "/no", got stat /no: no such file or directory'),
        ((*UDS, "--proxy-strategies="), "ProxyStrategies cannot be empty"),
        ((*UDS, "--proxy-strategies=,"), "invalid proxy strategies: proxy strategies cannot be empty"),
        ((*UDS, "--proxy-strategies=best"), "invalid proxy strategies: unknown proxy strategy: best"),
        ((*UDS, "--xfr-channel-size=0"), "channel size 0 must be greater than 0"),
        (
            (*UDS, "--tls-min-version=1.2"),
            f'unsupported TLS version "1.2", supported values are: {", ".join(TLS_VERSIONS)}',
        ),
        (
            (*UDS, "--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"),
            "cipher suite TLS_RSA_WITH_RC4_128_SHA not supported, doesn't exist or considered as insecure",
        ),
        ((*UDS, "--enable-lease-controller", "--lease-label="), "empty string provided"),
        ((*UDS, "--enable-lease-controller", "--lease-label=a"), "invalid label format: a"),
        ((*UDS, "--graceful-shutdown-timeout=-1s"), "graceful-shutdown-timeout must be >= 0, got -1s"),
        ((*UDS, "--backend-dial-timeout=-90s"), "backend-dial-timeout must be >= 0, got -1m30s"),
        (
            (*UDS, "--agent-identities=/dev/null"),
            "--agent-identities has no effect with the strategy default; use destHost,defaultRoute",
        ),
        (
            (*UDS, "--agent-identities=/no"),
            "error checking agent identities /no, got stat /no: no such file or directory",
        ),
        (
            (*UDS, "--frontend-identities=somebody"),
            "'somebody' is not an identity: use one of CN=…, O=…, DNS=…, URI=…, SA=…",
        ),
        (("--server-key=/no",), "error checking server key /no, got stat /no: no such file or directory"),
        (("--server-ca-cert=/no",), "error checking server CA cert /no, got stat /no: no such file or directory"),
        (("--cluster-cert=/no",), "error checking cluster cert /no, got stat /no: no such file or directory"),
        (("--cluster-ca-cert=/no",), "error checking cluster CA cert /no, got stat /no: no such file or directory"),
    ):
        assert refusal(*arguments) == fault


def test_rules_about_files_that_are_there(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    assert refusal(f"--server-key={file}") == f'cannot have server cert empty when server key is set to "{file}"'
    assert refusal(f"--cluster-cert={file}") == f'cannot have cluster key empty when cluster cert is set to "{file}"'
    pair = (f"--server-key={file}", f"--server-cert={file}")
    assert refusal(*UDS, *pair) == "server key should not be set for UDS"
    assert refusal(*UDS, f"--server-ca-cert={file}") == "server ca cert should not be set for UDS"
    assert refusal(f"--server-ca-cert={file}", "--server-port=50000").startswith("please do not try to use ephemeral")
    assert refusal(f"--server-ca-cert={file}", "--server-port=80").startswith("please do not try to use reserved")
    taken = refusal(*UDS, *TOKENS, f"--cluster-ca-cert={file}")
    assert taken == "--cluster-ca-cert can not be used when agent authentication is enabled"


def test_the_environment_names_the_server_and_a_flag_wins(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PROXY_SERVER_ID", "from-environment")
    assert flags().text("server-id") == "from-environment"
    assert flags("--server-id=from-flag").text("server-id") == "from-flag"
    monkeypatch.setenv("PROXY_SERVER_ID", "")
    assert len(flags().text("server-id")) == 36


PROGRAM = (sys.executable, "-m", "umbilical")
PATIENCE = 60.0


@pytest.fixture
def endpoint() -> Iterator[str]:
    with listening() as endpoint:
        yield endpoint.serve(echo).address


@pytest.fixture
def pki(tmp_path: Path) -> TunnelPki:
    return make_tunnel_pki(tmp_path)


def test_a_kubeconfig_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    serving = ServerSettings("s1", UnixFrontend(tmp_path / "k"), ListenAddress("127.0.0.1", 0), TlsFiles())
    attending = AgentSettings("a1", (ServerAddress("127.0.0.1", 1),), TlsFiles())
    (tmp_path / "broken").write_text("not: [yaml")
    (tmp_path / "empty").write_text("apiVersion: v1\nkind: Config\n")
    for name in ("missing", "broken", "empty"):
        access = engines.KubernetesAccess(tmp_path / name)
        with pytest.raises(StartupError) as fault:
            engines.serve(serving, access, engines.TokenRule("n", "s", "a"))
        assert (fault.value.code, fault.value.what) == ("UMB601", "failed to load kubernetes client config")
        with pytest.raises(StartupError, match=r"^failed to load kubernetes client config: "):
            engines.attend(attending, access, engines.LeaseSelection("kube-system", ""))


@pytest.mark.parametrize(("seconds", "reviews"), [(60.0, 1), (0.0, 2)])
async def test_a_token_is_reviewed_once_with_a_cache_and_at_every_connect_without(
    tmp_path: Path, seconds: float, reviews: int
) -> None:
    answer = json_answer({"status": {"authenticated": True, "user": {"username": "system:serviceaccount:n:s"}}})
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3600}).encode()).decode().rstrip("=")
    async with ScriptedApi(lambda request: answer) as api, make_client(api.write_kubeconfig(tmp_path)) as client:
        reviewer = engines.token_reviewer(client, engines.TokenRule("n", "s", "a", seconds))
        for _ in range(2):
            await reviewer.authenticate(f"e30.{claims}.c2ln")
        assert len(api.requests) == reviews


def test_native_server_and_agent_carry_a_tunnel_and_end_in_order(tmp_path: Path, pki: TunnelPki, endpoint: str) -> None:
    agents, server_health, agent_health = free_port(), free_port(), free_port()
    server_command = (
        *(*PROGRAM, "server", "run", "--listen", f"unix:{tmp_path}/k.sock", "--mode=http-connect"),
        *("--agents", f"127.0.0.1:{agents}", "--agent-cert", pki.server.certificate, "--agent-key", pki.server.key),
        *("--agent-ca", pki.authority.certificate_file, "--health", f"127.0.0.1:{server_health}"),
        *("--admin", f"127.0.0.1:{free_port()}", "--log-format=json"),
    )
    agent_command = (
        *(*PROGRAM, "agent", "run", "--server", f"127.0.0.1:{agents}", "--ca", pki.authority.certificate_file),
        *("--cert", pki.agent.certificate, "--key", pki.agent.key, "--health", f"127.0.0.1:{agent_health}"),
        *("--admin", f"127.0.0.1:{free_port()}", "--drain-linger=100ms", "--log-format=text"),
        f"--allow-destination={endpoint}",
    )
    with (
        processes.start(server_command, tmp_path / "server.log", name="server") as server,
        processes.start(agent_command, tmp_path / "agent.log", name="agent") as agent,
    ):
        server.wait_ready(lambda: http_get(f"http://127.0.0.1:{server_health}/readyz")[0] == 200, PATIENCE)
        agent.wait_ready(lambda: http_get(f"http://127.0.0.1:{agent_health}/readyz")[0] == 200, PATIENCE)
        tunnel = Frontend("http-connect", tmp_path / "k.sock").open(endpoint)
        tunnel.send(b"through")
        assert receive_exactly(tunnel, 7) == b"through"
        tunnel.close()
        with pytest.raises(DialRefused, match=r"403 Forbidden.*the agent's loopback is denied by default"):
            Frontend("http-connect", tmp_path / "k.sock").open(f"127.0.0.1:{agent_health}")
        counted = http_get(f"http://127.0.0.1:{agent_health}/metrics")[1]
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    lines = [json.loads(line) for line in server.log_text().splitlines()]
    assert any(line["logger"] == "umbilical.tunnels" and endpoint in line["message"] for line in lines)
    assert any("code=UMB415" in line["message"] for line in lines)
    assert endpoint in agent.log_text()
    assert "code=UMB415" in agent.log_text()
    assert 'umbilical_destinations_denied_total{by="loopback"} 1' in str(counted)
    assert not (tmp_path / "k.sock").exists()


def test_a_port_that_is_taken_is_a_fault_of_the_world_outside(tmp_path: Path, pki: TunnelPki) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = (
            *(*PROGRAM, "agent", "run", "--server=127.0.0.1:1", "--ca", pki.authority.certificate_file),
            *("--health", f"127.0.0.1:{port}"),
        )
        with processes.start(command, tmp_path / "log") as child:
            assert child.wait(PATIENCE) == 4
    assert f"UMB023 cannot listen on 127.0.0.1:{port} for health" in child.log_text()


def test_a_native_failure_at_start_is_three_lines(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    files = ("--agent-cert", wrong, "--agent-key", wrong, "--agent-ca", wrong)
    for arguments in (
        ("server", "run", f"--listen=unix:{tmp_path}/k", *files),
        ("agent", "run", "--server=127.0.0.1:1", "--ca", wrong),
    ):
        with processes.start([*PROGRAM, *arguments], tmp_path / "log") as child:
            assert child.wait(PATIENCE) == 3
        lines = child.log_text().splitlines()
        assert lines[-3].startswith("UMB02")
        assert [line[:7] for line in lines[-2:]] == ["  why: ", "  next:"]


def admin_settings(pem: Path, *arguments: str) -> ServerSettings:
    return settings("--listen", f"unix:{pem.parent}/k.sock", *agent_files(pem), "--agent-ca", str(pem), *arguments)


def test_the_admin_address_may_be_a_unix_socket_or_have_tls_and_a_token(pem: Path) -> None:
    found = admin_settings(pem, "--admin", "unix:/run/admin.sock", "--expected-agents", "3")
    assert (found.admin_listen, found.expected_agents) == (UnixFrontend(Path("/run/admin.sock")), 3)
    tls = ("--admin-cert", str(pem), "--admin-key", str(pem), "--status-token-file", str(pem))
    found = admin_settings(pem, "--admin", "10.0.0.1:8095", *tls)
    assert (found.admin_tls, found.status_token_path) == (TlsFiles(pem, pem), pem)


@pytest.mark.parametrize("place", ["127.0.0.1:8095", "[::1]:8095", "unix:/run/admin.sock"])
def test_a_token_may_be_asked_for_on_this_machine_without_tls(pem: Path, place: str) -> None:
    assert admin_settings(pem, "--admin", place, "--status-token-file", str(pem)).status_token_path == pem


@pytest.mark.parametrize("place", [":8095", "10.0.0.1:8095", "example:8095"])
def test_a_token_does_not_travel_without_tls(pem: Path, place: str) -> None:
    with pytest.raises(StartupError) as fault:
        admin_settings(pem, "--admin", place, "--status-token-file", str(pem))
    assert fault.value.three_lines.splitlines()[0] == "UMB210 --status-token-file without TLS"


def test_an_admin_certificate_needs_its_key(pem: Path) -> None:
    with pytest.raises(StartupError, match="--admin-cert without --admin-key"):
        admin_settings(pem, "--admin-cert", str(pem))
