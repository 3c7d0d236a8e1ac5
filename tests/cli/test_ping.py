"""`umbilical ping` and `umbilical proxy curl` through a tunnel."""

import io
import ssl
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.native import options_of
from tests.hosted import conftest as hosted_fixtures
from tests.hosted.conftest import Tunnel
from tests.support.commands import Run
from tests.support.fixture_types import Patch
from tests.support.in_process import refused_address
from tests.support.tls_listener import listener, says_nothing, swallows
from tests.support.tunnel_files import entrance
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority
from tests.support.web_server import Handler, serving

from umbilical.cli import ping as command
from umbilical.cli import ping_text
from umbilical.cli.main import run
from umbilical.cli.ping import access_options, access_request
from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.dialer.trace import Hop
from umbilical.hosted.access import AccessRequest
from umbilical.hosted.endpoint_tls import TlsFacts
from umbilical.hosted.route import PingFailure, PingResult, summarize
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType, server_profile
from umbilical.tunnel.settings import TlsFiles

tunnel_pki, stage, tunnel = hosted_fixtures.tunnel_pki, hosted_fixtures.stage, hosted_fixtures.tunnel


@pytest.fixture
def ping(umbilical: Run, tunnel: Tunnel) -> Run:
    return partial(umbilical, "ping", *entrance(tunnel.access), "-i", "0", "--timeout", "60s")


def test_a_dial_that_succeeds_is_a_row_with_every_hop(tunnel: Tunnel, ping: Run) -> None:
    address = tunnel.stage.endpoint().address
    out, err = ping(address, "-c", "2")
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


def test_an_endpoint_that_refuses_is_named_with_code_and_next_step(ping: Run) -> None:
    address = refused_address()
    out, err = ping(address, "-c", "2", status=4)
    assert out.count("UMB501 dial, agent agent-0: ") == 2
    assert "2 sent, 0 ok, 100% lost" in out
    what, why, remedy = err.splitlines()
    assert what.startswith(f"UMB501 {address} through ")
    assert why.startswith("  why: ")
    assert remedy.startswith("  next: ")


def test_the_status_tells_all_some_and_none_and_a_bare_number_is_seconds() -> None:
    failure = PingFailure("dial", "UMB501", "refused", "what", "why", "next")
    good, bad = PingResult(1, ()), PingResult(2, (), failure)
    assert [command._status(results) for results in ([good, good], [good, bad], [bad, bad])] == [0, 1, 4]
    assert command.seconds("0.2") == 0.2
    assert command.seconds("5") == 5.0
    assert command.seconds("200ms") == 0.2


def test_json_has_hops_certificates_and_the_summary(tunnel: Tunnel, ping: Run) -> None:
    report = ping(tunnel.stage.endpoint().address, "-c", "3", "-o", "json").json()
    assert report["kind"] == "PingReport"
    assert report["summary"]["sent"] == 3
    assert report["summary"]["lossPercent"] == 0
    assert set(report["summary"]["milliseconds"]) == {"connect", "tls", "agent", "dial", "total"}
    assert [one["name"] for one in report["pings"][0]["hops"]] == ["connect", "tls", "agent", "dial"]
    assert report["pings"][0]["agent"] == "agent-0"
    assert report["serverTls"]["certificate"]["commonName"] == "proxy-server"
    assert report["endpointTls"] is None


def test_json_of_a_failure_names_hop_code_and_reason(ping: Run) -> None:
    failure = ping(refused_address(), "-c", "1", "-o", "json", status=4).json()["pings"][0]["failure"]
    assert (failure["hop"], failure["code"], failure["reason"]) == ("dial", "UMB501", "refused")
    assert failure["next"]


def test_the_endpoints_certificate_is_shown_and_said_to_be_unverified(tmp_path: Path, ping: Run) -> None:
    authority = FolderAuthority(tmp_path, "webhook-ca")
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        place = f"127.0.0.1:{port}"
        shown = ping(place, "-c", "1", "--tls").lines
        verified = ping(place, "-c", "1", "--tls", "--endpoint-ca", authority.certificate_file).lines
    (line,) = [line for line in shown if line.startswith("endpoint")]
    assert "CN=webhook" in line
    assert "signed by webhook-ca" in line
    assert "DNS:localhost" in line
    assert line.endswith("not verified")
    (line,) = [line for line in verified if line.startswith("endpoint")]
    assert "not verified" not in line


def test_a_server_that_is_not_there_is_the_first_hop(tunnel: Tunnel, umbilical: Run) -> None:
    tls = tunnel.access.tls
    files = ["--ca", tls.authority, "--cert", tls.certificate, "--key", tls.key]
    out, err = umbilical("ping", "10.0.0.1:80", "--server", f"127.0.0.1:{free_port()}", *files, "-c", "1", status=4)
    assert "UMB507 connect: connection refused" in out
    assert "UMB507" in err


def test_bad_input_is_refused(umbilical: Run) -> None:
    for arguments, status, word in (
        (["node"], 2, "is not HOST:PORT"),
        (["node:0"], 2, "has no host or no port"),
        (["node:80"], 3, "UMB573"),
        (["node:80", "--server", "127.0.0.1:8090"], 3, "no CA"),
        (["node:80", "--server", "unix:/s", "--endpoint-ca", "/dev/null"], 2, "need --tls"),
        (["node:80", "--server", "unix:/s", "--cert", "/dev/null"], 3, "--cert without --key"),
        (["node:80", "--kubeconfig", "k"], 2, "--kubeconfig needs --namespace"),
        (["node:80", "--namespace", "n"], 2, "--namespace needs --kubeconfig"),
        (["node:80", "--server", "unix:/s", "-c", "0"], 2, "0"),
        (["node:80", "--server", "unix:/s", "-i", "soon"], 2, "soon"),
    ):
        out, err = umbilical("ping", *arguments, status=status)
        assert word in err
        assert out == ""


def test_an_interrupt_is_an_interrupt_and_shows_what_there_is(monkeypatch: Patch, ping: Run) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("umbilical.hosted.route.ping", interrupted)
    assert ping("127.0.0.1:1", status=8).out == ""

    async def interrupted_later(_route: object, _pace: object, tell: Callable[[PingResult], None]) -> None:
        tell(PingResult(1, (Hop("connect", 0.001),)))
        raise KeyboardInterrupt

    monkeypatch.setattr("umbilical.hosted.route.ping", interrupted_later)
    assert "1 sent, 1 ok, 0% lost" in ping("127.0.0.1:1", status=8).out


@click.command()
@access_options
def probe(**_: Any) -> None:
    """Take the options and do nothing."""


def read(*arguments: str) -> AccessRequest:
    return access_request(options_of(probe, arguments))


def test_files_and_a_server(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ca", "cert", "key")]
    for path in files:
        path.touch()
    ca, cert, key = map(str, files)
    request = read("--server", "[::1]:8090", "--server-name", "local", "--ca", ca, "--cert", cert, "--key", key)
    assert request.server == TcpServer("::1", 8090, "local")
    assert request.tls == TlsFiles(files[1], files[2], files[0])
    assert (request.namespace, request.protocol) == (None, Protocol.HTTP_CONNECT)


def test_an_entrance_is_a_server_a_socket_or_a_namespace() -> None:
    request = read("--server", "unix:/run/k.sock", "--protocol", "grpc")
    assert (request.server, request.protocol) == (UnixServer(Path("/run/k.sock")), Protocol.GRPC)
    options = options_of(probe, ["-n", "clusters-a", "--kubeconfig", "k"])
    request = access_request(options, needs_kubelet=True)
    assert (request.namespace, request.kubeconfig, request.server) == ("clusters-a", Path("k"), None)
    assert request.needs_kubelet
    assert read("-n", "a", "--server", "konnectivity-server-local:8090").kubeconfig is None


def test_the_environments_kubeconfig_counts_where_none_is_given(monkeypatch: Patch) -> None:
    monkeypatch.setenv("KUBECONFIG", "one:two")
    assert read("-n", "clusters-a").kubeconfig == Path("one")
    assert read("-n", "clusters-a", "--kubeconfig", "k").kubeconfig == Path("k")
    assert read("--server", "unix:/run/k.sock").kubeconfig is None


NOW = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOPS = ["connect", "tls", "agent", "dial"]
PASSED = (Hop("connect", 0.001), Hop("tls", 0.002), Hop("agent", 0.0001, "a1"), Hop("dial", 0.5))
REFUSED = PingFailure("dial", "UMB501", "refused", "what", "why\x1b[31m", "next")


def test_times_have_three_digits() -> None:
    times = {0.0: "0.00ms", 0.00042: "0.42ms", 0.0123: "12.3ms", 0.5: "500ms", 1.239: "1.24s", 61: "61.00s"}
    assert {seconds: ping_text.milliseconds(seconds) for seconds in times} == times


def test_columns_are_the_hops_that_there_can_be() -> None:
    assert ping_text.columns(tls=False, unix=False) == HOPS
    assert ping_text.columns(tls=True, unix=True) == ["connect", "agent", "dial", "endpoint tls"]


def test_rows_stand_under_their_header() -> None:
    header = ping_text.header(HOPS)
    row = ping_text.row(PingResult(1, PASSED), HOPS, unicode=True)
    for name, cell in (("connect", "1.00ms"), ("dial", "500ms"), ("total", "503ms")):
        assert header.index(name) + len(name) == row.index(cell) + len(cell)
    assert row.endswith("ok, agent a1")


def test_a_failure_is_a_cross_at_its_hop_and_its_words_cannot_move_the_cursor() -> None:
    row = ping_text.row(PingResult(2, PASSED, REFUSED), HOPS, unicode=True)
    assert "× 500ms" in row
    assert "\x1b" not in row
    assert row.endswith("UMB501 dial, agent a1: why\\x1b[31m")
    assert "x 500ms" in ping_text.row(PingResult(2, PASSED, REFUSED), HOPS, unicode=False)
    early = PingFailure("connect", "UMB507", "server", "what", "why", "next")
    assert ping_text.row(PingResult(1, (), early), HOPS, unicode=True).split() == [
        *("1", "×", "-", "-", "-", "-", "UMB507", "connect:", "why")
    ]


def test_a_server_that_does_not_tell_its_agent_is_said_to() -> None:
    result = PingResult(1, (Hop("connect", 0.1), Hop("dial", 0.1)))
    assert ping_text.details([result], NOW) == ["agent     not reported by this server"]
    assert ping_text.row(result, HOPS, unicode=True).endswith("ok")
    assert ping_text.details([PingResult(1, (), REFUSED)], NOW) == []


def facts(*, is_verified: bool) -> TlsFacts:
    authority = Authority.create("signer", NOW - DAY, 10 * DAY, KeyType.ECDSA_P256)
    pair = authority.issue(server_profile("webhook", ["webhook.svc", "10.0.0.1"], KeyType.ECDSA_P256), NOW, DAY)
    return TlsFacts("TLSv1.3", read_certificates(pair.certificate)[0], is_verified)


def test_a_certificate_is_one_line_with_names_issuer_and_end() -> None:
    assert ping_text.tls_line(facts(is_verified=True), NOW, "x") == (
        "TLSv1.3, CN=webhook, DNS:webhook.svc, IP:10.0.0.1, signed by signer, expires in 24h00m"
    )
    assert ping_text.tls_line(facts(is_verified=False), NOW, "not verified").endswith(", not verified")
    assert ping_text.tls_line(TlsFacts("TLSv1.2", None, True), NOW, "x") == "TLSv1.2, certificate not readable"


def test_the_summary_counts_and_stands_in_columns() -> None:
    lines = ping_text.summary_lines(summarize([PingResult(1, PASSED), PingResult(2, PASSED, REFUSED)]), HOPS)
    assert lines[0] == "2 sent, 1 ok, 50% lost"
    assert [line.split()[0] for line in lines[1:]] == ["min", "avg", "max"]
    assert ping_text.summary_lines(summarize([PingResult(1, (), REFUSED)]), HOPS) == ["1 sent, 0 ok, 100% lost"]


Curl = Callable[..., tuple[bytes, bytes]]


class Mirror(Handler):
    """Echoes the request."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        lines = [f"{self.command} {self.path}", f"type {self.headers.get('Content-Type')}"]
        lines += [f"token {self.headers.get('Authorization')}", body.decode()]
        self.answer(404 if self.path == "/missing" else 200, "\n".join(lines).encode() + b"\xff", X_Told="yes")

    do_GET = do_POST = do_PUT = do_HEAD = _answer


def mirror(context: ssl.SSLContext | None = None) -> AbstractContextManager[int]:
    return serving(Mirror, context)


@pytest.fixture
def curl(tunnel: Tunnel, capfdbinary: pytest.CaptureFixture[bytes]) -> Curl:
    """Run the command, check its status, and return the bytes that it printed."""

    def call(*arguments: str, status: int = 0) -> tuple[bytes, bytes]:
        found = run(["proxy", "curl", *entrance(tunnel.access), "--timeout", "60s", *arguments])
        out, err = capfdbinary.readouterr()
        assert found == status, err
        return out, err

    return call


def test_the_body_is_all_that_is_on_standard_output(curl: Curl) -> None:
    with mirror() as port:
        assert curl(f"http://127.0.0.1:{port}/a?b=c") == (b"GET /a?b=c\ntype None\ntoken None\n\xff", b"")


def test_data_makes_a_post_and_a_method_wins(tmp_path: Path, monkeypatch: Patch, curl: Curl) -> None:
    body = tmp_path / "body"
    body.write_text("from a file")
    with mirror() as port:
        url = f"http://127.0.0.1:{port}/"
        posted, _ = curl(url, "-d", "x=1")
        put, _ = curl(url, "-X", "PUT", "-H", "Content-Type: text/plain", "-d", f"@{body}")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
        assert b"\ntyped" in curl(url, "-d", "@-")[0]
    assert b"POST /\ntype application/x-www-form-urlencoded\ntoken None\nx=1" in posted
    assert b"PUT /\ntype text/plain\ntoken None\nfrom a file" in put


def test_headers_from_a_file_are_sent_and_their_secrets_not_shown(tmp_path: Path, curl: Curl) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer sesame\n")
    with mirror() as port:
        out, err = curl(f"http://127.0.0.1:{port}/", "-H", f"@{headers}", "-v")
    assert b"token Bearer sesame" in out
    assert b"sesame" not in err
    assert b"> Authorization: (hidden)" in err


def test_heads_are_shown_when_asked_for(curl: Curl) -> None:
    with mirror() as port:
        head, _ = curl(f"http://127.0.0.1:{port}/", "-I")
        both, _ = curl(f"http://127.0.0.1:{port}/", "-i")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")
    assert b"X-Told: yes\r\n" in head
    assert b"\r\n\r\nGET /\n" in both


def test_a_file_takes_the_body_and_a_failure_leaves_it_as_it_was(tmp_path: Path, curl: Curl) -> None:
    out = tmp_path / "out"
    out.write_text("older")
    curl(f"http://{refused_address()}/", "-o", str(out), status=4)
    assert out.read_text() == "older"
    with mirror() as port:
        assert curl(f"http://127.0.0.1:{port}/", "-o", str(out))[0] == b""
        assert out.read_bytes().startswith(b"GET /\n")
        assert b"UMB578" in curl(f"http://127.0.0.1:{port}/", "-o", str(tmp_path / "no" / "out"), status=3)[1]


def test_any_answer_is_good_unless_told_otherwise(curl: Curl) -> None:
    with mirror() as port:
        curl(f"http://127.0.0.1:{port}/missing")
        curl(f"http://127.0.0.1:{port}/missing", "-f", status=1)
        curl(f"http://127.0.0.1:{port}/", "-f")


def test_https_with_both_certificates_and_hops_told(tmp_path: Path, curl: Curl) -> None:
    authority = FolderAuthority(tmp_path, "kubelet-ca")
    context = authority.server_context(authority.serving("kubelet"))
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.client("kube-apiserver")
    files = ["--cacert", str(authority.certificate_file)]
    files += ["--client-cert", str(client.certificate), "--client-key", str(client.key)]
    with mirror(context) as port:
        out, err = curl(f"https://127.0.0.1:{port}/metrics", *files, "-v")
    assert out.startswith(b"GET /metrics\n")
    lines = err.decode().splitlines()
    hops = [line.split()[1] for line in lines if line.startswith("* ") and line[2] != " "]
    assert hops == ["connect", "tls", "agent", "dial", "endpoint"]
    assert any("CN=kubelet" in line for line in lines)
    assert "> GET /metrics HTTP/1.1" in lines
    assert "< HTTP/1.0 200 OK" in lines


def test_an_endpoint_that_is_not_trusted_is_refused_unless_told_otherwise(tmp_path: Path, curl: Curl) -> None:
    authority = FolderAuthority(tmp_path, "kubelet-ca")
    with mirror(authority.server_context(authority.serving("kubelet"))) as port:
        url = f"https://127.0.0.1:{port}/"
        assert b"UMB574" in curl(url, status=4)[1]
        curl(url, "-k")
        curl(url, "--cacert", str(authority.certificate_file), "--endpoint-name", "localhost")


def test_an_endpoint_that_answers_too_late_is_a_timeout(curl: Curl) -> None:
    with listener(swallows) as port:
        out, err = curl(f"http://127.0.0.1:{port}/", "--max-time", "1s", status=9)
    assert out == b""
    assert b"UMB576" in err


def test_bad_input_of_curl_is_refused(curl: Curl) -> None:
    for arguments, status, word in (
        (["node:80"], 2, b"must begin with http://"),
        (["http://user:sesame@node/"], 2, b"it contains credentials"),
        (["http://node/", "-H", "no header"], 2, b"Name: value"),
        (["http://node/", "-I", "-d", "x"], 2, b"-I and -d exclude each other"),
        (["http://node/", "--kubelet"], 2, b"--kubelet needs --namespace"),
        (["http://node/", "-d", "@/no/such/file"], 3, b"/no/such/file"),
        (["https://node/", "--client-cert", "/dev/null"], 3, b"--client-cert without --client-key"),
    ):
        out, err = curl(*arguments, status=status)
        assert word in err
        assert out == b""
