"""Dials by this machine's own network."""

import asyncio
import errno
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proxies.name_testbed import Counts
from tests.proxies.proxy_testbed import ScriptedProxy
from tests.support.proxy_testbed import echo, endpoint

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.proxies import direct
from umbilical.proxies.direct import CLOUD_SUFFIXES, DirectDialer, DirectHosts, connect
from umbilical.proxies.lookup import ManagementDns
from umbilical.proxies.proxy_rules import rules_of_environment

CLOUD = DirectHosts(CLOUD_SUFFIXES, ())


CLOUD_HOSTS = [
    "ec2.us-east-1.amazonaws.com", "EC2.US-EAST-1.AMAZONAWS.COM", "sts.amazonaws.com.",
    "sts.cn-north-1.amazonaws.com.cn", "ec2.us-iso-east-1.c2s.ic.gov", "ec2.us-iso-west-1.hci.ic.gov",
    "ec2.us-isob-east-1.sc2s.sgov.gov", "login.microsoftonline.com", "login.microsoftonline.us",
    "management.azure.com", "management.usgovcloudapi.net", "account.blob.core.windows.net", "iam.cloud.ibm.com",
    "compute.googleapis.com",
]  # fmt: skip
OTHER_HOSTS = [
    "notazure.com", "www.notazure.com", "evilazure.com", "fakecloud.ibm.com", "badcloud.ibm.com", "azure.com",
    "cloud.ibm.com", "amazonaws.com.", "azure.com.evil.example", "idp.corp.example", "10.0.0.7", "fd00::7", "", ".",
    ".azure.com",
]  # fmt: skip


@pytest.mark.parametrize("host", CLOUD_HOSTS)
def test_the_apis_of_clouds_are_direct(host: str) -> None:
    assert host in CLOUD


@pytest.mark.parametrize("host", OTHER_HOSTS)
def test_look_alikes_and_bare_domains_are_not(host: str) -> None:
    assert host not in CLOUD


def test_a_host_can_be_kept_in_the_tunnel() -> None:
    hosts = DirectHosts((".azure.com",), ("Proxy.Azure.com.",))
    assert "proxy.azure.com" not in hosts
    assert "PROXY.azure.com." not in hosts
    assert "other.azure.com" in hosts


@pytest.mark.parametrize("suffix", [".corp.example", "corp.example", "Corp.Example.", " .corp.example "])
def test_a_suffix_may_be_written_in_any_way(suffix: str) -> None:
    hosts = DirectHosts((suffix,), ())
    assert "api.corp.example" in hosts
    assert "corp.example" not in hosts
    assert "notcorp.example" not in hosts


@given(st.text(max_size=30))
def test_any_host_gets_an_answer(host: str) -> None:
    assert (host in CLOUD) in (True, False)


class Machine:
    """All names lead to loopback here."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses) or ["127.0.0.1"]
        self.asked: list[str] = []

    async def ask(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.addresses

    def dialer(self, environment: dict[str, str], *, prefer_ipv4: bool = False) -> DirectDialer:
        names = ManagementDns(Counts(), self.ask)
        return DirectDialer(rules_of_environment(environment), names, prefer_ipv4=prefer_ipv4)


async def said(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    reader, writer = streams
    writer.write(b"ping")
    answer = await reader.readexactly(4)
    writer.close()
    return answer


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
async def test_with_a_proxy_in_the_environment_it_alone_is_dialled_and_sees_one_connect(name: str) -> None:
    async with ScriptedProxy() as proxy:
        machine = Machine()
        dialer = machine.dialer({name: f"http://me@proxy.example:{proxy.port}"})
        assert await said(await dialer.open("ec2.amazonaws.com.", 443)) == b"ping"
        assert machine.asked == ["proxy.example"]
        (head,) = proxy.requests
        assert head.startswith("CONNECT ec2.amazonaws.com:443 HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic bWU6\r\n" in head


@pytest.mark.parametrize(
    "more", [{}, {"NO_PROXY": ".amazonaws.com"}, {"no_proxy": "*"}], ids=["no-proxy-at-all", "NO_PROXY", "no_proxy"]
)
async def test_without_one_or_past_it_the_host_itself_is_dialled(more: dict[str, str]) -> None:
    async with ScriptedProxy() as proxy, endpoint(echo) as port:
        environment = {"HTTPS_PROXY": f"http://proxy.example:{proxy.port}", **more} if more else {}
        machine = Machine()
        assert await said(await machine.dialer(environment).open("ec2.amazonaws.com", port)) == b"ping"
        assert machine.asked == ["ec2.amazonaws.com"]
        assert proxy.requests == []


async def test_all_addresses_are_tried() -> None:
    async with endpoint(echo, "127.0.0.3") as port:
        machine = Machine("::1", "127.0.0.2", "127.0.0.3")
        assert await said(await machine.dialer({}).open("ec2.amazonaws.com", port)) == b"ping"


async def test_with_ipv4_preferred_no_other_is_tried() -> None:
    async with endpoint(echo, "::1") as port:
        with pytest.raises(DialFailed) as caught:
            await Machine("::1", "127.0.0.2").dialer({}, prefer_ipv4=True).open("ec2.amazonaws.com", port)
        assert (caught.value.reason, caught.value.hop) == (DialReason.REFUSED, f"127.0.0.2:{port}")
        assert await said(await Machine("::1").dialer({}, prefer_ipv4=True).open("x.amazonaws.com", port)) == b"ping"


async def test_a_connect_that_gets_no_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "CONNECT_SECONDS", 0.05)

    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with pytest.raises(DialFailed) as caught:
            await connect(*full.getsockname())
        for filler in fillers:
            filler.close()
    assert caught.value.reason is DialReason.TIMEOUT


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ECONNREFUSED, DialReason.REFUSED),
        (errno.ETIMEDOUT, DialReason.TIMEOUT),
        (errno.ENETUNREACH, DialReason.UNREACHABLE),
        (errno.EHOSTUNREACH, DialReason.UNREACHABLE),
        (errno.EPERM, DialReason.FORBIDDEN),
        (errno.EAFNOSUPPORT, DialReason.UNREACHABLE),
    ],
)
async def test_each_failure_of_a_connect_has_its_reason(
    number: int, reason: DialReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: object, **named: object) -> None:
        raise OSError(number, "told so")

    monkeypatch.setattr(asyncio, "open_connection", fail)

    with pytest.raises(DialFailed) as caught:
        await connect("fd00::1", 443)
    assert (caught.value.reason, caught.value.hop) == (reason, "[fd00::1]:443")


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "::"])
async def test_a_name_does_not_lead_to_what_only_this_machine_can_reach(address: str) -> None:
    """A public name may point to the cloud's metadata service, which holds credentials."""

    with pytest.raises(DialFailed) as caught:
        await Machine(address).dialer({}).open("idp.corp.example", 80)
    assert caught.value.reason is DialReason.FORBIDDEN
    assert address in caught.value.text


async def test_its_other_addresses_are_dialled_all_the_same() -> None:
    async with endpoint(echo) as port:
        machine = Machine("169.254.169.254", "127.0.0.1")
        assert await said(await machine.dialer({}).open("idp.corp.example", port)) == b"ping"
