"""`umbilical ping` as a program, through our server and upstream's: every hop broken once, for real."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.hosted.test_port_forward import FORWARDER
from tests.interop.conftest import StartPair
from tests.interop.namespace import BLACKHOLE
from tests.support.control_plane import PROGRAMS, control_plane
from tests.support.in_process import echo, listening
from tests.support.no_route import no_route
from tests.support.tls_listener import listener, says_nothing
from tests.support.tunnel_pair import Shape, TunnelPair, free_port
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki, make_tunnel_pki

from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile

IMPLEMENTATIONS: Final = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"))]
PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 120.0


def ping(*arguments: object) -> tuple[int, dict[str, Any], str]:
    """Run it; return status, report and standard error."""
    command = [PROGRAM, "ping", "-o", "json", "-i", "0", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def entrance(pair: TunnelPair, **files: object) -> list[object]:
    pki = pair.pki
    given = {"ca": pki.authority.certificate_file, "cert": pki.client.certificate, "key": pki.client.key, **files}
    options = [word for name, path in given.items() for word in (f"--{name}", path)]
    return ["--server", f"127.0.0.1:{pair.ports.frontend}", *options]


def failure(*arguments: object) -> tuple[str, str]:
    """Ping once; return hop and code of what failed, which is said in three lines too."""
    status, report, told = ping("-c", 1, *arguments)
    assert status == 4
    found = report["pings"][0]["failure"]
    assert told.startswith(f"{found['code']} ")
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["why:", "next:"]
    assert found["next"]
    return found["hop"], found["code"]


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def pair(
    request: pytest.FixtureRequest, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TunnelPair]:
    shape = Shape(request.param, request.param, "http-connect", "tcp-mtls")
    pair = TunnelPair(shape, pki, tmp_path_factory.mktemp("pair"))
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        print(pair.logs())


def test_every_hop_is_timed_and_only_our_server_tells_the_agent(pair: TunnelPair) -> None:
    with listening() as endpoint:
        endpoint.serve(echo)
        status, report, told = ping("-c", 3, *entrance(pair), endpoint.address)
    assert (status, told) == (0, "")
    is_ours = pair.shape.server == "ours"
    names = ["connect", "tls", "agent", "dial"] if is_ours else ["connect", "tls", "dial"]
    for one in report["pings"]:
        assert [hop["name"] for hop in one["hops"]] == names
        assert one["agent"] == ("a1" if is_ours else None)
    assert report["summary"]["ok"] == 3
    assert report["serverTls"]["certificate"]["commonName"] == "proxy-server"
    assert report["serverTls"]["verified"] is True


def test_the_endpoints_certificate_is_shown(pair: TunnelPair, tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path, "webhook-ca")
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        verified = ["--tls", "--endpoint-ca", authority.certificate_file]
        status, report, _ = ping("-c", 1, *entrance(pair), *verified, f"127.0.0.1:{port}")
        assert (status, report["endpointTls"]["verified"]) == (0, True)
        status, report, _ = ping("-c", 1, *entrance(pair), "--tls", f"127.0.0.1:{port}")
    assert (status, report["endpointTls"]["verified"]) == (0, False)
    assert report["endpointTls"]["certificate"]["commonName"] == "webhook"


def test_a_name_is_resolved_by_the_agent(pair: TunnelPair) -> None:
    with listening() as endpoint:
        status, report, _ = ping("-c", 1, *entrance(pair), f"localhost:{endpoint.address.rpartition(':')[2]}")
    assert (status, report["endpoint"].partition(":")[0]) == (0, "localhost")


def test_an_endpoint_that_refuses(pair: TunnelPair) -> None:
    assert failure(*entrance(pair), f"127.0.0.1:{free_port()}") == ("dial", "UMB501")


def test_an_endpoint_without_a_route(pair: TunnelPair) -> None:
    with no_route() as address:
        assert failure(*entrance(pair), f"{address}:443") == ("dial", "UMB502")


def test_a_name_that_does_not_exist(pair: TunnelPair) -> None:
    assert failure(*entrance(pair), "no-such-service.example:443") == ("dial", "UMB504")


def test_an_endpoint_that_does_not_answer(pair: TunnelPair) -> None:
    # The agent gives up after its own five seconds, and says so.
    assert failure(*entrance(pair), "--timeout", "60s", f"{BLACKHOLE}:443") == ("dial", "UMB503")


def answers_plainly(client: socket.socket) -> None:
    """Wait first: upstream's server lets words that come early overtake its own reply."""
    client.recv(4096)
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_an_endpoint_whose_tls_is_broken(pair: TunnelPair, tmp_path: Path) -> None:
    with listener(answers_plainly) as port:
        assert failure(*entrance(pair), "--tls", f"127.0.0.1:{port}") == ("endpoint tls", "UMB574")
    authority, other = FolderAuthority(tmp_path, "webhook-ca"), FolderAuthority(tmp_path, "other-ca")
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        wrong = ["--tls", "--endpoint-ca", other.certificate_file]
        assert failure(*entrance(pair), *wrong, f"127.0.0.1:{port}") == ("endpoint tls", "UMB574")


def test_a_server_of_another_ca(pair: TunnelPair, tmp_path: Path) -> None:
    stranger = FolderAuthority(tmp_path, "stranger")
    assert failure(*entrance(pair, ca=stranger.certificate_file), "127.0.0.1:1") == ("tls", "UMB508")


def test_a_client_of_another_ca(pair: TunnelPair, tmp_path: Path) -> None:
    stranger = FolderAuthority(tmp_path, "stranger").client("stranger")
    given = entrance(pair, cert=stranger.certificate, key=stranger.key)
    assert failure(*given, "127.0.0.1:1") == ("tls", "UMB508")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_server_without_agents_and_one_that_is_gone(start_pair: StartPair, implementation: str) -> None:
    pair = start_pair(Shape(implementation, implementation, "http-connect", "tcp-mtls"), agents=False)
    assert failure(*entrance(pair), "127.0.0.1:1") == ("dial", "UMB505")
    pair.server.kill()
    assert failure(*entrance(pair), "127.0.0.1:1") == ("connect", "UMB507")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_server_whose_certificate_has_expired_shows_its_dates(tmp_path: Path, implementation: str) -> None:
    pki = expired_pki(tmp_path)
    pair = TunnelPair(Shape(implementation, implementation, "http-connect", "tcp-mtls"), pki, tmp_path)
    pair.server.start()
    try:
        pair._wait_for(pair.server, pair.ports.server_health, "/healthz")
        status, report, told = ping("-c", 1, *entrance(pair), "127.0.0.1:1")
    finally:
        pair.stop()
    assert status == 4
    assert (report["pings"][0]["failure"]["hop"], report["pings"][0]["failure"]["code"]) == ("tls", "UMB508")
    assert "expired" in told
    assert report["serverTls"]["verified"] is False
    assert report["serverTls"]["certificate"]["secondsLeft"] < 0


def expired_pki(folder: Path) -> TunnelPki:
    """A server's certificate that ended yesterday; the others are good."""
    good = FolderAuthority(folder)
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = Authority.create("old", now - 10 * day, 20 * day, KeyType.ECDSA_P256)
    good.certificate_file.write_bytes(authority.certificate_pem)

    def issue(name: str, profile: Any, begin: datetime) -> Pair:
        issued = authority.issue(profile, begin, day)
        pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        pair.certificate.write_bytes(issued.certificate)
        pair.key.write_bytes(issued.key)
        return pair

    server = server_profile("proxy-server", ("127.0.0.1", "localhost"), KeyType.ECDSA_P256)
    client = client_profile("proxy-client", (), KeyType.ECDSA_P256)
    agent = client_profile("proxy-agent", (), KeyType.ECDSA_P256)
    return TunnelPki(
        good, issue("server", server, now - 2 * day), issue("agent", agent, now), issue("client", client, now)
    )


@pytest.mark.real(*PROGRAMS)
def test_a_namespace_has_all_that_is_needed_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    """The documented script: Secret, ConfigMap and a port that is forwarded to the Service."""
    for name in ("pki", "pair", "plane", "tmp", "bin"):
        (tmp_path / name).mkdir()
    pki = make_tunnel_pki(tmp_path / "pki", ("127.0.0.1", "konnectivity-server-local"))
    shape = Shape("ours", "ours", "http-connect", "tcp-mtls")
    pair = TunnelPair(shape, pki, tmp_path / "pair", server_flags=["--server-port=8090"])
    pair.ports.frontend = 8090
    forwarder = tmp_path / "bin" / "kubectl"
    forwarder.write_text(FORWARDER.format(python=sys.executable, told=str(tmp_path / "told")))
    forwarder.chmod(0o755)
    with control_plane(tmp_path / "plane") as plane, listening() as endpoint:
        plane.kubectl("create", "namespace", "clusters-a")
        client = [f"--from-file=tls.crt={pki.client.certificate}", f"--from-file=tls.key={pki.client.key}"]
        plane.kubectl("-n", "clusters-a", "create", "secret", "generic", "konnectivity-client", *client)
        bundle = f"--from-file=ca.crt={pki.authority.certificate_file}"
        plane.kubectl("-n", "clusters-a", "create", "configmap", "konnectivity-ca-bundle", bundle)
        try:
            pair.start()
            command = ["env", f"PATH={forwarder.parent}:/usr/bin:/bin", f"TMPDIR={tmp_path / 'tmp'}", PROGRAM, "ping"]
            command += ["-n", "clusters-a", "--kubeconfig", str(plane.kubeconfig), "-c", "1", endpoint.address]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        finally:
            pair.stop()
    assert (done.returncode, done.stderr) == (0, "")
    assert "(konnectivity-server-local)" in done.stdout
    assert "ok, agent a1" in done.stdout
    assert "svc/konnectivity-server-local :8090" in (tmp_path / "told").read_text()
    assert list((tmp_path / "tmp").iterdir()) == []
