"""Real SOCKS5 clients through our proxy, a server and an agent: ours, and upstream's.

curl, requests with PySocks, git and gRPC say what they want in their own ways, and hear the cause in their own words.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
import requests
import socks  # type: ignore[import-untyped]
from tests.interop.fleet import UMBILICAL
from tests.interop.git_repository import CONTENT, git, make_bare_repository
from tests.interop.https_testbed import BODY, files_of, pages_at
from tests.interop.namespace import BLACKHOLE
from tests.support.no_route import ADDRESS, no_route
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, free_port, http_get, wait_until
from tests.support.tunnel_pki import TunnelPki

PROGRAMS: Final = Path(sys.executable).parent
SHAPES: Final = [
    pytest.param(Shape("ours", "ours", "http-connect", "tcp-mtls"), id="ours"),
    pytest.param(
        Shape("upstream", "upstream", "http-connect", "tcp-mtls"),
        id="upstream",
        marks=pytest.mark.real("proxy-server", "proxy-agent"),
    ),
    pytest.param(
        Shape("upstream", "upstream", "grpc", "uds"),
        id="upstream-grpc",
        marks=pytest.mark.real("proxy-server", "proxy-agent"),
    ),
]
pytestmark = pytest.mark.real("curl")


class Socks5Testbed:
    """A tunnel with a SOCKS5 proxy in front of it, and one more that asks for a password."""

    def __init__(self, pair: TunnelPair, stack: ExitStack) -> None:
        self.pair: Final = pair
        self.stack: Final = stack
        users = pair.folder / "users"
        users.touch(0o600)
        users.write_text("ann:s3cret\n")
        self.port, self.health = free_port(), free_port()
        self.locked_port = free_port()
        self.daemon = self.start("open", self.port, "--health", f"127.0.0.1:{self.health}")
        wait_until(self.is_ready, "the proxy is ready")
        health = free_port()
        self.start("locked", self.locked_port, "--credentials-file", str(users), "--health", f"127.0.0.1:{health}")
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/readyz")[0] == 200, "the locked proxy is ready")

    def start(self, name: str, port: int, *options: str) -> Daemon:
        command = [UMBILICAL, "proxy", "socks5", "--listen", f"127.0.0.1:{port}", *self._server(), *options]
        daemon = Daemon(command, self.pair.folder / f"socks5-{name}.log")
        self.stack.callback(lambda: print(daemon.log_tail()))
        self.stack.callback(daemon.kill)
        daemon.start()
        return daemon

    def _server(self) -> list[str]:
        pair, mode = self.pair, ["--protocol", self.pair.shape.mode]
        if pair.shape.frontend == "uds":
            return ["--server", f"unix:{pair.socket_path}", *mode]
        client = pair.pki.client
        files = ["--cert", str(client.certificate), "--key", str(client.key)]
        return [
            "--server",
            f"127.0.0.1:{pair.ports.frontend}",
            "--ca",
            str(pair.pki.authority.certificate_file),
            *files,
            *mode,
        ]

    def is_ready(self) -> bool:
        return http_get(f"http://127.0.0.1:{self.health}/readyz")[0] == 200

    def metrics(self) -> str:
        return http_get(f"http://127.0.0.1:{self.health}/metrics")[1]


@contextmanager
def _open_testbed(shape: Shape, pki: TunnelPki, folder: Path, agents: bool = True) -> Iterator[Socks5Testbed]:
    with ExitStack() as stack:
        pair = TunnelPair(shape, pki, folder)
        stack.callback(lambda: print(pair.logs()))
        stack.callback(pair.stop)
        pair.start_server()
        if agents:
            pair.start_agent()
        yield Socks5Testbed(pair, stack)


@pytest.fixture(name="testbed", scope="module", params=SHAPES)
def running_testbed(
    request: pytest.FixtureRequest, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory, no_way: None
) -> Iterator[Socks5Testbed]:
    with _open_testbed(request.param, pki, tmp_path_factory.mktemp("socks5")) as running:
        yield running


@pytest.fixture(scope="module")
def no_way() -> Iterator[None]:
    """An address that this namespace has no way to."""
    with no_route():
        yield


@pytest.fixture
def pages() -> Iterator[int]:
    with pages_at() as port:
        yield port


def _curl(arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--noproxy", "", *arguments]
    return subprocess.run(command, capture_output=True, timeout=90, check=False)


@pytest.mark.parametrize("option", ["--socks5", "--socks5-hostname"])
def test_curl_reaches_an_ipv4_address(testbed: Socks5Testbed, pages: int, option: str) -> None:
    done = _curl([option, f"127.0.0.1:{testbed.port}", f"http://127.0.0.1:{pages}/"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr


def test_curl_reaches_an_ipv6_address(testbed: Socks5Testbed) -> None:
    with pages_at("::1") as port:
        for option in ("--socks5", "--socks5-hostname"):
            done = _curl(["-g", option, f"127.0.0.1:{testbed.port}", f"http://[::1]:{port}/"])
            assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr


def test_curl_sends_and_gets_much(testbed: Socks5Testbed, pages: int, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(b"sent " * 400_000)
    data = ["--data-binary", f"@{upload}", "-H", "Expect:"]
    done = _curl(["--socks5", f"127.0.0.1:{testbed.port}", *data, f"http://127.0.0.1:{pages}/"])
    assert (done.returncode, done.stdout == upload.read_bytes().upper()) == (0, True), done.stderr


def test_curl_gets_in_with_its_password_and_not_without(testbed: Socks5Testbed, pages: int) -> None:
    where = ["--socks5-hostname", f"127.0.0.1:{testbed.locked_port}"]
    url = f"http://127.0.0.1:{pages}/"
    done = _curl([*where, "--proxy-user", "ann:s3cret", url])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr
    wrong = _curl([*where, "--proxy-user", "ann:wrong", url])
    assert (wrong.returncode, b"User was rejected" in wrong.stderr) == (97, True), wrong.stderr
    without = _curl([*where, url])
    assert without.returncode == 97
    assert b"No authentication method was acceptable" in without.stderr


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1", 5),
        ("[::1]", 5),
        (ADDRESS, 3),
        ("no-such-name.invalid", 4),
        (BLACKHOLE, 6),
    ],
)
def test_curl_hears_the_cause_of_a_failed_dial(testbed: Socks5Testbed, host: str, code: int) -> None:
    done = _curl(["-g", "--socks5-hostname", f"127.0.0.1:{testbed.port}", f"http://{host}:{free_port()}/"])
    assert done.returncode == 97, done.stderr
    assert b"(%d)" % code in done.stderr


def test_requests_reach_names_and_keep_their_connection(testbed: Socks5Testbed, pages: int) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": f"socks5h://127.0.0.1:{testbed.port}"}
        for _ in range(3):
            assert session.get(f"http://localhost:{pages}/", timeout=60).content == BODY
        assert session.post(f"http://127.0.0.1:{pages}/", b"shout", timeout=60).content == b"SHOUT"


def test_pysocks_names_the_cause(testbed: Socks5Testbed) -> None:
    """HyperShift's says "host unreachable" for an endpoint that refuses."""
    proxy = {"proxy_type": socks.SOCKS5, "proxy_addr": "127.0.0.1", "proxy_port": testbed.port}
    with pytest.raises(socks.ProxyError, match="0x05: Connection refused"):
        socks.create_connection(("127.0.0.1", free_port()), 60, **proxy)


def test_git_clones_over_http(testbed: Socks5Testbed, tmp_path: Path) -> None:
    make_bare_repository(tmp_path)
    with pages_at(handler=files_of(tmp_path)) as port:
        proxy = {"ALL_PROXY": f"socks5h://127.0.0.1:{testbed.port}", "NO_PROXY": ""}
        git("clone", "-q", f"http://localhost:{port}/repository.git", str(tmp_path / "clone"), **proxy)
    assert (tmp_path / "clone" / "file").read_text() == CONTENT


def test_grpc_speaks_both_ways(testbed: Socks5Testbed) -> None:
    script = Path(__file__).with_name("grpc_exchange.py")
    done = subprocess.run(
        [sys.executable, str(script), str(testbed.port)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "HELLO\nevery word came back\n", done.stderr


def test_the_metrics_tell_of_all_this(testbed: Socks5Testbed, pages: int) -> None:
    assert _curl(["--socks5", f"127.0.0.1:{testbed.port}", f"http://127.0.0.1:{pages}/"]).returncode == 0
    text = testbed.metrics()
    for name in (
        'umbilical_proxy_requests_total{protocol="socks5",result="ok"}',
        'umbilical_proxy_dials_total{way="tunnel",result="ok"}',
        'umbilical_proxy_dial_duration_seconds_count{way="tunnel"}',
        'umbilical_proxy_bytes_total{direction="to_client"}',
        "umbilical_proxy_tunnel_healthy 1",
    ):
        assert name in text


def test_it_waits_for_server_and_agent_and_says_what_is_missing(pki: TunnelPki, tmp_path: Path) -> None:
    """A proxy that starts first listens, answers "general failure" with the cause in its log, and works once it can."""
    pair = TunnelPair(Shape("ours", "ours", "http-connect", "tcp-mtls"), pki, tmp_path)
    port, health = free_port(), free_port()
    command = [
        *(str(PROGRAMS / "konnectivity-socks5-proxy"), "run", "--disable-resolver", f"--serving-port={port}"),
        *(f"--health-port={health}", "--konnectivity-hostname=127.0.0.1", f"--konnectivity-port={pair.ports.frontend}"),
        f"--ca-cert-path={pki.authority.certificate_file}",
        *(f"--tls-cert-path={pki.client.certificate}", f"--tls-key-path={pki.client.key}"),
    ]
    daemon = Daemon(command, tmp_path / "socks5.log")
    with ExitStack() as stack:
        stack.callback(lambda: print(daemon.log_tail(), pair.logs()))
        stack.callback(pair.stop)
        stack.callback(daemon.kill)
        pages = stack.enter_context(pages_at())
        call = ["--socks5-hostname", f"127.0.0.1:{port}", f"http://127.0.0.1:{pages}/"]
        daemon.start()
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/readyz")[0] == 503, "the proxy lives")
        assert "UMB507" in http_get(f"http://127.0.0.1:{health}/readyz")[1]
        wait_until(lambda: b"(1)" in _curl(call).stderr, "a dial without a server fails by its cause")
        pair.start_server()
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/readyz")[0] == 200, "the proxy is ready")
        assert b"(1)" in _curl(call).stderr
        assert "UMB505" in daemon.log_tail()
        pair.start_agent()
        wait_until(lambda: _curl(call).stdout == BODY, "it works")
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
