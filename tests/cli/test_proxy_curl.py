"""`umbilical proxy curl`: bodies on standard output, hops on standard error, and curl's own options."""

import io
import ssl
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.hosted import conftest as hosted_fixtures
from tests.hosted.conftest import Tunnel
from tests.support.in_process import refused_address
from tests.support.tls_listener import listener, swallows
from tests.support.tunnel_files import entrance
from tests.support.tunnel_pki import FolderAuthority
from tests.support.web_server import Handler, serving

from umbilical.cli.main import run

tunnel_pki, stage, tunnel = hosted_fixtures.tunnel_pki, hosted_fixtures.stage, hosted_fixtures.tunnel
Capture = pytest.CaptureFixture[bytes]


class Mirror(Handler):
    """Answers with what it was asked."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        lines = [f"{self.command} {self.path}", f"type {self.headers.get('Content-Type')}"]
        lines += [f"token {self.headers.get('Authorization')}", body.decode()]
        self.answer(404 if self.path == "/missing" else 200, "\n".join(lines).encode() + b"\xff", X_Told="yes")

    do_GET = do_POST = do_PUT = do_HEAD = _answer


def mirror(context: ssl.SSLContext | None = None) -> AbstractContextManager[int]:
    return serving(Mirror, context)


def curl(tunnel: Tunnel, *arguments: str) -> int:
    return run(["proxy", "curl", *entrance(tunnel.access), "--timeout", "60s", *arguments])


def test_the_body_is_all_that_is_on_standard_output(tunnel: Tunnel, capfdbinary: Capture) -> None:
    with mirror() as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/a?b=c") == 0
    out, err = capfdbinary.readouterr()
    assert out == b"GET /a?b=c\ntype None\ntoken None\n\xff"
    assert err == b""


def test_data_makes_a_post_and_a_method_wins(tunnel: Tunnel, tmp_path: Path, capfdbinary: Capture) -> None:
    body = tmp_path / "body"
    body.write_text("from a file")
    with mirror() as port:
        url = f"http://127.0.0.1:{port}/"
        assert curl(tunnel, url, "-d", "x=1") == 0
        assert curl(tunnel, url, "-X", "PUT", "-H", "Content-Type: text/plain", "-d", f"@{body}") == 0
    out = capfdbinary.readouterr().out
    assert b"POST /\ntype application/x-www-form-urlencoded\ntoken None\nx=1" in out
    assert b"PUT /\ntype text/plain\ntoken None\nfrom a file" in out


def test_a_body_from_standard_input(tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch, capfdbinary: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
    with mirror() as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-d", "@-") == 0
    assert b"typed" in capfdbinary.readouterr().out


def test_headers_from_a_file_are_sent_and_their_secrets_not_shown(
    tunnel: Tunnel, tmp_path: Path, capfdbinary: Capture
) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer sesame\n")
    with mirror() as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-H", f"@{headers}", "-v") == 0
    out, err = capfdbinary.readouterr()
    assert b"token Bearer sesame" in out
    assert b"sesame" not in err
    assert b"> Authorization: (hidden)" in err


def test_heads_are_shown_when_asked_for(tunnel: Tunnel, capfdbinary: Capture) -> None:
    with mirror() as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-I") == 0
        head = capfdbinary.readouterr().out
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-i") == 0
        both = capfdbinary.readouterr().out
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")
    assert b"X-Told: yes\r\n" in head
    assert b"\r\n\r\nGET /\n" in both


def test_a_file_takes_the_body_and_a_failure_leaves_it_as_it_was(
    tunnel: Tunnel, tmp_path: Path, capfdbinary: Capture
) -> None:
    out = tmp_path / "out"
    out.write_text("older")
    assert curl(tunnel, f"http://{refused_address()}/", "-o", str(out)) == 4
    assert out.read_text() == "older"
    with mirror() as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-o", str(out)) == 0
        assert out.read_bytes().startswith(b"GET /\n")
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-o", str(tmp_path / "no" / "out")) == 3
    captured = capfdbinary.readouterr()
    assert captured.out == b""
    assert b"UMB578" in captured.err


def test_any_answer_is_good_unless_told_otherwise(tunnel: Tunnel, capfdbinary: Capture) -> None:
    with mirror() as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/missing") == 0
        assert curl(tunnel, f"http://127.0.0.1:{port}/missing", "-f") == 1
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "-f") == 0


def test_https_with_both_certificates_and_hops_told(tunnel: Tunnel, tmp_path: Path, capfdbinary: Capture) -> None:
    authority = FolderAuthority(tmp_path, "kubelet-ca")
    context = authority.server_context(authority.serving("kubelet"))
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.client("kube-apiserver")
    files = ["--cacert", str(authority.certificate_file)]
    files += ["--client-cert", str(client.certificate), "--client-key", str(client.key)]
    with mirror(context) as port:
        assert curl(tunnel, f"https://127.0.0.1:{port}/metrics", *files, "-v") == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b"GET /metrics\n")
    lines = err.decode().splitlines()
    hops = [line.split()[1] for line in lines if line.startswith("* ") and line[2] != " "]
    assert hops == ["connect", "tls", "agent", "dial", "endpoint"]
    assert any("CN=kubelet" in line for line in lines)
    assert "> GET /metrics HTTP/1.1" in lines
    assert "< HTTP/1.0 200 OK" in lines


def test_an_endpoint_that_is_not_trusted_is_refused_unless_told_otherwise(
    tunnel: Tunnel, tmp_path: Path, capfdbinary: Capture
) -> None:
    authority = FolderAuthority(tmp_path, "kubelet-ca")
    with mirror(authority.server_context(authority.serving("kubelet"))) as port:
        url = f"https://127.0.0.1:{port}/"
        assert curl(tunnel, url) == 4
        assert b"UMB574" in capfdbinary.readouterr().err
        assert curl(tunnel, url, "-k") == 0
        named = ["--cacert", str(authority.certificate_file), "--endpoint-name", "localhost"]
        assert curl(tunnel, url, *named) == 0


def test_an_endpoint_that_answers_too_late_is_a_timeout(tunnel: Tunnel, capfdbinary: Capture) -> None:
    with listener(swallows) as port:
        assert curl(tunnel, f"http://127.0.0.1:{port}/", "--max-time", "1s") == 9
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert b"UMB576" in err


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["node:80"], 2, b"must begin with http://"),
        (["http://user:sesame@node/"], 2, b"credentials do not belong"),
        (["http://node/", "-H", "no header"], 2, b"Name: value"),
        (["http://node/", "-I", "-d", "x"], 2, b"excludes -d"),
        (["http://node/", "--kubelet"], 2, b"--kubelet goes with --namespace"),
        (["http://node/", "-d", "@/no/such/file"], 3, b"/no/such/file"),
        (["https://node/", "--client-cert", "/dev/null"], 3, b"--client-cert without --client-key"),
    ],
)
def test_bad_input_is_refused(
    tunnel: Tunnel, arguments: list[str], status: int, word: bytes, capfdbinary: Capture
) -> None:
    assert curl(tunnel, *arguments) == status
    out, err = capfdbinary.readouterr()
    assert word in err
    assert out == b""
