"""Real HTTP clients through our proxy, a server and an agent: ours, and upstream's.

curl, requests, git, openssl and a WebSocket client; and tinyproxy behind the tunnel, as the proxy of the user.
"""

import base64
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import requests
from tests.interop.git_repository import CONTENT, git, make_bare_repository
from tests.interop.https_testbed import BODY, ELSEWHERE, HttpsTestbed, Tinyproxy, curl, files_of, pages_at
from tests.interop.namespace import BLACKHOLE
from tests.interop.websocket_peers import WebSocket, websocket_server
from tests.support import kernel_routes
from tests.support.no_route import ADDRESS, no_route
from tests.support.tunnel_pair import Shape, TunnelPair, free_port, wait_until
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

SHAPES: Final = [
    pytest.param(Shape("ours", "ours", "http-connect", "tcp-mtls"), id="ours"),
    pytest.param(
        Shape("upstream", "upstream", "http-connect", "tcp-mtls"),
        id="upstream",
        marks=pytest.mark.real("proxy-server", "proxy-agent"),
    ),
]
pytestmark = pytest.mark.real("curl")


@pytest.fixture(name="testbed", scope="module", params=SHAPES)
def running_testbed(
    request: pytest.FixtureRequest, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory, network: None
) -> Iterator[HttpsTestbed]:
    with ExitStack() as stack:
        pair = TunnelPair(request.param, pki, tmp_path_factory.mktemp("https"))
        stack.callback(lambda: print(pair.logs()))
        stack.callback(pair.stop)
        pair.start()
        yield HttpsTestbed(pair, stack)


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """An address that is not loopback, and one that this namespace has no way to."""
    kernel_routes.add_to_loopback(ELSEWHERE)
    with no_route():
        yield
    kernel_routes.remove_from_loopback(ELSEWHERE)


@pytest.fixture
def pages() -> Iterator[int]:
    with pages_at() as port:
        yield port


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    """Give the endpoints' own authority: it has nothing to do with the tunnel's."""
    return FolderAuthority(tmp_path, "endpoint-ca")


@pytest.fixture
def secure_pages(authority: FolderAuthority) -> Iterator[int]:
    with pages_at(tls=authority.server_context(authority.serving("pages"))) as port:
        yield port


def test_curl_gets_a_page_by_a_plain_request(testbed: HttpsTestbed, pages: int) -> None:
    done = curl(["-x", testbed.url, "-i", f"http://127.0.0.1:{pages}/"])
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert (done.returncode, body == BODY) == (0, True), done.stderr
    assert b"Via: 1.1 umbilical" in head
    assert b"X-Got-Via: 1.1 umbilical" in head


def test_curl_gets_a_page_by_connect(testbed: HttpsTestbed, pages: int) -> None:
    done = curl(["-x", testbed.url, "-p", "-i", f"http://127.0.0.1:{pages}/"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b"X-Got-Via" not in done.stdout
    assert done.stdout.endswith(BODY)


def test_curl_reaches_https_by_connect_and_sees_the_endpoints_own_certificate(
    testbed: HttpsTestbed, authority: FolderAuthority, secure_pages: int
) -> None:
    trust = ["--cacert", str(authority.certificate_file)]
    done = curl(["-x", testbed.url, *trust, f"https://localhost:{secure_pages}/"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr


@pytest.mark.parametrize("more", [(), ("-p",)], ids=["plain", "connect"])
def test_curl_speaks_tls_with_the_proxy_itself(testbed: HttpsTestbed, pages: int, more: tuple[str, ...]) -> None:
    trust = ["--proxy-cacert", str(testbed.pair.pki.authority.certificate_file)]
    done = curl(["-x", f"https://127.0.0.1:{testbed.tls_port}", *trust, *more, f"http://127.0.0.1:{pages}/"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr


def test_curl_speaks_tls_with_the_proxy_and_through_it(
    testbed: HttpsTestbed, authority: FolderAuthority, secure_pages: int
) -> None:
    trust = ["--proxy-cacert", str(testbed.pair.pki.authority.certificate_file)]
    trust += ["--cacert", str(authority.certificate_file)]
    done = curl(["-x", f"https://127.0.0.1:{testbed.tls_port}", *trust, f"https://localhost:{secure_pages}/"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr


@pytest.mark.parametrize("more", [(), ("-p",)], ids=["plain", "connect"])
def test_curl_reaches_an_ipv6_address(testbed: HttpsTestbed, more: tuple[str, ...]) -> None:
    with pages_at("::1") as port:
        done = curl(["-g", "-x", testbed.url, *more, f"http://[::1]:{port}/"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr


def test_curl_waits_for_100_and_sends_much(testbed: HttpsTestbed, pages: int, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(b"sent " * 600_000)
    data = ["--data-binary", f"@{upload}", "-H", "Expect: 100-continue", "--expect100-timeout", "50", "-v"]
    done = curl(["-x", testbed.url, *data, "-D", str(tmp_path / "head"), f"http://127.0.0.1:{pages}/"])
    assert (done.returncode, done.stdout == upload.read_bytes().upper()) == (0, True), done.stderr[-2000:]
    assert b"HTTP/1.1 100 Continue" in done.stderr
    assert "X-Got-Expect: 100-continue" in (tmp_path / "head").read_text()


def test_curl_sends_chunks(testbed: HttpsTestbed, pages: int, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(b"sent " * 100_000)
    chunked = ["-X", "POST", "-H", "Transfer-Encoding: chunked", "--data-binary", f"@{upload}"]
    done = curl(["-x", testbed.url, "-D", str(tmp_path / "head"), *chunked, f"http://127.0.0.1:{pages}/"])
    assert (done.returncode, done.stdout == upload.read_bytes().upper()) == (0, True), done.stderr
    assert "X-Got-Transfer-Encoding: chunked" in (tmp_path / "head").read_text()


def test_curl_gets_chunks_with_trailers(testbed: HttpsTestbed, pages: int, tmp_path: Path) -> None:
    done = curl(["-x", testbed.url, "-D", str(tmp_path / "head"), f"http://127.0.0.1:{pages}/chunked"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr
    assert f"X-Length: {len(BODY)}" in (tmp_path / "head").read_text()


def test_curl_keeps_its_connection_to_the_proxy(testbed: HttpsTestbed, pages: int) -> None:
    url = f"http://127.0.0.1:{pages}/"
    done = curl(["-x", testbed.url, "-o", "/dev/null", "-w", "%{num_connects}\n", url, "-o", "/dev/null", url])
    assert done.stdout == b"1\n0\n", done.stderr


@pytest.mark.parametrize(
    ("host", "status", "code"),
    [
        ("127.0.0.1", 502, "UMB501"),
        (ADDRESS, 502, "UMB502"),
        (BLACKHOLE, 504, "UMB503"),
        ("no-such-name.invalid", 502, "UMB504"),
    ],
)
def test_curl_hears_the_cause_of_a_failed_dial(testbed: HttpsTestbed, host: str, status: int, code: str) -> None:
    url = f"http://{host}:{free_port()}/"
    plain = curl(["-x", testbed.url, "-w", "%{http_code}", url])
    assert plain.stdout.decode().endswith(f"{status}")
    assert plain.stdout.decode().startswith(f"{code} no connection to {host}:")
    if host == BLACKHOLE:
        return  # the same again would take the agent's patience again
    tunnelled = curl(["-x", testbed.url, "-p", "-w", "%{http_connect}", url])
    assert (tunnelled.returncode, tunnelled.stdout) == (56, b"%d" % status), tunnelled.stderr


def test_requests_keep_their_connection_and_stream_their_bodies(testbed: HttpsTestbed, pages: int) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": testbed.url}
        for _ in range(3):
            assert session.get(f"http://localhost:{pages}/", timeout=60).content == BODY
        pieces = iter([b"one ", b"two ", b"three"])
        assert session.post(f"http://127.0.0.1:{pages}/", data=pieces, timeout=60).content == b"ONE TWO THREE"


def test_requests_reach_https(testbed: HttpsTestbed, authority: FolderAuthority, secure_pages: int) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"https": testbed.url}
        session.verify = str(authority.certificate_file)
        assert session.get(f"https://localhost:{secure_pages}/", timeout=60).content == BODY
        with pytest.raises(requests.exceptions.ProxyError, match="502"):
            session.get(f"https://localhost:{free_port()}/", timeout=60)


def test_git_clones_over_http(testbed: HttpsTestbed, tmp_path: Path) -> None:
    make_bare_repository(tmp_path)
    with pages_at(handler=files_of(tmp_path)) as port:
        url, clone = f"http://localhost:{port}/repository.git", tmp_path / "clone"
        git("clone", "-q", url, str(clone), http_proxy=testbed.url, NO_PROXY="")
    assert (clone / "file").read_text() == CONTENT


@pytest.mark.real("openssl")
def test_openssl_shakes_hands_through_the_proxy(
    testbed: HttpsTestbed, authority: FolderAuthority, secure_pages: int
) -> None:
    command = ["openssl", "s_client", "-proxy", f"127.0.0.1:{testbed.port}", "-connect", f"127.0.0.1:{secure_pages}"]
    command += ["-CAfile", str(authority.certificate_file), "-verify_return_error", "-quiet"]
    asked = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    done = subprocess.run(command, input=asked, capture_output=True, timeout=60, check=False)
    assert done.stdout.endswith(BODY), done.stderr


@pytest.mark.parametrize("way", ["plain", "connect"])
def test_a_websocket_speaks_both_ways(testbed: HttpsTestbed, way: str) -> None:
    with websocket_server() as port, socket.create_connection(("127.0.0.1", testbed.port), 60) as sock:
        url = f"ws://127.0.0.1:{port}/chat"
        target = f"http://127.0.0.1:{port}/chat"
        if way == "connect":
            sock.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: a\r\n\r\n" % port)
            assert sock.recv(65536) == b"HTTP/1.1 200 Connection established\r\n\r\n"
            target = "/chat"
        client = WebSocket(sock, url, target)
        assert [client.say(word) for word in ("hello", "ü" * 10_000, "bye")] == ["hello", "ü" * 10_000, "bye"]
        client.close()


def test_the_metrics_tell_of_all_this(testbed: HttpsTestbed, pages: int) -> None:
    assert curl(["-x", testbed.url, f"http://127.0.0.1:{pages}/"]).returncode == 0
    assert curl(["-x", testbed.url, "-p", f"http://127.0.0.1:{pages}/"]).returncode == 0
    text = testbed.metrics()
    for name in (
        'umbilical_proxy_requests_total{protocol="http",result="ok"}',
        'umbilical_proxy_requests_total{protocol="connect",result="ok"}',
        'umbilical_proxy_dials_total{way="tunnel",result="ok"}',
        'umbilical_proxy_bytes_total{direction="to_client"}',
        "umbilical_proxy_tunnel_healthy 1",
    ):
        assert name in text


@pytest.fixture(scope="module")
def tinyproxy(tmp_path_factory: pytest.TempPathFactory, network: None) -> Iterator[Tinyproxy]:
    proxy = Tinyproxy(tmp_path_factory.mktemp("tinyproxy"))
    proxy.start()
    yield proxy
    print(proxy.daemon.log_tail(), proxy.log())
    proxy.daemon.kill()


@pytest.fixture(scope="module")
def behind(testbed: HttpsTestbed, tinyproxy: Tinyproxy) -> str:
    """Give the URL of one of our proxies that has tinyproxy behind the tunnel, and knows its password."""
    login = testbed.pair.folder / "login"
    login.touch(0o600)
    login.write_text(f"{tinyproxy.USER}:{tinyproxy.PASSWORD}\n")
    return f"http://127.0.0.1:{_start_behind(testbed, tinyproxy, login, 'user')}"


def _start_behind(testbed: HttpsTestbed, tinyproxy: Tinyproxy, login: Path, name: str) -> int:
    url = f"http://127.0.0.1:{tinyproxy.port}"
    options = ("--http-proxy", url, "--https-proxy", url, "--proxy-credentials-file", str(login))
    return testbed.start(name, *options, "--no-proxy", "192.0.2.128/25")[0]


@pytest.mark.real("tinyproxy")
def test_a_plain_request_goes_through_the_users_proxy_with_its_password(
    behind: str, tinyproxy: Tinyproxy, authority: FolderAuthority
) -> None:
    with pages_at(ELSEWHERE) as port:
        done = curl(["-x", behind, "-i", f"http://{ELSEWHERE}:{port}/"])
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    assert (done.returncode, body == BODY) == (0, True), done.stderr
    assert b"(tinyproxy/" in head
    assert b"X-Got-Proxy-Authorization" not in head
    wait_until(lambda: f"GET http://{ELSEWHERE}:{port}/" in tinyproxy.log(), "tinyproxy has seen the request")


@pytest.mark.real("tinyproxy")
def test_a_connect_goes_through_the_users_proxy_with_its_password(
    behind: str, tinyproxy: Tinyproxy, authority: FolderAuthority
) -> None:
    serving = authority.serving("elsewhere", (ELSEWHERE,))
    with pages_at(ELSEWHERE, authority.server_context(serving)) as port:
        done = curl(["-x", behind, "--cacert", str(authority.certificate_file), f"https://{ELSEWHERE}:{port}/"])
    assert (done.returncode, done.stdout == BODY) == (0, True), done.stderr
    wait_until(lambda: f"CONNECT {ELSEWHERE}:{port}" in tinyproxy.log(), "tinyproxy has seen the request")


@pytest.mark.real("tinyproxy")
def test_loopback_and_no_proxy_go_past_the_users_proxy(behind: str, tinyproxy: Tinyproxy, pages: int) -> None:
    assert curl(["-x", behind, f"http://127.0.0.1:{pages}/"]).stdout == BODY
    assert curl(["-x", behind, "-p", f"http://127.0.0.1:{pages}/"]).stdout == BODY
    past = curl(["-x", behind, "--max-time", "20", "-w", "%{http_code}", f"http://192.0.2.200:{pages}/"])
    assert past.stdout.decode().startswith("UMB50"), past.stdout  # the agent was asked, and not tinyproxy
    assert f":{pages}" not in tinyproxy.log()


@pytest.mark.real("tinyproxy")
def test_a_users_proxy_that_wants_a_password_is_told_and_not_asked_of_the_client(
    testbed: HttpsTestbed, tinyproxy: Tinyproxy
) -> None:
    url = f"http://127.0.0.1:{tinyproxy.port}"
    port, _ = testbed.start("without", "--http-proxy", url, "--https-proxy", url)
    plain = curl(["-x", f"http://127.0.0.1:{port}", "-i", f"http://{ELSEWHERE}:1/"])
    assert plain.stdout.startswith(b"HTTP/1.1 502 "), plain.stdout
    assert b"UMB510" in plain.stdout
    assert b"407" in plain.stdout
    tunnelled = curl(["-x", f"http://127.0.0.1:{port}", "-p", "-v", f"http://{ELSEWHERE}:1/"])
    testbed.daemons["without"].kill()
    assert (tunnelled.returncode, b"response 502" in tunnelled.stderr) == (56, True), tunnelled.stderr
    assert b"Proxy-Authenticate" not in plain.stdout + tunnelled.stderr


@pytest.mark.real("tinyproxy")
def test_a_wrong_password_lets_nothing_through_and_shows_up_nowhere(
    testbed: HttpsTestbed, tinyproxy: Tinyproxy
) -> None:
    """Tinyproxy answers 401 to it, as if it were the endpoint; that is passed on."""
    login = testbed.pair.folder / "wrong"
    login.touch(0o600)
    login.write_text(f"{tinyproxy.USER}:wr0ng\n")
    port = _start_behind(testbed, tinyproxy, login, "wrong")
    plain = curl(["-x", f"http://127.0.0.1:{port}", "-i", f"http://{ELSEWHERE}:1/"])
    assert plain.stdout.startswith(b"HTTP/1.1 401 "), plain.stdout
    tunnelled = curl(["-x", f"http://127.0.0.1:{port}", "-p", "-v", f"http://{ELSEWHERE}:1/"])
    testbed.daemons["wrong"].kill()
    assert tunnelled.returncode == 56
    told = plain.stdout + tunnelled.stderr + (testbed.pair.folder / "https-wrong.log").read_bytes()
    for secret in (b"wr0ng", base64.b64encode(b"ann:wr0ng")):
        assert secret not in told


@pytest.mark.real("tinyproxy")
def test_what_the_users_proxy_cannot_reach_is_its_answer(behind: str) -> None:
    done = curl(["-x", behind, "-w", "%{http_code}", f"http://{ELSEWHERE}:{free_port()}/"])
    assert done.stdout.endswith(b"500"), done.stdout  # tinyproxy's own, passed on as it is
