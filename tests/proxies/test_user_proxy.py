"""Which requests use the user's proxy, and how it is reached; includes HyperShift's test cases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.proxies.proxy_testbed import Loopback
from tests.support.http_testbed import Origin, answering, origin
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.proxies.direct import CLOUD_SUFFIXES, DirectHosts
from umbilical.proxies.http_head import RequestTarget
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.proxy_connect import ProxyTls, ProxyUrl
from umbilical.proxies.proxy_rules import ProxyRules
from umbilical.proxies.user_proxy import UpstreamRoute, UserProxy

HTTP, HTTPS = ProxyUrl("http", "p1", 3128), ProxyUrl("http", "p2", 3128, "user", "p@ss:%41")


def router(
    opener: Loopback,
    http: ProxyUrl | None = HTTP,
    https: ProxyUrl | None = HTTPS,
    no_proxy: str = "",
    *,
    clouds: bool = False,
    tls: ProxyTls | None = None,
    metrics: ProxyMetrics | None = None,
) -> UserProxy:
    rules = ProxyRules(http, https, no_proxy)
    direct = DirectHosts(CLOUD_SUFFIXES if clouds else (), ())
    return UserProxy(lambda: rules, direct, opener, tls or ProxyTls(), metrics or ProxyMetrics())


# HyperShift's test table: host, NO_PROXY, cloud APIs are direct, has a proxy -> uses it or not.
ROUTES = {
    "an ordinary host": ("example.com", "", False, True, True),
    "no proxy configured": ("example.com", "", False, False, False),
    "a match of NO_PROXY": ("a.example.com", "example.com", False, True, False),
    "a suffix of NO_PROXY": ("a.svc", ".svc", False, True, False),
    "a network of NO_PROXY": ("10.1.2.3", "10.0.0.0/8", False, True, False),
    "another port than NO_PROXY's": ("a.example", "a.example:8443", False, True, True),
    "a cloud's API": ("ec2.us-east-1.amazonaws.com", "", True, True, False),
    "a cloud's API, and the tunnel is meant for it": ("ec2.us-east-1.amazonaws.com", "", False, True, True),
    "a look-alike of a cloud": ("notazure.com", "", True, True, True),
    "loopback": ("127.0.0.1", "", False, True, False),
    "localhost": ("localhost", "", False, True, False),
    "everything": ("example.com", "*", False, True, False),
    "a name with a last dot": ("a.example.com.", ".example.com", False, True, False),
}


@pytest.mark.parametrize(("host", "no_proxy", "clouds", "has_proxy", "proxied"), ROUTES.values(), ids=ROUTES)
def test_the_route_of_a_plain_request(host: str, no_proxy: str, clouds: bool, has_proxy: bool, proxied: bool) -> None:
    chosen = router(Loopback(), HTTP if has_proxy else None, None, no_proxy, clouds=clouds).route(
        RequestTarget(host, 80)
    )
    assert chosen == (UpstreamRoute("p1", 3128, HTTP) if proxied else UpstreamRoute(host, 80))


@pytest.mark.parametrize(("host", "no_proxy", "clouds", "has_proxy", "proxied"), ROUTES.values(), ids=ROUTES)
async def test_the_route_of_a_connect(host: str, no_proxy: str, clouds: bool, has_proxy: bool, proxied: bool) -> None:
    async with origin(answering(b"HTTP/1.1 200 OK\r\n\r\n")) as proxy:
        opener = Loopback(proxy.port)
        _, writer = await router(opener, None, HTTPS if has_proxy else None, no_proxy, clouds=clouds).connect(
            RequestTarget(host, 443)
        )
        assert opener.dials == [("p2", 3128) if proxied else (host, 443)]
        writer.close()


async def test_connect_sends_the_name_unresolved_and_the_credentials_decoded() -> None:
    async with origin(answering(b"HTTP/1.1 200 OK\r\n\r\nearly")) as proxy:
        metrics = ProxyMetrics()
        reader, writer = await router(Loopback(proxy.port), metrics=metrics).connect(RequestTarget("a.example", 443))
        assert await reader.readexactly(5) == b"early"
        lines = proxy.peers[0].seen.decode().split("\r\n")
        assert lines[0] == "CONNECT a.example:443 HTTP/1.1"
        assert "Proxy-Authorization: Basic dXNlcjpwQHNzOiU0MQ==" in lines
        assert 'umbilical_proxy_dials_total{way="user-proxy",result="ok"} 1' in metrics.render().decode()
        writer.close()


@pytest.mark.parametrize("reason", [DialReason.REFUSED, DialReason.UNREACHABLE, DialReason.TIMEOUT, DialReason.NAME])
async def test_a_proxy_that_cannot_be_reached_is_the_proxys_fault_and_not_the_endpoints(reason: DialReason) -> None:
    opener, metrics = Loopback(), ProxyMetrics()
    opener.failure = DialFailed(reason, "agent", "no")
    for dial in (
        router(opener, metrics=metrics).open(UpstreamRoute("p1", 3128, HTTP)),
        router(opener, metrics=metrics).connect(RequestTarget("a", 443)),
    ):
        with pytest.raises(DialFailed) as failure:
            await dial
        assert failure.value.reason is DialReason.PROXY
        assert "p@ss" not in str(failure.value)
    assert 'umbilical_proxy_dials_total{way="user-proxy",result="proxy"} 2' in metrics.render().decode()


@pytest.mark.parametrize("status", [b"403 Filtered", b"407 Proxy Authentication Required", b"502 Bad Gateway"])
async def test_what_the_proxy_refuses_is_told_in_its_words_and_as_its_fault(status: bytes) -> None:
    answer = b"HTTP/1.1 %s\r\nProxy-Authenticate: Basic\r\nContent-Length: 7\r\n\r\nbecause" % status
    async with origin(answering(answer)) as proxy:
        with pytest.raises(DialFailed, match="because") as failure:
            await router(Loopback(proxy.port)).connect(RequestTarget("a.example", 443))
        assert failure.value.reason is DialReason.PROXY
        assert status.decode() in str(failure.value)


@pytest.mark.parametrize("reason", [DialReason.FORBIDDEN, DialReason.NO_AGENT])
async def test_a_server_that_forbids_and_a_broken_tunnel_are_told_as_that(reason: DialReason) -> None:
    opener = Loopback()
    opener.failure = DialFailed(reason, "server", "told so")
    for dial in (
        router(opener).connect(RequestTarget("a.example", 443)),
        router(opener).open(UpstreamRoute("p1", 3128, HTTP)),
    ):
        with pytest.raises(DialFailed) as failure:
            await dial
        assert failure.value.reason is reason


@asynccontextmanager
async def tls_proxy(authority: FolderAuthority, name: str) -> AsyncIterator[Origin]:
    """A proxy by https whose certificate is for this name."""

    place = Origin(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    context = authority.server_context(authority.serving("proxy", (name,)))
    server = await asyncio.start_server(place.serve, "127.0.0.1", 0, ssl=context)
    place.port = server.sockets[0].getsockname()[1]
    try:
        yield place
    finally:
        server.close()
        await place.ended(len(place.peers))
        async with asyncio.timeout(60):  # asyncio itself has a task for every handshake, failed ones too
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)


async def test_a_proxy_by_https_is_verified_by_the_name_in_its_own_url(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path, "proxy-ca")
    tls = ProxyTls(authority.certificate_file)

    right, wrong = ProxyUrl("https", "p1.example", 443), ProxyUrl("https", "p2.example", 443)
    async with tls_proxy(authority, "p1.example") as place:
        opener = Loopback(place.port)
        reader, writer = await router(opener, right, wrong, tls=tls).open(UpstreamRoute("p1.example", 443, right))
        writer.write(b"GET http://a/ HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()
        for dial in (
            router(opener, wrong, wrong, tls=tls).open(UpstreamRoute("p2.example", 443, wrong)),
            router(opener, wrong, wrong, tls=tls).connect(RequestTarget("a", 443)),
        ):
            with pytest.raises(DialFailed, match=r"p2\.example") as failure:
                await dial
            assert failure.value.reason is DialReason.PROXY


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_came_to_be_under_a_direct_domain_is_not_reached_past_the_tunnel(scheme: str) -> None:
    """Files with URLs are read again; direct hosts are fixed at the start."""

    moved = ProxyUrl("http", "proxy.eu.azure.com", 3128, "user", "secret")
    opener = Loopback()
    chosen = router(opener, moved, moved, clouds=True)
    target = RequestTarget("example.com", 443, "example.com:443", "/")
    with pytest.raises(DialFailed) as caught:
        await (chosen.connect(target) if scheme == "https" else chosen.open(chosen.route(target)))
    assert caught.value.reason is DialReason.PROXY
    assert opener.dials == []
