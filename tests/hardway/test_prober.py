"""Probes of a real TLS server on loopback: failures are counted with their reason."""

import gc
import socket
import ssl

import pytest
from tests.support.labs import wait_until
from tests.support.tls_listener import Deed, hangs_up, listener, says_nothing
from tests.support.tunnel_pki import FolderAuthority

from umbilical.cluster.client import ApiClient
from umbilical.hardway import prober as subject
from umbilical.hardway.prober import FailedProbe, Prober, ProbeTally, ProbeTarget


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "PERIOD_SECONDS", 0.01)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> FolderAuthority:
    return FolderAuthority(tmp_path_factory.mktemp("prober"))


@pytest.fixture(scope="module")
def context(authority: FolderAuthority) -> ssl.SSLContext:
    return authority.server_context(authority.serving("api", ("api.example.com",)))


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def target(authority: FolderAuthority, port: int, name: str = "api.example.com") -> ProbeTarget:
    return ProbeTarget("127.0.0.1", port, name, authority.certificate_file.read_text())


def says(context: ssl.SSLContext, answer: bytes) -> Deed:
    def deed(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(answer)

    return deed


def tally_of(target: ProbeTarget, enough: int = 5) -> ProbeTally:
    with Prober(target) as prober:
        wait_until(lambda: prober.tally.probes >= enough)
    return prober.tally


def test_each_probe_has_its_own_connection_and_all_succeed(authority: FolderAuthority, context: ssl.SSLContext) -> None:
    with listener(says(context, OK)) as port:
        tally = tally_of(target(authority, port))
    assert tally.probes >= 5
    assert (tally.failures, tally.misses) == (0, [])
    assert tally.longest_seconds > 0
    assert str(tally).endswith(f"0 failed, the slowest took {tally.longest_seconds:.2f} s")


@pytest.mark.parametrize(
    ("answer", "name", "reason"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n[-]etcd failed", "api", "HTTP/1.1 500 Internal Server Error"),
        (OK, "other", "not valid for 'other.example.com'"),
        (None, "api", ""),
    ],
    ids=["another status", "another name", "no answer"],
)
def test_anything_else_is_a_failure_with_its_reason(
    authority: FolderAuthority, context: ssl.SSLContext, answer: bytes | None, name: str, reason: str
) -> None:
    with listener(hangs_up(context) if answer is None else says(context, answer)) as port:
        tally = tally_of(target(authority, port, f"{name}.example.com"))
    assert tally.failures == tally.probes > 0
    assert all(reason in miss.reason for miss in tally.misses)


def test_nobody_there_is_a_failure_and_of_many_the_first_are_kept(
    authority: FolderAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "MAX_KEPT", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tally = tally_of(target(authority, port), 6)
    assert tally.failures == tally.probes >= 6
    first, second = tally.misses
    assert isinstance(first, FailedProbe)
    assert "ConnectionRefusedError" in first.reason
    assert 0 <= first.after_seconds <= second.after_seconds


def test_an_answer_that_never_comes_is_a_failure(
    authority: FolderAuthority, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PROBE_SECONDS", 0.2)
    with listener(says_nothing(context)) as port:
        tally = tally_of(target(authority, port))
    assert tally.failures == tally.probes
    assert {miss.reason for miss in tally.misses} == {"TimeoutError"}
    assert tally.longest_seconds >= 0.2
    # A socket that was left open is complained of here, and not in some later test.
    gc.collect()


def test_probes_that_pile_up_are_bounded_and_the_others_count_as_failed(
    authority: FolderAuthority, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(subject, "MAX_OPEN", 3)
    with listener(says_nothing(context)) as port, Prober(target(authority, port)) as prober:
        wait_until(lambda: prober.tally.failures > 0)
        assert prober.tally.misses[0].reason == "3 probes are still waiting for an answer"
    gc.collect()


def test_a_prober_that_dies_is_no_success(authority: FolderAuthority, context: ssl.SSLContext) -> None:
    def make_client() -> ApiClient:
        raise RuntimeError("no kubeconfig")

    with listener(says(context, OK)) as port, Prober(target(authority, port), make_client) as prober:
        wait_until(lambda: prober.tally.failures > 0)
    assert prober.tally.misses[-1].reason == "the probes ended early: no kubeconfig"


def test_stopping_twice_is_fine(authority: FolderAuthority, context: ssl.SSLContext) -> None:
    with listener(says(context, OK)) as port:
        with Prober(target(authority, port)) as prober:
            wait_until(lambda: prober.tally.probes > 0)
            prober.stop()
        assert prober.tally.failures == 0
