"""Opening connections through the tunnel or directly; the fallback is in test_outbound_fallback."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.proxies.name_testbed import Counts, ScriptedTunnel, outbound_settings
from tests.proxies.outbound_testbed import DNS_SERVER, OutboundTestbed, open_testbed
from tests.proxies.proxy_testbed import ScriptedProxy
from tests.support.proxy_testbed import endpoint
from tests.support.scripted_api import ScriptedApi, json_answer

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.fault import StartupError
from umbilical.proxies.lookup import LookupFailed
from umbilical.proxies.outbound import Outbound, make_outbound
from umbilical.proxies.services import ServiceName
from umbilical.proxies.settings import Resolution

GUESTS = [Resolution.HOSTED, Resolution.SERVICE, Resolution.HOSTED_THEN_MANAGEMENT]
CONSOLE = "console.monitoring.svc"


@pytest.mark.parametrize("host", ["console.example.com", "10.0.0.7", "fd00::7"])
async def test_a_name_that_the_agent_resolves_goes_through_the_tunnel_as_it_is(host: str) -> None:
    async with open_testbed(Resolution.AGENT) as stage:
        await stage.open(host)
        assert stage.dials == [(host, 443)]
        assert stage.counts.dials == [("tunnel", "ok")]
        assert stage.counts.lookups == []


@pytest.mark.parametrize("resolution", Resolution)
@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7"])
async def test_an_address_is_never_resolved(resolution: Resolution, host: str) -> None:
    async with open_testbed(resolution) as stage:
        await stage.open(host)
        assert stage.dials == [(host, 443)]
        assert stage.counts.lookups == []
        assert stage.asked_machine == []
        assert await stage.outbound.resolve(host) == (host,)


@pytest.mark.parametrize("resolution", GUESTS)
async def test_hosted_dns_gives_the_address_that_goes_through_the_tunnel(resolution: Resolution) -> None:
    async with open_testbed(resolution) as stage:
        await stage.open("idp.corp.example")
        assert stage.dials == [DNS_SERVER, ("10.0.0.1", 443)]
        assert stage.asked_machine == []
        await stage.open("idp.corp.example")
        assert stage.counts.lookups[-1] == ("guest", "cached")


async def test_management_dns_gives_the_address_that_goes_through_the_tunnel() -> None:
    async with open_testbed(Resolution.MANAGEMENT) as stage:
        await stage.open("idp.corp.example")
        assert stage.dials == [("192.0.2.1", 443)]
        assert stage.asked_machine == ["idp.corp.example"]
        assert stage.counts.lookups == [("management", "ok")]


@pytest.mark.parametrize("resolution", [Resolution.SERVICE, Resolution.MANAGEMENT, Resolution.HOSTED_THEN_MANAGEMENT])
async def test_the_api_goes_before_dns_for_services(resolution: Resolution) -> None:
    async with open_testbed(resolution) as stage:
        await stage.open(CONSOLE)
        assert stage.dials == [("172.30.9.9", 443)]
        assert stage.counts.lookups == [("service", "ok")]


async def test_with_hosted_dns_alone_the_api_is_not_asked_for_names() -> None:
    async with open_testbed(Resolution.HOSTED) as stage:
        await stage.open("console.monitoring.svc.cluster.local")
        assert stage.dials[-1] == ("172.30.9.1", 443)
        assert stage.api.asked == []


@pytest.mark.parametrize("resolution", [Resolution.SERVICE, Resolution.HOSTED_THEN_MANAGEMENT])
async def test_an_api_that_is_down_leaves_services_to_dns(resolution: Resolution) -> None:
    async with open_testbed(resolution) as stage:
        stage.api.is_down = True
        await stage.open(CONSOLE)
        assert stage.dials[-1] == ("172.30.9.1", 443)


async def test_all_answers_are_tried_and_the_family_that_works_goes_first_from_then_on() -> None:
    async with open_testbed(Resolution.HOSTED) as stage:
        stage.tunnel.outcomes.update({"fd00::5": DialReason.UNREACHABLE, "10.0.0.5": DialReason.REFUSED})
        await stage.open("several.corp.example")
        assert stage.dials[1] == ("fd00::5", 443)
        assert stage.dials[-1] == ("10.0.0.6", 443)
        stage.tunnel.dials.clear()
        stage.tunnel.outcomes.clear()
        await stage.open("several.corp.example")
        assert [":" in host for host, _ in stage.dials] == [False]


async def test_with_ipv4_preferred_no_other_family_is_dialled_where_there_is_one() -> None:
    async with open_testbed(Resolution.HOSTED, prefer_ipv4=True) as stage:
        stage.tunnel.outcomes.update({"10.0.0.5": DialReason.REFUSED, "10.0.0.6": DialReason.TIMEOUT})
        failure = await stage.failure("several.corp.example")
        assert failure.reason is DialReason.REFUSED
        assert sorted(await stage.outbound.resolve("several.corp.example")) == ["10.0.0.5", "10.0.0.6"]
        assert not any(":" in host for host, _ in stage.dials)
        assert await stage.outbound.resolve("six.corp.example") == ("fd00::6",)
        assert await stage.outbound.resolve("fd00::7") == ("fd00::7",)


async def test_what_does_not_answer_is_looked_up_again() -> None:
    async with open_testbed(Resolution.HOSTED) as stage:
        stage.tunnel.outcomes["10.0.0.1"] = DialReason.TIMEOUT
        await stage.failure("idp.corp.example")
        stage.dns.zone["idp.corp.example", "A"] = ["60", "10.0.0.2"]
        await stage.open("idp.corp.example")
        assert stage.dials[-1] == ("10.0.0.2", 443)


@pytest.mark.parametrize("resolution", Resolution)
async def test_a_cloud_host_leaves_by_this_machine_through_its_proxy(resolution: Resolution) -> None:
    async with ScriptedProxy() as proxy:
        environment = {"https_proxy": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": "sts.amazonaws.com"}
        async with open_testbed(
            resolution, environment, direct_suffixes=(".amazonaws.com",), never_direct=("p.amazonaws.com",)
        ) as stage:
            await stage.open("EC2.amazonaws.com", hello=b"")
            assert stage.dials == []
            assert proxy.requests[0].startswith("CONNECT EC2.amazonaws.com:443 ")
            assert stage.counts.dials == [("direct", "ok")]
            assert await stage.outbound.resolve("ec2.amazonaws.com") == ()


async def test_a_host_that_is_kept_in_the_tunnel_is_not_direct_and_without_suffixes_none_is() -> None:
    variants: list[dict[str, Any]] = [
        {"direct_suffixes": (".amazonaws.com",), "never_direct": ("p.amazonaws.com",)},
        {},
    ]
    for settings in variants:
        async with open_testbed(Resolution.AGENT, **settings) as stage:
            await stage.open("p.amazonaws.com")
            assert stage.dials == [("p.amazonaws.com", 443)]


async def test_what_lives_beside_the_proxy_never_enters_the_tunnel_where_its_suffix_is_given() -> None:
    """etcd and the audit webhook of a hosted control plane are Services of the management cluster."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")

    async with (
        endpoint(greet) as port,
        open_testbed(Resolution.HOSTED_THEN_MANAGEMENT, direct_suffixes=(".clusters-one.svc",)) as stage,
    ):
        stage.machine["etcd-client.clusters-one.svc"] = ["127.0.0.1"]
        await stage.open("etcd-client.clusters-one.svc", port)
        assert stage.asked_machine == ["etcd-client.clusters-one.svc"], "as any program of this machine asks"
        assert stage.dials == []


@pytest.mark.parametrize("host", ["idp.corp.example", CONSOLE])
async def test_resolve_hands_a_name_on_that_the_agent_is_to_resolve(host: str) -> None:
    async with open_testbed(Resolution.AGENT) as stage:
        assert await stage.outbound.resolve(host) == ()
        assert stage.counts.lookups == []


@pytest.mark.parametrize("resolution", Resolution)
async def test_resolve_hands_a_cloud_host_on(resolution: Resolution) -> None:
    async with open_testbed(resolution, direct_suffixes=(".microsoftonline.com",)) as stage:
        assert await stage.outbound.resolve("login.microsoftonline.com") == ()


async def test_resolve_takes_a_services_addresses_from_the_api_and_goes_on_when_there_is_none() -> None:
    async with open_testbed(Resolution.SERVICE) as stage:
        assert await stage.outbound.resolve(CONSOLE) == ("172.30.9.9",)
        del stage.api.services[ServiceName("monitoring", "console")]
        stage.clock.turn(60)
        assert await stage.outbound.resolve(CONSOLE) == ("172.30.9.1",)
        assert await stage.outbound.resolve("idp") == ("10.0.0.9",), "one label is no Service"


async def test_resolve_gives_all_answers() -> None:
    async with open_testbed(Resolution.HOSTED) as stage:
        assert sorted(await stage.outbound.resolve("several.corp.example")) == ["10.0.0.5", "10.0.0.6", "fd00::5"]


@pytest.mark.parametrize("resolution", GUESTS)
async def test_resolve_fails_when_hosted_dns_fails_and_asks_nobody_else(resolution: Resolution) -> None:
    async with open_testbed(resolution) as stage:
        stage.dns.zone["idp.corp.example", "rcode"] = ["SERVFAIL"]
        with pytest.raises(LookupFailed):
            await stage.outbound.resolve("idp.corp.example")
        assert stage.asked_machine == []


@pytest.mark.parametrize("resolution", [Resolution.HOSTED, Resolution.SERVICE])
async def test_resolve_fails_with_the_tunnels_reason_where_the_tunnel_is_down(resolution: Resolution) -> None:
    async with open_testbed(resolution) as stage:
        stage.tunnel.everything = DialReason.SERVER
        with pytest.raises(DialFailed) as caught:
            await stage.outbound.resolve("idp.corp.example")
        assert caught.value.reason is DialReason.SERVER


@pytest.mark.parametrize(
    ("resolution", "settings", "code"),
    [
        (Resolution.HOSTED, {}, "UMB537"),
        (Resolution.HOSTED_THEN_MANAGEMENT, {}, "UMB537"),
        (Resolution.SERVICE, {"guest_dns": ("172.30.0.10",)}, "UMB537"),
        (Resolution.HOSTED, {"guest_dns": ("dns.example",)}, "UMB534"),
        (Resolution.HOSTED, {"guest_dns": ("172.30.0.10",), "guest_dns_service": "dns"}, "UMB535"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(
    resolution: Resolution, settings: dict[str, Any], code: str
) -> None:
    with pytest.raises(StartupError) as caught:
        Outbound(outbound_settings(resolution, **settings), ScriptedTunnel(), {}, None, Counts())
    assert caught.value.code == code


def test_a_proxy_in_the_environment_matters_only_where_something_is_direct() -> None:
    environment = {"HTTPS_PROXY": "socks5://proxy.example:1080"}
    Outbound(outbound_settings(Resolution.AGENT), ScriptedTunnel(), environment, None, Counts())
    settings = outbound_settings(Resolution.AGENT, direct_suffixes=(".azure.com",))
    with pytest.raises(StartupError) as caught:
        Outbound(settings, ScriptedTunnel(), environment, None, Counts())
    assert caught.value.code == "UMB532"


@pytest.mark.parametrize("resolution", [Resolution.AGENT, Resolution.MANAGEMENT])
def test_no_kubeconfig_is_needed_where_nothing_is_resolved_by_it(resolution: Resolution) -> None:
    Outbound(outbound_settings(resolution), ScriptedTunnel(), {}, None, Counts())


async def test_with_a_kubeconfig_the_dns_is_found_by_its_service_and_all_ends_with_the_outbound(tmp_path: Path) -> None:
    async with ScriptedApi(lambda request: json_answer({"spec": {"clusterIPs": [DNS_SERVER[0]]}})) as api:
        stage = OutboundTestbed(Resolution.HOSTED)
        await stage.outbound.close()
        settings = outbound_settings(Resolution.HOSTED, kubeconfig=api.write_kubeconfig(tmp_path))
        outbound = make_outbound(settings, stage.tunnel, {}, stage.counts)
        assert await outbound.resolve("idp.corp.example") == ("10.0.0.1",)
        assert [request.path for request in api.requests] == ["/api/v1/namespaces/openshift-dns/services/dns-default"]
        await outbound.close()
        await stage.close()


async def test_it_owns_the_api_that_it_was_given() -> None:
    stage = OutboundTestbed(Resolution.SERVICE)
    await stage.outbound.close()
    assert stage.api.closed
    await stage.close()
