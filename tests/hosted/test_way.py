"""The way through a real tunnel: every hop is timed, and the one that breaks is named."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hosted.conftest import Tunnel, access_to
from tests.support.in_process import Stage, refused_address
from tests.support.tls_listener import hangs_up, listener, plain_text, says_nothing
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.hosted.access import Access
from umbilical.hosted.endpoint_tls import EndpointTls
from umbilical.hosted.errors import HostedError
from umbilical.hosted.ping import Pace, ping
from umbilical.hosted.trip import Trip
from umbilical.hosted.way import Endpoint, Way
from umbilical.tunnel.settings import TlsFiles

SECONDS = 60.0


def trips_to(access: Access, address: str, *, count: int = 1, tls: EndpointTls | None = None) -> list[Trip]:
    host, _, port = address.rpartition(":")
    trips: list[Trip] = []

    async def scenario() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await ping(Way(access, Endpoint(host, int(port), tls), SECONDS), Pace(count, 0.0), trips.append)

    asyncio.run(scenario())
    return trips


def authority_in(folder: Path, name: str = "endpoint-ca") -> FolderAuthority:
    (folder / name).mkdir()
    return FolderAuthority(folder / name, name)


def test_every_hop_is_timed_and_the_agent_is_named(tunnel: Tunnel) -> None:
    trips = trips_to(tunnel.access, tunnel.stage.endpoint().address, count=2)
    assert [trip.sequence for trip in trips] == [1, 2]
    for trip in trips:
        assert trip.is_ok
        assert [hop.name for hop in trip.hops] == ["connect", "tls", "agent", "dial"]
        assert all(hop.seconds >= 0 for hop in trip.hops)
        assert trip.agent == "agent-0"
        assert trip.server is not None
        assert trip.server.certificate is not None
        assert trip.server.certificate.common_name == "proxy-server"


def test_a_unix_socket_has_no_tls_hop(stage: Stage) -> None:
    server, _ = stage.start_pair()
    assert server.frontend.unix_path is not None
    (trip,) = trips_to(Access(UnixServer(server.frontend.unix_path), TlsFiles()), stage.endpoint().address)
    assert trip.is_ok
    assert [hop.name for hop in trip.hops] == ["connect", "agent", "dial"]
    assert trip.server is None


def test_a_server_that_is_not_there_fails_at_the_first_hop(tunnel: Tunnel) -> None:
    nobody = replace(tunnel.access, server=TcpServer("127.0.0.1", free_port()))
    (trip,) = trips_to(nobody, "127.0.0.1:1")
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code, trip.failure.reason) == ("connect", "UMB507", "server")
    assert "refused" in trip.failure.why


def test_a_server_of_another_authority_fails_at_tls_and_its_certificate_is_shown(
    tunnel: Tunnel, tmp_path: Path
) -> None:
    files = tunnel.access.tls
    other = TlsFiles(files.certificate, files.key, authority_in(tmp_path, "other").certificate_file)
    (trip,) = trips_to(replace(tunnel.access, tls=other), "127.0.0.1:1")
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code) == ("tls", "UMB508")
    assert trip.server is not None
    assert not trip.server.is_verified
    assert trip.server.certificate is not None
    assert trip.server.certificate.common_name == "proxy-server"


def test_a_server_for_another_name_fails_at_tls(tunnel: Tunnel) -> None:
    assert isinstance(tunnel.access.server, TcpServer)
    elsewhere = TcpServer("127.0.0.1", tunnel.access.server.port, "somebody-else")
    (trip,) = trips_to(replace(tunnel.access, server=elsewhere), "127.0.0.1:1")
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code) == ("tls", "UMB508")
    assert "somebody-else" in trip.failure.why


def test_a_client_without_a_certificate_fails_at_tls_though_the_refusal_comes_later(tunnel: Tunnel) -> None:
    bare = replace(tunnel.access, tls=TlsFiles(authority=tunnel.access.tls.authority))
    (trip,) = trips_to(bare, "127.0.0.1:1")
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code) == ("tls", "UMB508")


def test_a_server_without_agents_fails_at_the_dial(stage: Stage) -> None:
    server = stage.start_server(tcp=True)
    (trip,) = trips_to(access_to(stage, server.frontend.port), "127.0.0.1:1")
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code) == ("dial", "UMB505")
    assert trip.agent is None


def test_an_endpoint_that_refuses_fails_at_the_dial(tunnel: Tunnel) -> None:
    trips = trips_to(tunnel.access, refused_address(), count=2)
    for trip in trips:
        assert trip.failure is not None
        assert (trip.failure.hop, trip.failure.code) == ("dial", "UMB501")
    assert trips[0].failure == trips[1].failure


def test_the_endpoints_certificate_is_shown_unverified_when_no_authority_is_given(
    tunnel: Tunnel, tmp_path: Path
) -> None:
    authority = authority_in(tmp_path)
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        (trip,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(TlsFiles(), is_verified=False))
    assert trip.is_ok
    assert [hop.name for hop in trip.hops][-1] == "endpoint tls"
    assert trip.endpoint is not None
    assert not trip.endpoint.is_verified
    assert trip.endpoint.certificate is not None
    assert trip.endpoint.certificate.common_name == "webhook"
    assert trip.server is not None
    assert trip.server.certificate is not None
    assert trip.server.certificate.common_name == "proxy-server"


def test_the_endpoint_is_verified_by_the_given_authority_and_shown_a_certificate(
    tunnel: Tunnel, tmp_path: Path
) -> None:
    authority = authority_in(tmp_path)
    context = authority.server_context(authority.serving("webhook", ["127.0.0.1", "webhook.svc"]))
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.client("caller")
    files = TlsFiles(client.certificate, client.key, authority.certificate_file)
    with listener(says_nothing(context)) as port:
        for name in ("", "webhook.svc"):
            (trip,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(files, name))
            assert trip.is_ok
            assert trip.endpoint is not None
            assert trip.endpoint.is_verified


def test_an_endpoint_of_another_authority_fails_there_and_its_certificate_is_told(
    tunnel: Tunnel, tmp_path: Path
) -> None:
    authority = authority_in(tmp_path)
    stranger = authority_in(tmp_path, "stranger")
    files = TlsFiles(authority=stranger.certificate_file)
    with listener(says_nothing(authority.server_context(authority.serving("webhook")))) as port:
        (trip,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(files))
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code) == ("endpoint tls", "UMB574")
    assert "CN=webhook" in trip.failure.why
    assert "signed by endpoint-ca" in trip.failure.why
    assert "this certificate" in trip.failure.remedy
    assert trip.endpoint is not None
    assert not trip.endpoint.is_verified


def test_an_endpoint_that_speaks_no_tls_fails_there(tunnel: Tunnel) -> None:
    with listener(plain_text) as port:
        (trip,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(TlsFiles(), is_verified=False))
    assert trip.failure is not None
    assert (trip.failure.hop, trip.failure.code) == ("endpoint tls", "UMB574")
    assert "speak TLS" in trip.failure.remedy
    assert trip.hop("dial") is not None


def test_an_endpoint_that_closes_in_the_handshake_fails_there(tunnel: Tunnel) -> None:
    with listener(lambda client: client.close()) as port:
        (trip,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(TlsFiles(), is_verified=False))
    assert trip.failure is not None
    assert trip.failure.hop == "endpoint tls"


def test_an_endpoint_that_hangs_up_behind_the_handshake_was_reached(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = authority_in(tmp_path)
    with listener(hangs_up(authority.server_context(authority.serving("webhook")))) as port:
        (trip,) = trips_to(tunnel.access, f"127.0.0.1:{port}", tls=EndpointTls(TlsFiles(), is_verified=False))
    assert trip.is_ok


def test_files_for_the_endpoint_that_cannot_be_used_are_told_before_anything_is_dialled(
    tunnel: Tunnel, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.crt"
    broken.write_text("no certificate")
    with pytest.raises(HostedError, match="UMB577"):
        Way(tunnel.access, Endpoint("127.0.0.1", 1, EndpointTls(TlsFiles(authority=broken))), SECONDS)


def test_a_grpc_server_is_pinged_too(stage: Stage) -> None:
    server, _ = stage.start_pair("grpc", tcp=True)
    access = replace(access_to(stage, server.frontend.port), protocol=Protocol.GRPC)
    (trip,) = trips_to(access, stage.endpoint().address)
    assert trip.is_ok, trip.failure
    assert trip.server is not None


def test_an_ipv6_endpoint_is_reached_and_written_in_brackets(tunnel: Tunnel) -> None:
    with listener(plain_text, "::1") as port:
        (trip,) = trips_to(tunnel.access, f"::1:{port}")
    assert trip.is_ok, trip.failure
    assert str(Endpoint("::1", port)) == f"[::1]:{port}"
