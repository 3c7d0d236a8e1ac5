"""The way into the tunnel as options say it."""

from pathlib import Path
from typing import Any

import click
import pytest
from tests.cli.native import options_of

from umbilical.cli.ping_access import access_options, access_request
from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.hosted.access import AccessRequest
from umbilical.tunnel.settings import TlsFiles


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


def test_a_unix_socket_and_grpc() -> None:
    request = read("--server", "unix:/run/k.sock", "--protocol", "grpc")
    assert (request.server, request.protocol) == (UnixServer(Path("/run/k.sock")), Protocol.GRPC)


def test_a_namespace() -> None:
    options = options_of(probe, ["-n", "clusters-a", "--kubeconfig", "k"])
    request = access_request(options, needs_kubelet=True)
    assert (request.namespace, request.kubeconfig, request.server) == ("clusters-a", Path("k"), None)
    assert request.needs_kubelet


def test_the_environments_kubeconfig_counts_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "one:two")
    assert read("-n", "clusters-a").kubeconfig == Path("one")
    assert read("-n", "clusters-a", "--kubeconfig", "k").kubeconfig == Path("k")
    assert read("--server", "unix:/run/k.sock").kubeconfig is None


@pytest.mark.parametrize("arguments", [["--kubeconfig", "k"], ["-n", "a"]])
def test_halves_are_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(click.UsageError):
        read(*arguments)


def test_a_pod_needs_no_kubeconfig() -> None:
    assert read("-n", "a", "--server", "konnectivity-server-local:8090").kubeconfig is None
